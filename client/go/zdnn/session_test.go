// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

// An output that is left out is created, with the shape that the operation gives it.
func TestOutputsLeftOut(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	a := vector(t, ctx, s, 1, 2, 3, 4)
	sum := must(zdnn.Add(ctx, a, a, nil))(t)
	if got := values(t, ctx, sum); !slices.Equal(got, []float32{2, 4, 6, 8}) {
		t.Error(got)
	}
	mean, variance, err := zdnn.Moments(ctx, a, zdnn.MOMENTS_BESSEL_POPULATION, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if dim := variance.TransformedDesc().Dim1; dim != 1 {
		t.Errorf("dim1 %d, expected 1", dim)
	}
	if got := values(t, ctx, mean); !slices.Equal(got, []float32{2.5}) {
		t.Error(got)
	}
}

// An optional parameter that is nil is C's NULL.
func TestOptionalParameter(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	a, clip := vector(t, ctx, s, -1, 2, 9), float32(6)
	if got := values(t, ctx, must(zdnn.Relu(ctx, a, nil, nil))(t)); !slices.Equal(got, []float32{0, 2, 9}) {
		t.Error(got)
	}
	if got := values(t, ctx, must(zdnn.Relu(ctx, a, &clip, nil))(t)); !slices.Equal(got, []float32{0, 2, 6}) {
		t.Error(got)
	}
}

// counting returns options with which the calls of Execute are counted.
func counting(calls *int) zdnn.Options {
	count := func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		if method == zdnnv1.AcceleratorService_Execute_FullMethodName {
			*calls++
		}
		return invoke(ctx, method, request, reply, conn, options...)
	}
	return zdnn.Options{Plain: true, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)}}
}

// A pipeline is one call, and has the results of the same verbs one by one.
func TestPipelineIsOneCall(t *testing.T) {
	calls := 0
	ctx, s := open(t, counting(&calls))
	x, out := []float32{-1, -0.5, 0.5, 1}, make([]float32, 4)
	results, err := s.Pipeline(ctx, func() error {
		a, err := zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, x, 4)
		if err != nil {
			return err
		}
		squared, err := zdnn.Mul(ctx, a, a, nil)
		if err != nil {
			return err
		}
		grown, err := zdnn.Exp(ctx, squared, nil)
		if err != nil {
			return err
		}
		_, err = zdnn.TransformOrigtensor(ctx, grown, out)
		return err
	})
	if err != nil || calls != 1 || len(results) != 6 {
		t.Fatalf("%d calls, %d results, %v", calls, len(results), err)
	}
	a := vector(t, ctx, s, x...)
	product := values(t, ctx, must(zdnn.Exp(ctx, must(zdnn.Mul(ctx, a, a, nil))(t), nil))(t))
	if !slices.Equal(product, out) {
		t.Errorf("%v, one by one %v", out, product)
	}
}

// The first error ends the list: it has its index, and later operations have not run.
func TestPipelineEndsAtError(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Precheck: true})
	a, b := vector(t, ctx, s, 1, 2), vector(t, ctx, s, 1, 2, 3)
	var after *zdnn.Ztensor
	_, err := s.Pipeline(ctx, func() error {
		if _, err := zdnn.Add(ctx, a, a, nil); err != nil {
			return err
		}
		wrong, err := zdnn.Add(ctx, a, b, nil)
		if err != nil {
			return err
		}
		after, err = zdnn.Exp(ctx, wrong, nil)
		return err
	})
	var refused *zdnn.ZdnnError
	if !errors.As(err, &refused) || refused.OperationIndex != 1 || refused.Op != "add" {
		t.Fatal(err)
	}
	if _, err := zdnn.Exp(ctx, after, nil); err == nil || !strings.Contains(err.Error(), "ended before") {
		t.Error(err)
	}
}

// A body that fails drops its queue, and the session goes on.
func TestPipelineLeftByError(t *testing.T) {
	calls := 0
	ctx, s := open(t, counting(&calls))
	left := errors.New("left")
	var z *zdnn.Ztensor
	_, err := s.Pipeline(ctx, func() (err error) {
		z, err = zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, []float32{1}, 1)
		return errors.Join(err, left)
	})
	if !errors.Is(err, left) || calls != 0 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if !z.Structure().GetNullBuffer() {
		t.Error("a buffer that nobody has made")
	}
	vector(t, ctx, s, 1)
}

// A refusal tells field, value, limit and constraint.
func TestErrorExplains(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Precheck: true})
	_, err := zdnn.Add(ctx, vector(t, ctx, s, 1, 2), vector(t, ctx, s, 1, 2, 3), nil)
	var refused *zdnn.ZdnnError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if refused.Status != zdnn.ZDNN_INVALID_SHAPE || refused.Name != "ZDNN_INVALID_SHAPE" {
		t.Error(refused.Name)
	}
	refusal := refused.Refusal
	if refusal.Field != "input_b.transformed_desc.dims" || refusal.Value != "(1, 1, 1, 3)" || refusal.Constraint == "" {
		t.Error(refusal)
	}
	if !strings.Contains(err.Error(), "zdnn_add") || refused.OperationIndex != -1 {
		t.Error(err)
	}
}

