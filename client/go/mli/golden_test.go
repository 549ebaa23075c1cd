// SPDX-License-Identifier: Apache-2.0

package mli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
	"nnpa.dev/nnpa/mli"
)

const golden = "../../../tests/vectors/mli"

type (
	tensor         = *mli.Tensor
	fullyConnected = func(ctx context.Context, in, weights, bias, out tensor) (tensor, error)
	basicRnnCell   = func(
		ctx context.Context, in, prevOut, weights, bias tensor, cfg mli.RnnCellCfg, out tensor,
	) (tensor, error)
	lstmCell = func(
		ctx context.Context, in, prevOut, weights, bias tensor, cfg mli.RnnCellCfg, cell, out tensor,
	) (tensor, error)
	activation = func(ctx context.Context, in, out tensor) (tensor, error)
)

// record describes a tensor of a reference case; runs of equal values may be run-length coded.
type record struct {
	Shape     []uint32
	FracBits  int32    `json:"frac_bits"`
	MemStride []uint32 `json:"mem_stride"`
	Data      []int
	DataRle   [][2]int `json:"data_rle"`
}

// reference is a reference case; which fields there are depends on the kernel.
type reference struct {
	Mode, Act         string
	In, Weights, Bias record
	PrevOut           record `json:"prev_out"`
	Cell              record
	OutFracBits       int32 `json:"out_frac_bits"`
	OutFracBitsBefore int32 `json:"out_frac_bits_before"`
	Out               record
	DataUp            []int  `json:"out_data_round_up"`
	CellAfter         []int  `json:"cell_data_after"`
	CellAfterUp       []int  `json:"cell_data_after_round_up"`
	IrAfter           record `json:"ir_after"`
}

// curve is a reference case of an activation.
type curve struct {
	InFracBits  int32 `json:"in_frac_bits"`
	OutFracBits int32 `json:"out_frac_bits"`
	Out         []int
	OutUp       []int `json:"out_round_up"`
}

type table[C any] struct {
	InData []int `json:"in_data"`
	Cases  []C
}

func load[C any](t *testing.T, name string) table[C] {
	t.Helper()
	var cases table[C]
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(golden, name+".json")))(t), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// fixed returns a tensor of a type with these elements.
func fixed(t *testing.T, kind mliv1.ElType, data []int, fracBits int32, shape ...uint32) *mli.Tensor {
	t.Helper()
	narrow, wide := make([]int8, len(data)), make([]int16, len(data))
	for i, element := range data {
		narrow[i], wide[i] = int8(element), int16(element)
	}
	if kind == mli.FX_8 {
		return must(mli.Fx(narrow, fracBits, shape...))(t)
	}
	return must(mli.Fx(wide, fracBits, shape...))(t)
}

func (r record) tensor(t *testing.T, kind mliv1.ElType) *mli.Tensor {
	t.Helper()
	data := r.Data
	for _, run := range r.DataRle {
		for range run[1] {
			data = append(data, run[0])
		}
	}
	return fixed(t, kind, data, r.FracBits, r.Shape...)
}

// elements returns the elements of a fixed-point tensor.
func elements(t *testing.T, tensor *mli.Tensor) []int {
	t.Helper()
	var numbers []int
	if tensor.ElType() == mli.FX_8 {
		for _, element := range must(mli.Elements[int8](tensor))(t) {
			numbers = append(numbers, int(element))
		}
		return numbers
	}
	for _, element := range must(mli.Elements[int16](tensor))(t) {
		numbers = append(numbers, int(element))
	}
	return numbers
}

// check compares a tensor with a record, whose data are others where the rounding gives others.
func check(t *testing.T, what string, got *mli.Tensor, expected record, rounded []int) {
	t.Helper()
	data := expected.Data
	if rounded != nil {
		data = rounded
	}
	if !reflect.DeepEqual(got.Shape(), expected.Shape) || got.FracBits() != expected.FracBits ||
		!reflect.DeepEqual(elements(t, got), data) {
		t.Fatalf("%s: %v %v, expected %v %v", what, got, elements(t, got), expected, data)
	}
}

// both runs a test with convergent rounding, then up.
func both(t *testing.T, test func(library *mli.Library, isUp bool)) {
	t.Helper()
	for _, rounding := range []mliv1.Rounding{mliv1.Rounding_ROUNDING_CONVERGENT, mliv1.Rounding_ROUNDING_UP} {
		build := &mliv1.BuildOptions{Rounding: rounding}
		library := must(mli.New(session, mli.Options{Build: build}))(t)
		test(library, rounding == mliv1.Rounding_ROUNDING_UP)
	}
}

func configuration(c reference) mli.RnnCellCfg {
	return mli.RnnCellCfg{
		Mode: mliv1.RnnMode(mliv1.RnnMode_value["RNN_"+strings.ToUpper(c.Mode)]),
		Act:  mliv1.RnnOutActivation(mliv1.RnnOutActivation_value["RNN_ACT_"+strings.ToUpper(c.Act)]),
	}
}

type variant struct {
	name        string
	io, weights mliv1.ElType
}

var variants = []variant{
	{"fx8", mli.FX_8, mli.FX_8}, {"fx16", mli.FX_16, mli.FX_16}, {"fx8w16d", mli.FX_16, mli.FX_8},
}

