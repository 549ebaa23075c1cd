// SPDX-License-Identifier: Apache-2.0

package mli_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
	"nnpa.dev/nnpa/mli"
	"nnpa.dev/nnpa/zdnn"
)

var session *zdnn.Session

// TestMain opens a session on a private server, or at ZDNN_SERVER.
func TestMain(m *testing.M) {
	server := os.Getenv("ZDNN_SERVER")
	_, missing := exec.LookPath("nnpa-server")
	if missing != nil && server == "" && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		fmt.Println("skipped: no nnpa-server on the PATH, and no ZDNN_SERVER (pip install 'nnpa[server]')")
		os.Exit(0)
	}
	var err error
	if session, err = zdnn.Connect(context.Background(), server, zdnn.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = session.Close()
	os.Exit(code)
}

// must stops a test at an error, and returns the value beside it.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// A batch is one request, whose kernels read outputs of earlier kernels, also in place.
func TestBatch(t *testing.T) {
	ctx := t.Context()
	library := must(mli.New(session, mli.Options{}))(t)
	x := fixed(t, mli.FX_8, []int{16, -16, 4}, 4)
	weights := fixed(t, mli.FX_8, []int{1, 2, 3, -1, -2, -3}, 4, 2, 3)
	bias := fixed(t, mli.FX_8, []int{1, 1}, 4)
	sums := must(library.KrnFullyConnectedFx8(ctx, x, weights, bias, mli.Empty(2, mli.FX_8, 6)))(t)
	alone := must(library.KrnTanhFx8(ctx, sums, nil))(t)
	var out *mli.Tensor
	err := library.Batch(ctx, func() error {
		hidden, err := library.KrnFullyConnectedFx8(ctx, x, weights, bias, mli.Empty(2, mli.FX_8, 6))
		if err != nil || len(hidden.Shape()) != 0 {
			return errors.Join(err, fmt.Errorf("ran at once: %v", hidden))
		}
		out, err = library.KrnTanhFx8(ctx, hidden, nil)
		return err
	})
	if err != nil || !reflect.DeepEqual(elements(t, out), elements(t, alone)) {
		t.Error(err, out)
	}
	in := must(library.KrnTanhFx8(ctx, sums, sums))(t)
	if in != sums || !reflect.DeepEqual(elements(t, sums), elements(t, alone)) {
		t.Error(sums, alone)
	}
}

// Numbers become the nearest elements, ties to even, and saturate; kernels convert between types.
func TestQuantise(t *testing.T) {
	halves := must(mli.Quantise([]float64{0.5, 1.5, 2.5, -0.5, -2.5, 200, -200}, mli.FX_8, 0))(t)
	if got := elements(t, halves); !reflect.DeepEqual(got, []int{0, 2, 2, 0, -2, 127, -128}) {
		t.Error(got)
	}
	if bits := mli.FitFx([]float64{-1.5, 0.25}, mli.FX_16); bits != 14 {
		t.Error(bits)
	}
	library := must(mli.New(session, mli.Options{}))(t)
	source := must(mli.Fp([]float32{-1, 0, 0.5}))(t)
	params := &mli.SaParams{ZeroPoint: []int32{3}, Scale: []int32{1}, ScaleFracBits: []int32{4}}
	asymmetric := must(library.HlpConvertTensor(t.Context(), source, mli.EmptySa(3, mli.SA_8, params)))(t)
	if got := must(mli.Elements[int8](asymmetric))(t); !reflect.DeepEqual(got, []int8{-13, 3, 11}) {
		t.Error(got)
	}
	var refused *mli.Error
	_, err := library.HlpConvertTensorSafx(t.Context(), source, mli.EmptySa(3, mli.SA_8, params))
	if !errors.As(err, &refused) || refused.Kernel != "hlp_convert_tensor_safx" {
		t.Error(err) // it has no FP32
	}
	back := must(library.HlpConvertTensor(t.Context(), asymmetric, mli.EmptyFp(3)))(t)
	if got := must(mli.Dequantise(back))(t); !reflect.DeepEqual(got, []float64{-1, 0, 0.5}) {
		t.Error(got)
	}
}

