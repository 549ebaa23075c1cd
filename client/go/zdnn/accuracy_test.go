// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"nnpa.dev/nnpa/zdnn"
)

const accuracyScript = "../../../tests/conformance/hosted_accuracy.py"

// measured is what the script prints.
type measured struct {
	Verdict string
	Drop    float64
	Table   []zdnn.AccuracyRun
	Report  map[string]any
	Probe   []zdnn.ProbeRun
}

// measuredByPython returns what the Python client measures; its interpreter is beside nnpa-server.
func measuredByPython(t *testing.T) (python measured) {
	t.Helper()
	program := must(exec.LookPath("nnpa-server"))(t)
	interpreter := filepath.Join(filepath.Dir(program), "python")
	printed, err := exec.Command(interpreter, accuracyScript, server, digits).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(printed, &python); err != nil {
		t.Fatal(err)
	}
	return python
}

// digitRows returns the data of the script, and their labels.
func digitRows() (map[string]zdnn.Array, []int64) {
	image, labels := make([]float32, 20*8*8), make([]int64, 20)
	for i := range image {
		image[i] = float32(i*7%23-11) / 32
	}
	for row := range labels {
		labels[row] = int64(row % 10)
	}
	return map[string]zdnn.Array{"image": {Data: image}}, labels
}

// Figures, the report, and what a probe finds are those of the Python client.
func TestAccuracyEqualsPythons(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, digits, zdnn.LoadOptions{}))(t)
	rows, labels := digitRows()
	nodes, drop := uint32(4), 0.5
	accuracy := must(net.MeasureAccuracy(ctx, rows, zdnn.AccuracyOptions{
		Labels: labels, BatchRows: 8, NodeRows: &nodes, Int8: true, MaxDrop: &drop,
		About: map[string]string{"data": "made up"}, HTML: true,
	}))(t)
	got := measured{Verdict: accuracy.Verdict, Drop: accuracy.Drop, Table: accuracy.Table}
	if err := json.Unmarshal([]byte(accuracy.JSON), &got.Report); err != nil {
		t.Fatal(err)
	}
	if about := got.Report["about"]; !reflect.DeepEqual(about, map[string]any{"data": "made up"}) {
		t.Error(about)
	}
	got.Report["about"] = map[string]any{}
	got.Probe = must(net.Probe(ctx, []uint32{1, 2}, "telum1"))(t)
	if expected := measuredByPython(t); !reflect.DeepEqual(got, expected) {
		t.Errorf("%+v\nexpected %+v", got, expected)
	}
	if fmt.Sprint(accuracy) != accuracy.Verdict || !strings.HasPrefix(accuracy.Text, accuracy.Verdict) ||
		!strings.HasPrefix(accuracy.HTML, "<!DOCTYPE html>") {
		t.Error(accuracy, accuracy.Text, accuracy.HTML[:100])
	}
}

// Rows without labels may have one axis more than an input; how they are batched changes no figure.
func TestAccuracyOfRuns(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{}))(t)
	data := make([]float32, 5*2*3)
	for i := range data {
		data[i] = float32(i) / 3
	}
	options := zdnn.AccuracyOptions{Machines: []string{"z16"}}
	whole := must(net.MeasureAccuracy(ctx, map[string]zdnn.Array{"x": {Data: data}}, options))(t)
	options.BatchRows = 2
	shaped := map[string]zdnn.Array{"x": {Data: data, Shape: []int64{5, 2, 3}}}
	batches := must(net.MeasureAccuracy(ctx, shaped, options))(t)
	if !reflect.DeepEqual(whole.Table, batches.Table) || len(whole.Table) != 1 ||
		whole.Table[0].Run != "telum1" || whole.Table[0].Accuracy != nil || *whole.Table[0].L2R == 0 {
		t.Errorf("%+v, %+v", whole.Table, batches.Table)
	}
	if whole.Drop != 0 || !strings.Contains(whole.Verdict, "over 5 rows, on Telum I") || whole.HTML != "" {
		t.Error(whole, whole.HTML)
	}
}

// What does not fit is refused before the wire, by its name.
func TestAccuracyMistakes(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{CName: "double"}))(t)
	x := func(count int, shape ...int64) map[string]zdnn.Array {
		return map[string]zdnn.Array{"x": {Data: make([]float32, count), Shape: shape}}
	}
	for says, of := range map[string]struct {
		rows    map[string]zdnn.Array
		options zdnn.AccuracyOptions
	}{
		"input x is missing, expected x float32[2 3]":           {rows: nil},
		"rows: got none, expected at least 1":                   {rows: x(0)},
		"input x: got 7 elements, expected [-1 2 3]":            {rows: x(7)},
		"input x: got float32 [2 3], expected float32 [-1 2 3]": {rows: x(6, 2, 3)},
		"labels: got 3 for 2 rows, expected as many for each":   {x(12), zdnn.AccuracyOptions{Labels: make([]int64, 3)}},
		"BatchRows: got 5000, expected 1 to 4096":               {x(12), zdnn.AccuracyOptions{BatchRows: 5000}},
		"input x: got []float64, expected float32 ([]float32)":  {rows: map[string]zdnn.Array{"x": {Data: []float64{1}}}},
	} {
		if _, err := net.MeasureAccuracy(ctx, of.rows, of.options); err == nil || err.Error() != says {
			t.Errorf("%v, expected %s", err, says)
		}
	}
	if _, err := net.Probe(ctx, nil, "z15"); err == nil || !strings.Contains(err.Error(), "machines") {
		t.Error(err)
	}
	if err := net.Close(); err != nil {
		t.Fatal(err)
	}
	_, measureErr := net.MeasureAccuracy(ctx, x(6), zdnn.AccuracyOptions{})
	_, probeErr := net.Probe(ctx, nil)
	for _, err := range []error{measureErr, probeErr} {
		if err == nil || err.Error() != "network double: is closed, Session.Load loads it again" {
			t.Error(err)
		}
	}
}