// Fully connected layers have the reference's values, shape and fractional bits, in both roundings.
func TestGoldenFullyConnected(t *testing.T) {
	ctx := t.Context()
	for _, v := range variants {
		count := 0
		cases := load[reference](t, "v1_fully_connected_"+v.name).Cases
		both(t, func(library *mli.Library, isUp bool) {
			kernel := map[string]fullyConnected{
				"fx8": library.KrnFullyConnectedFx8, "fx16": library.KrnFullyConnectedFx16,
				"fx8w16d": library.KrnFullyConnectedFx8w16d,
			}[v.name]
			for i, c := range cases {
				stride := c.Weights.MemStride
				if len(stride) > 0 && stride[0] != 0 && stride[0] != c.Weights.Shape[1] {
					continue // rows that lie apart, which those of this package's tensors do not
				}
				count++
				out := mli.Empty(int(c.Weights.Shape[0]), v.io, c.OutFracBits)
				out, err := kernel(ctx, c.In.tensor(t, v.io), c.Weights.tensor(t, v.weights),
					c.Bias.tensor(t, v.weights), out)
				if err != nil {
					t.Fatal(err)
				}
				var rounded []int
				if isUp {
					rounded = c.DataUp
				}
				check(t, fmt.Sprint(v.name, i), out, c.Out, rounded)
			}
		})
		if count < 80 {
			t.Errorf("%s: %d runs", v.name, count)
		}
	}
}

// Basic RNN cells have the reference's values, shape and fractional bits, in both roundings.
func TestGoldenBasicRnn(t *testing.T) {
	ctx := t.Context()
	for _, v := range variants {
		cases := load[reference](t, "v1_basic_rnn_"+v.name).Cases
		both(t, func(library *mli.Library, isUp bool) {
			kernel := map[string]basicRnnCell{
				"fx8": library.KrnBasicRnnCellFx8, "fx16": library.KrnBasicRnnCellFx16,
				"fx8w16d": library.KrnBasicRnnCellFx8w16d,
			}[v.name]
			for i, c := range cases {
				out := mli.Empty(len(c.Out.Data), v.io, c.OutFracBitsBefore)
				out, err := kernel(ctx, c.In.tensor(t, v.io), c.PrevOut.tensor(t, v.io),
					c.Weights.tensor(t, v.weights), c.Bias.tensor(t, v.weights), configuration(c), out)
				if err != nil {
					t.Fatal(err)
				}
				var rounded []int
				if isUp {
					rounded = c.DataUp
				}
				check(t, fmt.Sprint(v.name, i), out, c.Out, rounded)
			}
		})
		if len(cases) < 75 {
			t.Errorf("%s: %d cases", v.name, len(cases))
		}
	}
}

// LSTM cells have the reference's output, cell and intermediate results, in both roundings.
func TestGoldenLstm(t *testing.T) {
	ctx := t.Context()
	for _, v := range variants {
		cases := load[reference](t, "v1_lstm_"+v.name).Cases
		both(t, func(library *mli.Library, isUp bool) {
			kernel := map[string]lstmCell{
				"fx8": library.KrnLstmCellFx8, "fx16": library.KrnLstmCellFx16,
				"fx8w16d": library.KrnLstmCellFx8w16d,
			}[v.name]
			for i, c := range cases {
				cell, cfg := c.Cell.tensor(t, v.io), configuration(c)
				cfg.IrTsr = mli.Empty(4*len(c.CellAfter), v.io, 0)
				out, err := kernel(ctx, c.In.tensor(t, v.io), c.PrevOut.tensor(t, v.io),
					c.Weights.tensor(t, v.weights), c.Bias.tensor(t, v.weights), cfg, cell, nil)
				if err != nil {
					t.Fatal(err)
				}
				var rounded []int
				after := c.CellAfter
				if isUp {
					rounded = c.DataUp
					if c.CellAfterUp != nil {
						after = c.CellAfterUp
					}
				} else {
					check(t, fmt.Sprint(v.name, i, " ir"), cfg.IrTsr, c.IrAfter, nil)
				}
				check(t, fmt.Sprint(v.name, i), out, c.Out, rounded)
				if !reflect.DeepEqual(elements(t, cell), after) {
					t.Fatal(v.name, i, elements(t, cell), after)
				}
			}
		})
		if len(cases) < 77 {
			t.Errorf("%s: %d cases", v.name, len(cases))
		}
	}
}

// Tanh and sigmoid have the reference's values for every input of the files, in both roundings.
func TestGoldenActivations(t *testing.T) {
	ctx := t.Context()
	for _, kind := range []mliv1.ElType{mli.FX_8, mli.FX_16} {
		both(t, func(library *mli.Library, isUp bool) {
			kernels := map[string]activation{
				"v1_tanh_fx8": library.KrnTanhFx8, "v1_sigm_fx8": library.KrnSigmFx8,
			}
			if kind == mli.FX_16 {
				kernels = map[string]activation{
					"v1_tanh_fx16": library.KrnTanhFx16, "v1_sigm_fx16": library.KrnSigmFx16,
				}
			}
			for file, kernel := range kernels {
				cases := load[curve](t, file)
				inputs := cases.InData
				for i := -128; cases.InData == nil && i < 128; i++ {
					inputs = append(inputs, i)
				}
				for _, c := range cases.Cases {
					out := must(kernel(ctx, fixed(t, kind, inputs, c.InFracBits), nil))(t)
					expected := c.Out
					if isUp && c.OutUp != nil {
						expected = c.OutUp
					}
					if out.FracBits() != c.OutFracBits || !reflect.DeepEqual(elements(t, out), expected) {
						t.Fatal(file, out, c)
					}
				}
			}
		})
	}
}