// Without precheck, operands that contradict each other end the program, and the session lives on.
func TestProgramCheck(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	a := vector(t, ctx, s, 1, 2)
	_, err := zdnn.Add(ctx, a, vector(t, ctx, s, 1, 2, 3), nil)
	var check *zdnn.ProgramCheck
	if !errors.As(err, &check) {
		t.Fatal(err)
	}
	if check.Kind != "data" || check.PrecheckStatus != zdnn.ZDNN_INVALID_SHAPE || check.Op != "add" {
		t.Errorf("%+v", check)
	}
	must(zdnn.Add(ctx, a, a, nil))(t)
}

// A warning is warnings with the elements concerned; the output is valid.
func TestWarning(t *testing.T) {
	var warnings []*zdnn.ZdnnWarning
	ctx, s := open(t, zdnn.Options{Warn: func(w *zdnn.ZdnnWarning) error {
		warnings = append(warnings, w)
		return nil
	}})
	root := must(zdnn.Log(ctx, vector(t, ctx, s, 1, -1), nil))(t)
	if len(warnings) != 1 || warnings[0].Status != zdnn.ZDNN_ELEMENT_RANGE_VIOLATION || warnings[0].Op != "log" {
		t.Fatal(warnings)
	}
	if first := warnings[0].Violation.Operands[0].Elements[0]; !slices.Equal(first.Index, []uint32{0, 0, 0, 1}) {
		t.Error(first)
	}
	if !root.IsTransformed() {
		t.Error("the output is not valid")
	}
}

// The error of Options.Warn is the verb's error, beside a valid output.
func TestWarningAsError(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Warn: func(w *zdnn.ZdnnWarning) error { return w }})
	out, err := zdnn.Log(ctx, vector(t, ctx, s, 1, -1), nil)
	var warning *zdnn.ZdnnWarning
	if !errors.As(err, &warning) || out == nil {
		t.Fatal(out, err)
	}
	if !strings.Contains(err.Error(), "1 not numbers") {
		t.Error(err)
	}
}

// Arrays above the inline limit travel in chunks, both ways, and come back as they were.
func TestLargeArrays(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	const rows, columns = 1024, 700 // 2.7 MiB of FP32
	data := make([]float32, rows*columns)
	for i := range data {
		data[i] = float32(i%512) - 256
	}
	z := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, data, rows, columns))(t)
	if got := values(t, ctx, z); !slices.Equal(got, data) {
		t.Error("another array came back")
	}
	sticks := must(z.ReadSticks(ctx, zdnn.BYTE_ORDER_BIG_ENDIAN))(t)
	if uint64(len(sticks)) != z.BufferSize() {
		t.Errorf("%d bytes of %d", len(sticks), z.BufferSize())
	}
	copied := must(s.PutZtensor(ctx, z.Structure(), make([]byte, len(sticks))))(t)
	if err := copied.WriteSticks(ctx, sticks, zdnn.BYTE_ORDER_BIG_ENDIAN, true); err != nil {
		t.Fatal(err)
	}
	if got := values(t, ctx, copied); !slices.Equal(got, data) {
		t.Error("other sticks came back")
	}
}

// Elements of every type come back with their bits; bytes stand for any type.
func TestElements(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	halves := []zdnn.Float16{0x3C00, 0xC000, 0x0000}  // 1, -2, 0
	brains := []zdnn.BFloat16{0x3F80, 0xC000, 0x0000} // 1, -2, 0
	a := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, halves, 3))(t)
	b := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, brains, 3))(t)
	if got := must(zdnn.TransformOrigtensor[zdnn.Float16](ctx, a, nil))(t); !slices.Equal(got, halves) {
		t.Error(got)
	}
	if got := must(zdnn.TransformOrigtensor[zdnn.BFloat16](ctx, b, nil))(t); !slices.Equal(got, brains) {
		t.Error(got)
	}
	raw := must(zdnn.TransformOrigtensor[byte](ctx, vector(t, ctx, s, 1.5), nil))(t)
	if got := math.Float32frombits(binary.LittleEndian.Uint32(raw)); got != 1.5 {
		t.Error(got)
	}
	if _, err := zdnn.TransformOrigtensor[int32](ctx, a, nil); err == nil {
		t.Error("INT32 for a descriptor of FP16")
	}
	if _, err := zdnn.TransformOrigtensor(ctx, vector(t, ctx, s, 1, 2), make([]float32, 3)); err == nil {
		t.Error("an array of another size was accepted")
	}
}