// A status is an Error with field, value and limit; in a batch it says which kernel.
func TestStatuses(t *testing.T) {
	ctx := t.Context()
	library := must(mli.New(session, mli.Options{}))(t)
	x, weights := fixed(t, mli.FX_8, []int{1, 2, 3}, 4), fixed(t, mli.FX_8, []int{1, 2, 3, 4}, 4, 2, 2)
	bias := fixed(t, mli.FX_8, []int{1, 1}, 4)
	_, err := library.KrnFullyConnectedFx8(ctx, x, weights, bias, mli.Empty(2, mli.FX_8, 4))
	var refused *mli.Error
	if !errors.As(err, &refused) || refused.Status != mliv1.MliStatus_MLI_STATUS_SHAPE_MISMATCH ||
		refused.KernelIndex != -1 || refused.Refusal.Field == "" ||
		err.Error() != "mli_krn_fully_connected_fx8: "+refused.Refusal.Text {
		t.Error(err)
	}
	var out *mli.Tensor
	err = library.Batch(ctx, func() (err error) {
		if out, err = library.KrnTanhFx8(ctx, x, nil); err != nil {
			return err
		}
		_, err = library.KrnFullyConnectedFx8(ctx, x, weights, bias, mli.Empty(2, mli.FX_8, 4))
		return err
	})
	if !errors.As(err, &refused) || refused.KernelIndex != 1 || len(out.Shape()) != 1 {
		t.Error(err, out)
	}
}

// A value that is no tensor, or does not fit its shape, is refused before the wire.
func TestMistakes(t *testing.T) {
	ctx := t.Context()
	library := must(mli.New(session, mli.Options{}))(t)
	x := fixed(t, mli.FX_8, []int{1, 2, 3}, 4)
	second := func(_ any, err error) error { return err }
	null := "mli.Tensor(nil), expected a tensor"
	cfg := mli.RnnCellCfg{}
	for says, err := range map[string]error{
		"mli_krn_tanh_fx8: in: " + null:                second(library.KrnTanhFx8(ctx, nil, nil)),
		"mli_krn_fully_connected_fx8: out: " + null:    second(library.KrnFullyConnectedFx8(ctx, x, x, x, nil)),
		"mli_krn_lstm_cell_fx8: cell: " + null:         second(library.KrnLstmCellFx8(ctx, x, x, x, x, cfg, nil, nil)),
		"array: 3 elements, shape [2 2] has 4":         second(mli.Fx([]int8{1, 2, 3}, 4, 2, 2)),
		"values: NaN, expected finite numbers":         second(mli.Quantise([]float64{math.NaN()}, mli.FX_8, 4)),
		"elements: MLI_EL_FX_8, not of type []int16":   second(mli.Elements[int16](x)),
		"session: has no connection, expected one of":  second(mli.New(nil, mli.Options{})),
		"elType: MLI_EL_SA_8, expected MLI_EL_FX_8 or": second(mli.Quantise(nil, mli.SA_8, 4)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, expected %s", err, says)
		}
	}
}

// A tensor prints shape, type and parameters in one line.
func TestTensorPrints(t *testing.T) {
	for says, tensor := range map[string]*mli.Tensor{
		"mli.Tensor(3 MLI_EL_FX_16, 12 frac_bits)": fixed(t, mli.FX_16, []int{1, 2, 3}, 12),
		"mli.Tensor(2x3 MLI_EL_FP_32)":             must(mli.Fp(make([]float32, 6), 2, 3))(t),
	} {
		if got := fmt.Sprint(tensor); got != says {
			t.Errorf("%s, expected %s", got, says)
		}
	}
}
