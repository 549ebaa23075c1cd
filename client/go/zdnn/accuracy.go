// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"reflect"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
)

const (
	maxBatchRows  = 4096 // source: MeasureAccuracyRequest.batch_rows
	maxBatchBytes = 8 << 20
	maxBatchSpace = 512 << 20 // bytes of sticks
	textBytes     = 8         // that a text counts in the size of a row
)

// AccuracyOptions say how to measure; see the comments of MeasureAccuracyRequest in the wire contract.
type AccuracyOptions struct {
	// Labels are what the answers should be, as many for each row as some output has answers.
	Labels []int64
	// Machines to measure; nil is both Telums.
	Machines []string
	// BatchRows are the rows of a request, 1 to 4096; 0 is a number by the size of a row.
	BatchRows int
	// NodeRows are how many of the first rows are measured node by node, 0 to 1024; nil is 16.
	NodeRows *uint32
	// Int8 measures as well what becomes of the model on Telum II with constant matrices in INT8.
	Int8 bool
	// MaxDrop is the loss, as a share, that the verdict compares with; nil is none.
	MaxDrop *float64
	// HTML makes the page as well.
	HTML bool
	// About are lines of the report that only the caller knows, such as the name of the data.
	About map[string]string
}

// Accuracy says what DLFLOAT16 does to a model.
type Accuracy struct {
	// Verdict is the sentence that answers.
	Verdict string
	// Drop is what the worst machine loses: accuracy, or without labels the share of answers.
	Drop float64
	// Table has figures side by side: FP32 where there are labels, each machine, and INT8.
	Table []AccuracyRun
	// JSON is the whole report, with the keys of `nnpa network validate --json`.
	JSON string
	// Text and HTML are the report for people; HTML is empty unless asked for.
	Text, HTML string
}

// AccuracyRun has the figures of FP32 or of one machine.
type AccuracyRun struct {
	// Run is "FP32", a machine, or a machine with "int8".
	Run string
	// Accuracy and Top5 are shares of the labels, nil without them.
	Accuracy, Top5 *float64
	// Drop is the loss beside FP32, Changed counts rows whose answer turned.
	Drop    float64
	Changed uint64
	// L2R is the largest relative error of the outputs, nil where none has numbers.
	L2R *float64
}

// String returns the verdict.
func (a *Accuracy) String() string { return a.Verdict }

// dataset holds the rows of all inputs: arrays whose first axis is that of the rows.
type dataset struct {
	ports  []*networkv1.Port
	arrays []Array
	rows   int
}

// MeasureAccuracy runs the network and its model in FP32 over rows and says how far they are apart. Rows
// have an array for each input, with one axis more than the input, or, where its first dim is free, with
// that as the axis of rows. They are sent in batches.
func (n *Network) MeasureAccuracy(
	ctx context.Context, rows map[string]Array, options AccuracyOptions,
) (*Accuracy, error) {
	data, err := n.dataset(rows, options.Labels)
	if err != nil {
		return nil, err
	}
	size := options.BatchRows
	if size == 0 {
		if size, err = n.batchRows(ctx, data); err != nil {
			return nil, err
		}
	}
	if size < 1 || size > maxBatchRows {
		return nil, fmt.Errorf("BatchRows: got %d, expected 1 to %d", size, maxBatchRows)
	}
	measurements, err := n.measureRows(ctx, data, options, size)
	if err != nil {
		return nil, err
	}
	request := n.measuring(options, size)
	request.Measurements, request.Html = measurements, options.HTML
	request.MaxDrop, request.About = options.MaxDrop, options.About
	answer, err := n.measure(ctx, request)
	if err != nil {
		return nil, err
	}
	return newAccuracy(answer)
}

// measureRows sends all rows, in batches, and returns what the server measured over them.
func (n *Network) measureRows(
	ctx context.Context, data *dataset, options AccuracyOptions, size int,
) (measurements []byte, err error) {
	for first := 0; first < data.rows; first += size {
		request := n.measuring(options, size)
		request.FirstRow, request.Measurements = uint64(first), measurements
		request.OnlyMeasurements = true
		if err := data.fill(request, options.Labels, first, min(first+size, data.rows)); err != nil {
			return nil, err
		}
		answer, err := n.measure(ctx, request)
		if err != nil {
			return nil, err
		}
		measurements = answer.Measurements
	}
	return measurements, nil
}

func (n *Network) measuring(options AccuracyOptions, size int) *networkv1.MeasureAccuracyRequest {
	return &networkv1.MeasureAccuracyRequest{
		Session: n.session.message.Name, Network: n.message.Name, Machines: options.Machines,
		BatchRows: uint32(size), NodeRows: options.NodeRows, Int8: options.Int8,
	}
}

func (n *Network) measure(
	ctx context.Context, request *networkv1.MeasureAccuracyRequest,
) (*networkv1.MeasureAccuracyResponse, error) {
	answer, err := n.api.MeasureAccuracy(n.session.WithTicket(ctx), request)
	if err != nil {
		return nil, n.session.explain(ctx, err)
	}
	return answer, nil
}

