// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
	"nnpa.dev/nnpa/zdnn"
)

const (
	digits  = "../../python/nnpa_client/networks/digits_cnn.onnx"
	double  = "../examples/network/testdata/double.onnx"
	scripts = "../../../tests/conformance"
)

var doubled = []float32{2, 4, 6, 8, 10, 12}

// x returns the input of double.onnx.
func x() map[string]zdnn.Array {
	return map[string]zdnn.Array{"x": {Data: []float32{1, 2, 3, 4, 5, 6}}}
}

// output is an output as the script prints it.
type output struct {
	Shape []int64
	Words []string
}

// printedByPython decodes the JSON that a script prints; its interpreter is beside nnpa-server.
func printedByPython(t *testing.T, answer any, script string, more ...string) {
	t.Helper()
	program := must(exec.LookPath("nnpa-server"))(t)
	python := filepath.Join(filepath.Dir(program), "python")
	arguments := append([]string{filepath.Join(scripts, script), server, digits}, more...)
	printed := must(exec.Command(python, arguments...).Output())(t)
	if err := json.Unmarshal(printed, answer); err != nil {
		t.Fatal(err)
	}
}

// Outputs equal the Python client's, bit for bit, on both Telums.
func TestNetworkOutputsEqualPythons(t *testing.T) {
	for _, machine := range []string{"telum1", "telum2"} {
		ctx, s := open(t, zdnn.Options{Machine: machine})
		net := must(s.LoadFile(ctx, digits, zdnn.LoadOptions{}))(t)
		image := make([]float32, 2*8*8)
		for i := range image {
			image[i] = float32(i*7%23-11) / 32
		}
		outputs := must(net.Run(ctx, map[string]zdnn.Array{"image": {Data: image}}))(t)
		got := map[string]output{}
		for name, array := range outputs {
			var words []string
			for _, number := range array.Data.([]float32) {
				words = append(words, fmt.Sprintf("%08X", math.Float32bits(number)))
			}
			got[name] = output{array.Shape, words}
		}
		var expected map[string]output
		printedByPython(t, &expected, "hosted_outputs.py", machine)
		if !reflect.DeepEqual(got, expected) {
			t.Errorf("%s: %v, expected %v", machine, got, expected)
		}
	}
}

// A model comes from a file, as bytes, or by the name under which it is published.
func TestNetworkSources(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	model := must(os.ReadFile(double))(t)
	name := fmt.Sprintf("double-go-%d", os.Getpid())
	first := must(s.Load(ctx, model, zdnn.LoadOptions{PublishAs: name}))(t)
	second := must(s.LoadPublished(ctx, name, zdnn.LoadOptions{CName: "second"}))(t)
	if first.ModelSignature() != second.ModelSignature() || second.CName() != "second" {
		t.Error(first, second)
	}
	for _, net := range []*zdnn.Network{first, second, must(s.LoadFile(ctx, double, zdnn.LoadOptions{}))(t)} {
		y := must(net.Run(ctx, x()))(t)["y"]
		if !reflect.DeepEqual(y, zdnn.Array{Data: doubled, Shape: []int64{2, 3}}) {
			t.Error(y)
		}
	}
}

// A network and its report print themselves in one line, without the session's name.
func TestNetworkPrints(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{CName: "double"}))(t)
	for _, printed := range []string{net.String(), fmt.Sprintf("%+v", net), fmt.Sprintf("%#v", net)} {
		if printed != "Network(double on telum2: x float32[2 3] -> y float32[2 3])" {
			t.Error(printed)
		}
	}
	report := must(net.Report(ctx))(t)
	if fmt.Sprint(report) !=
		"NetworkReport(double on telum2: 1 nodes on the accelerator, 0 on the host, 0 folded)" {
		t.Error(report)
	}
	node := report.Nodes[0]
	if node.Device != "accelerator" || !reflect.DeepEqual(node.Functions, []string{"add"}) {
		t.Error(node)
	}
}