// Ztensors that are not used any more are freed at the head of a later list.
func TestDroppedZtensors(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	kept := vector(t, ctx, s, 1)
	for range 50 {
		vector(t, ctx, s, 2)
	}
	nothing := must(s.PutZtensor(ctx, kept.Structure(), nil))(t) // C's NULL: there is nothing to free
	runtime.KeepAlive(nothing)
	for held := uint64(50); held > 2; {
		if ctx.Err() != nil {
			t.Fatalf("%d tensors are held", held)
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
		must(zdnn.Add(ctx, kept, kept, kept))(t)
		held = must(s.Status(ctx))(t).TensorCount
	}
	if got := values(t, ctx, kept); got[0] < 2 {
		t.Error(got)
	}
}

// A freed ztensor is forgotten, and using it again is explained.
func TestFreed(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	z := vector(t, ctx, s, 1)
	if err := zdnn.FreeZtensorBuffer(ctx, z); err != nil {
		t.Fatal(err)
	}
	if count := must(s.Status(ctx))(t).TensorCount; count != 0 {
		t.Error(count)
	}
	var refused *zdnn.ZdnnError
	if err := zdnn.FreeZtensorBuffer(ctx, z); !errors.As(err, &refused) || refused.Status != zdnn.ZDNN_INVALID_BUFFER {
		t.Error(err)
	}
}

// A context that is over stops a call, is matched as itself, and the session goes on.
func TestDeadline(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	z := vector(t, ctx, s, 1)
	over, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	_, err := zdnn.Add(over, z, z, nil)
	var transport *zdnn.TransportError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &transport) || transport.Advice == "" {
		t.Fatal(err)
	}
	must(zdnn.Add(ctx, z, z, nil))(t)
}

// lossy is a stub whose next answer of Execute gets lost after the server has worked.
type lossy struct {
	zdnnv1.AcceleratorServiceClient
	lose bool
}

func (l *lossy) Execute(
	ctx context.Context, request *zdnnv1.ExecuteRequest, options ...grpc.CallOption,
) (*zdnnv1.ExecuteResponse, error) {
	answer, err := l.AcceleratorServiceClient.Execute(ctx, request, options...)
	if l.lose && err == nil {
		l.lose = false
		return nil, context.Canceled
	}
	return answer, err
}

// After a lost answer the client asks the server for its tensors, and updates the ztensors.
func TestLostAnswer(t *testing.T) {
	ctx, first := open(t, zdnn.Options{})
	stub := &lossy{AcceleratorServiceClient: zdnnv1.NewAcceleratorServiceClient(first.Conn())}
	s := must(zdnn.NewSession(ctx, stub, zdnn.Options{Plain: true}))(t)
	z := vector(t, ctx, s, 1)
	stub.lose = true
	err := zdnn.ResetZtensor(ctx, z)
	var transport *zdnn.TransportError
	if !errors.As(err, &transport) || transport.Code != codes.Canceled {
		t.Fatal(err)
	}
	if z.IsTransformed() {
		t.Error("the server has reset it")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Operands of two sessions are refused before a call.
func TestOtherSession(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	_, second := open(t, zdnn.Options{})
	_, err := zdnn.Add(ctx, vector(t, ctx, s, 1), vector(t, ctx, second, 1), nil)
	if err == nil || err.Error() != "zdnn_add: input_b: of another session, expected a ztensor of the first operand's session" {
		t.Error(err)
	}
}

// A machine is chosen by alias, made with limits of its own, and may be changed; the cache of the
// queries stays as it was until it is refreshed.
func TestMachines(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Machine: "z16", Library: "1.1.0"})
	if s.GetLibraryVersionStr() != "1.1.0" || s.GetLibraryVersion() != 0x010100 {
		t.Error(s.GetLibraryVersionStr())
	}
	if must(s.IsNnpaFunctionInstalled(ctx, 2, zdnn.NNPA_ADD, zdnn.NNPA_SQRT))(t) {
		t.Error("Telum I has no square root")
	}
	if err := s.Move(ctx, "telum2"); err != nil {
		t.Fatal(err)
	}
	if must(s.IsNnpaFunctionInstalled(ctx, 1, zdnn.NNPA_SQRT))(t) {
		t.Error("the library has asked anew")
	}
	if err := s.RefreshNnpaQueryResult(ctx); err != nil {
		t.Fatal(err)
	}
	if !must(s.IsNnpaFunctionInstalled(ctx, 1, zdnn.NNPA_SQRT))(t) {
		t.Error("Telum II has a square root")
	}
	small := uint32(64)
	_, custom := open(t, zdnn.Options{MachineSpec: &zdnn.MachineSpec{MaxDim1: &small}})
	if got := must(custom.GetMaxForDim(ctx, 1))(t); got != 64 {
		t.Error(got)
	}
	_, err := zdnn.NewZtensor(ctx, custom, zdnn.ZDNN_1D, make([]float32, 65), 65)
	var refused *zdnn.ZdnnError
	if !errors.As(err, &refused) || refused.Status != zdnn.ZDNN_INVALID_SHAPE {
		t.Error(err)
	}
}