// dataset returns the rows of all inputs, or the error of what is missing, unknown or does not fit.
func (n *Network) dataset(inputs map[string]Array, labels []int64) (*dataset, error) {
	if err := n.expect(inputs); err != nil {
		return nil, err
	}
	data := &dataset{}
	for _, port := range n.message.Inputs {
		array := inputs[port.Name]
		port = rowsPort(port, array.Shape)
		shape, err := shapeOf(port, array)
		if err != nil {
			return nil, err
		}
		rows := int(shape[0])
		if len(data.ports) > 0 && rows != data.rows {
			return nil, fmt.Errorf("input %s: got %d rows, expected %d, as of %s",
				port.Name, rows, data.rows, data.ports[0].Name)
		}
		data.ports, data.rows = append(data.ports, port), rows
		data.arrays = append(data.arrays, Array{Data: array.Data, Shape: shape})
	}
	switch {
	case data.rows == 0:
		return nil, errors.New("rows: got none, expected at least 1")
	case len(labels)%data.rows != 0:
		return nil, fmt.Errorf("labels: got %d for %d rows, expected as many for each", len(labels), data.rows)
	}
	return data, nil
}

// rowsPort returns an input over rows: its first dim where that is free, else one dim more.
func rowsPort(port *networkv1.Port, shape []int64) *networkv1.Port {
	own := len(port.Shape) > 0 && port.Shape[0] < 0
	if own && (shape == nil || len(shape) == len(port.Shape)) {
		return port
	}
	return &networkv1.Port{Name: port.Name, Dtype: port.Dtype, Shape: append([]int64{-1}, port.Shape...)}
}

// fill puts rows and their labels into a request.
func (d *dataset) fill(request *networkv1.MeasureAccuracyRequest, labels []int64, first, last int) error {
	for i, port := range d.ports {
		named, err := encode(port, d.arrays[i].part(first, last))
		if err != nil {
			return err
		}
		request.Rows = append(request.Rows, named)
	}
	if len(labels) == 0 {
		return nil
	}
	each := len(labels) / d.rows
	port := &networkv1.Port{Dtype: "int64", Shape: []int64{int64(last - first), int64(each)}}
	named, err := encode(port, Array{Data: labels[first*each : last*each]})
	request.Labels = named
	return err
}

// part returns rows of an array, first included, last not.
func (a Array) part(first, last int) Array {
	elements := reflect.ValueOf(a.Data)
	each := elements.Len() / int(a.Shape[0])
	return Array{
		Data:  elements.Slice(first*each, last*each).Interface(),
		Shape: append([]int64{int64(last - first)}, a.Shape[1:]...),
	}
}

// batchRows returns a power of two by the bytes of a row, and by what a run of it takes for sticks.
func (n *Network) batchRows(ctx context.Context, data *dataset) (int, error) {
	report, err := n.Report(ctx)
	if err != nil {
		return 0, err
	}
	row, declared := int64(0), int64(0)
	for i, port := range n.message.Inputs {
		count, bytes := int64(1), elementBytes(port.Dtype)
		for _, size := range port.Shape {
			count *= max(size, 1)
		}
		row += int64(reflect.ValueOf(data.arrays[i].Data).Len()/data.rows) * bytes
		declared += max(count, 1) * bytes
	}
	space := int64(report.GetActivations().GetChannels()) * max(1, row/max(declared, 1))
	most := min(maxBatchRows, maxBatchBytes/max(row, 1), maxBatchSpace/max(space, 1))
	return 1 << (bits.Len64(uint64(max(most, 1))) - 1), nil
}

func elementBytes(dtype string) int64 {
	if dtype == textType {
		return textBytes
	}
	return int64(elementType(dtype).Size())
}

// accuracyReport has what Accuracy takes of a report's JSON.
type accuracyReport struct {
	Verdict string
	Fp32    *labelled
	Runs    []struct {
		Machine, Numbers string
		Drop             *float64
		Changed          uint64
		Labels           *labelled
		Outputs          []struct{ L2r *float64 }
	}
}

type labelled struct{ Accuracy, Top5 *float64 }

func newAccuracy(answer *networkv1.MeasureAccuracyResponse) (*Accuracy, error) {
	var report accuracyReport
	if err := json.Unmarshal([]byte(answer.Json), &report); err != nil {
		return nil, fmt.Errorf("the report of the server: %w", err)
	}
	accuracy := &Accuracy{Verdict: report.Verdict, JSON: answer.Json, Text: answer.Text, HTML: answer.Html}
	if report.Fp32 != nil {
		accuracy.Table = append(accuracy.Table,
			AccuracyRun{Run: "FP32", Accuracy: report.Fp32.Accuracy, Top5: report.Fp32.Top5, L2R: new(float64)})
	}
	for _, run := range report.Runs {
		if run.Drop == nil { // a run whose values beyond DLFLOAT16 do not saturate
			continue
		}
		row := AccuracyRun{Run: run.Machine, Drop: *run.Drop, Changed: run.Changed}
		if run.Labels != nil {
			row.Accuracy, row.Top5 = run.Labels.Accuracy, run.Labels.Top5
		}
		for _, output := range run.Outputs {
			if output.L2r != nil && (row.L2R == nil || *output.L2r > *row.L2R) {
				row.L2R = output.L2r
			}
		}
		if run.Numbers == "dlfloat16" {
			accuracy.Drop = max(accuracy.Drop, row.Drop)
		} else {
			row.Run += " int8"
		}
		accuracy.Table = append(accuracy.Table, row)
	}
	return accuracy, nil
}