// Infer counts calls and warns of nothing; Run warns once of a violation, beside its outputs.
func TestNetworkViolations(t *testing.T) {
	var warnings []*zdnn.ZdnnWarning
	refused := errors.New("no violations here")
	ctx, s := open(t, zdnn.Options{Warn: func(warning *zdnn.ZdnnWarning) error {
		warnings = append(warnings, warning)
		return refused
	}})
	options := zdnn.LoadOptions{Overflow: networkv1.Overflow_OVERFLOW_NINF}
	net := must(s.LoadFile(ctx, double, options))(t)
	inference := must(net.Infer(ctx, x()))(t)
	if inference.Calls["add"] != 1 || inference.Nans["y"] != 0 || len(inference.Violations) != 0 {
		t.Error(inference)
	}
	large := map[string]zdnn.Array{"x": {Data: []float32{8e9, 8e9, 8e9, 8e9, 8e9, 8e9}}}
	if inference = must(net.Infer(ctx, large))(t); len(inference.Violations) == 0 || len(warnings) != 0 {
		t.Error(inference, warnings)
	}
	outputs, err := net.Run(ctx, large)
	if !errors.Is(err, refused) || len(warnings) != 1 || outputs["y"].Data == nil ||
		!strings.HasPrefix(warnings[0].Error(), "zdnn_add (node ") {
		t.Error(outputs, err, warnings)
	}
}

// A wrong name, type or shape is refused before the wire, and the error names the expected one.
func TestNetworkInputs(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{}))(t)
	data := []float32{1, 2, 3, 4, 5, 6}
	for says, inputs := range map[string]map[string]zdnn.Array{
		"inputs: got z, expected x":                            {"x": {Data: data}, "z": {Data: data}},
		"input x is missing, expected x float32[2 3]":          {},
		"input x: got []float64, expected float32 ([]float32)": {"x": {Data: make([]float64, 6)}},
		"input x: got <nil>, expected float32 ([]float32)":     {"x": {}},
		"input x: got 5 elements, expected [2 3]":              {"x": {Data: data[1:]}},
		"input x: got float32 [3 2], expected float32 [2 3]":   {"x": {Data: data, Shape: []int64{3, 2}}},
		"input x: 5 elements do not fill shape [2 3]":          {"x": {Data: data[1:], Shape: []int64{2, 3}}},
		"input x: got float32 [2 3 1], expected float32 [2 3]": {"x": {Data: data, Shape: []int64{2, 3, 1}}},
	} {
		if _, err := net.Run(ctx, inputs); err == nil || err.Error() != says {
			t.Errorf("%v, expected %s", err, says)
		}
	}
}

// Elements that do not fill the one free dim of an input are refused before the wire.
func TestNetworkFreeDim(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, digits, zdnn.LoadOptions{}))(t)
	_, err := net.Run(ctx, map[string]zdnn.Array{"image": {Data: make([]float32, 65)}})
	if err == nil || err.Error() != "input image: got 65 elements, expected [-1 1 8 8]" {
		t.Error(err)
	}
}

// A closed network refuses to run; Close may be repeated, and may follow the session's.
func TestNetworkClosed(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{CName: "gone"}))(t)
	late := must(s.LoadFile(ctx, double, zdnn.LoadOptions{}))(t)
	if err := errors.Join(net.Close(), net.Close()); err != nil {
		t.Fatal(err)
	}
	_, runErr := net.Run(ctx, x())
	_, reportErr := net.Report(ctx)
	for _, err := range []error{runErr, reportErr} {
		if err == nil || err.Error() != "network gone: is closed, Session.Load loads it again" {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Close(), late.Close()); err != nil {
		t.Error(err)
	}
}

// Bytes that are no model are a TransportError; a refusal of the client API is a NetworkError with ST's
// names.
func TestNetworkRefusals(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	_, err := s.Load(ctx, []byte{1, 2, 3}, zdnn.LoadOptions{})
	var failure *zdnn.TransportError
	if !errors.As(err, &failure) || failure.Reason != "MODEL_INVALID" {
		t.Error(err)
	}
	options := zdnn.LoadOptions{CName: "twice"}
	must(s.LoadFile(ctx, double, options))(t)
	_, err = s.LoadFile(ctx, double, options)
	var refusal *zdnn.NetworkError
	if !errors.As(err, &refusal) || refusal.Code != networkv1.AiErrorCode_AI_ERROR_CODE_IN_USE ||
		!strings.HasPrefix(err.Error(), "AI_ERROR_CREATE_FAILED / AI_ERROR_CODE_IN_USE (0x33, 0x40): ") {
		t.Error(err)
	}
	if _, err = s.LoadFile(ctx, "no.onnx", options); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
