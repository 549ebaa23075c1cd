// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"nnpa.dev/nnpa/zdnn"
)

// An operand that is nil is refused before the wire, by its C name.
func TestNilOperands(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	a := vector(t, ctx, s, 1)
	second := func(_ any, err error) error { return err }
	for says, err := range map[string]error{
		"zdnn_add: input_a: nil":               second(zdnn.Add(ctx, nil, a, nil)),
		"zdnn_add: input_b: nil":               second(zdnn.Add(ctx, a, nil, nil)),
		"zdnn_matmul_op: input_c: nil":         second(zdnn.MatmulOp(ctx, a, a, nil, zdnn.MATMUL_OP_ADDITION, nil)),
		"zdnn_transform_ztensor: ztensor: nil": zdnn.TransformZtensor(ctx, nil, []float32{1}),
		"ztensor: nil":                         zdnn.FreeZtensorBuffer(ctx, nil),
		"ztensor: nil, expected":               zdnn.AllochelperZtensor(ctx, nil),
		"input_a: a Ztensor of no session":     second(zdnn.Add(ctx, &zdnn.Ztensor{}, a, nil)),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, expected %s", err, says)
		}
	}
}

// A freed operand is a program check that says freed, and no ZDNN_OK.
func TestFreedOperand(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	a, freed := vector(t, ctx, s, 1), vector(t, ctx, s, 1)
	if err := zdnn.FreeZtensorBuffer(ctx, freed); err != nil {
		t.Fatal(err)
	}
	_, err := zdnn.Add(ctx, a, freed, nil)
	var check *zdnn.ProgramCheck
	if !errors.As(err, &check) || strings.Contains(err.Error(), "ZDNN_OK") ||
		!strings.HasSuffix(err.Error(), "The ztensor has no buffer: it was freed, or never allocated.") {
		t.Error(err)
	}
}

// An array of another size than its dims is refused before the wire.
func TestSizes(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	_, err := zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, make([]float32, 3), 2, 3)
	if err == nil || err.Error() != "data: 3 elements, dims [2 3] have 6" {
		t.Error(err)
	}
}

// Values that are no numbers are told with where the others are.
func TestNotNumbers(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	z := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, []float32{1e10, 1}, 2))(t)
	values, err := zdnn.TransformOrigtensor[float32](ctx, z, nil)
	if err == nil || !strings.HasSuffix(err.Error(), " The array is returned beside this error, with NaN for them.") {
		t.Error(err)
	}
	if len(values) != 2 || !math.IsNaN(float64(values[0])) || values[1] != 1 {
		t.Error(values)
	}
}

// A URL is refused as a target, and the error shows the right form.
func TestURLs(t *testing.T) {
	for _, scheme := range []string{"http", "https", "grpc"} {
		err := use(t, scheme+"://localhost:50051/", zdnn.Options{})
		if err == nil || !strings.Contains(err.Error(), `is a URL, expected host:port; give "localhost:50051"`) {
			t.Error(err)
		}
	}
}

// Text and advice are two sentences.
func TestTextAndAdvice(t *testing.T) {
	err := use(t, server, zdnn.Options{Machine: "z14"})
	var failure *zdnn.TransportError
	if !errors.As(err, &failure) || !strings.HasSuffix(err.Error(), ". "+failure.Advice) ||
		strings.Contains(err.Error(), "..") {
		t.Error(err)
	}
}

// A session prints its server and machine, and never its name, which is a key.
func TestSessionPrintsNoName(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Machine: "z16"})
	says := fmt.Sprintf("Session(open at %s, telum1, zDNN 1.2.0)", s.Target())
	if got := fmt.Sprintf("%v", s); got != says {
		t.Errorf("%s, expected %s", got, says)
	}
	a := vector(t, ctx, s, 1)
	for _, printed := range []string{fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", a), fmt.Sprintf("%#v", a)} {
		if strings.Contains(printed, s.Message().Name) {
			t.Error(printed)
		}
	}
}

// A ztensor prints layout, sizes, type and state of its buffer.
func TestZtensorPrints(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	z := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, make([]float32, 6), 2, 3))(t)
	tensor := "Ztensor(ZDNN_2D 2x3 FP32 as ZDNN_NHWC 1x1x2x3 ZDNN_DLFLOAT16, "
	expect := func(state string) {
		t.Helper()
		if got := z.String(); got != tensor+state+")" {
			t.Errorf("%s, expected %s", got, state)
		}
	}
	expect("4096 bytes, transformed")
	if err := errors.Join(zdnn.ResetZtensor(ctx, z)); err != nil {
		t.Fatal(err)
	}
	expect("4096 bytes, not transformed")
	if err := zdnn.FreeZtensorBuffer(ctx, z); err != nil {
		t.Fatal(err)
	}
	expect("freed")
	z = s.InitZtensor(z.PreTransformedDesc(), z.TransformedDesc())
	expect("no buffer")
	z = s.InitQuantizedZtensor(z.PreTransformedDesc(), z.TransformedDesc(), 2, 3)
	expect("no buffer, rec_scale 0.5, offset 3")
}

// Status, machines and descriptors print one line without a session's name.
func TestMessagesPrint(t *testing.T) {
	ctx, s := open(t, zdnn.Options{Machine: "z16"})
	z := must(zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, make([]float32, 6), 2, 3))(t)
	status := must(s.Status(ctx))(t)
	for _, printed := range []string{fmt.Sprint(status), fmt.Sprintf("%+v", s.Message()), fmt.Sprintf("%#v", status)} {
		if printed != "Session(of telum1, zDNN 1.2.0: 1 tensors, 4096 bytes)" {
			t.Error(printed)
		}
	}
	machine := fmt.Sprint(s.Machine())
	if !strings.HasPrefix(machine, "Machine(telum1, z16") || !strings.HasSuffix(machine, " functions)") {
		t.Error(machine)
	}
	if got := zdnn.Describe(z.PreTransformedDesc()); got != "TensorDesc(ZDNN_2D 2x3 FP32)" {
		t.Error(got)
	}
}
