// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

type vector struct {
	Name        string                     `json:"name"`
	Arguments   map[string]json.RawMessage `json:"arguments"`
	MachineSpec json.RawMessage            `json:"machine_spec"`
	Library     string                     `json:"library"`
	Precheck    bool                       `json:"precheck"`
	Tensors     map[uint64]structure       `json:"tensors"`
	Steps       []step                     `json:"steps"`
}

type structure struct {
	Pre           descriptor `json:"pre_transformed_desc"`
	Transformed   descriptor `json:"transformed_desc"`
	BufferSize    uint64     `json:"buffer_size"`
	IsTransformed bool       `json:"is_transformed"`
	RecScale      float32    `json:"rec_scale"`
	Offset        float32    `json:"offset"`
	Memory        *string    `json:"memory"`
}

type step struct {
	MachineSpec json.RawMessage            `json:"machine_spec"`
	Operation   map[string]json.RawMessage `json:"operation"`
	Data        []string                   `json:"data"`
}

// program is a session and the ztensors that the vector has named.
type program struct {
	session *zdnn.Session
	named   map[uint64]*zdnn.Ztensor
	warning *zdnn.ZdnnWarning
}

// shifted returns the name of the first flag that says that a buffer is not on 4 KiB.
func shifted(steps []step) string {
	for _, step := range steps {
		for name := range step.Operation {
			if strings.HasSuffix(name, "_misaligned") {
				return name
			}
		}
	}
	return ""
}

// runVector runs one vector in a session of its own.
func runVector(ctx context.Context, target string, line *vector) (reply answer, err error) {
	if name := shifted(line.Steps); name != "" {
		return answer{"skipped": name + ": the SDK's buffers are the server's, on 4 KiB"}, nil
	}
	spec := &zdnn.MachineSpec{}
	if err := protojson.Unmarshal(line.MachineSpec, spec); err != nil {
		return nil, err
	}
	p := &program{named: map[uint64]*zdnn.Ztensor{}}
	p.session, err = zdnn.Connect(ctx, target, zdnn.Options{
		MachineSpec: spec, Library: line.Library, Precheck: line.Precheck,
		Warn: func(warning *zdnn.ZdnnWarning) error {
			p.warning = warning
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.session.Close()) }()
	steps, err := p.steps(ctx, line)
	return answer{"steps": steps}, err
}

func (p *program) steps(ctx context.Context, line *vector) (answers []answer, err error) {
	answers = []answer{}
	for id, tensor := range line.Tensors {
		if p.named[id], err = p.put(ctx, &tensor); err != nil {
			return nil, err
		}
	}
	for i := range line.Steps {
		stepAnswer, err := p.step(ctx, &line.Steps[i])
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		answers = append(answers, stepAnswer)
	}
	return answers, nil
}

func (p *program) put(ctx context.Context, tensor *structure) (*zdnn.Ztensor, error) {
	var sticks []byte
	if tensor.Memory != nil {
		var err error
		if sticks, err = bytesOf(*tensor.Memory); err != nil {
			return nil, err
		}
	}
	return p.session.PutZtensor(ctx, &zdnnv1.Ztensor{
		PreTransformedDesc: tensor.Pre.message(), TransformedDesc: tensor.Transformed.message(),
		BufferSize: &tensor.BufferSize, IsTransformed: tensor.IsTransformed,
		RecScale: tensor.RecScale, Offset: tensor.Offset,
	}, sticks)
}

// step makes one call, or moves the guest, and returns the observations.
func (p *program) step(ctx context.Context, line *step) (answer, error) {
	if line.MachineSpec != nil {
		spec := &zdnn.MachineSpec{}
		if err := protojson.Unmarshal(line.MachineSpec, spec); err != nil {
			return nil, err
		}
		changes := &zdnnv1.Session{MachineSpec: spec}
		return answer{}, p.session.Update(ctx, changes, "machine_spec")
	}
	for name, fields := range line.Operation {
		a := &arguments{named: p.named, outputs: map[string]*zdnn.Ztensor{}}
		if err := json.Unmarshal(fields, &a.fields); err != nil {
			return nil, err
		}
		for _, text := range line.Data {
			array, err := bytesOf(text)
			if err != nil {
				return nil, err
			}
			a.data = append(a.data, array)
		}
		return p.call(ctx, name, a)
	}
	return nil, errors.New("operation: empty")
}

func (p *program) call(ctx context.Context, name string, a *arguments) (answer, error) {
	p.warning = nil
	err := p.run(ctx, name, a)
	if a.problem != nil {
		return nil, a.problem
	}
	reply := answer{}
	var refused *zdnn.ZdnnError
	var check *zdnn.ProgramCheck
	var transport *zdnn.TransportError
	switch {
	case errors.As(err, &check):
		return answer{"error": "PROGRAM_CHECK"}, nil
	case errors.As(err, &transport):
		return answer{"error": transport.Reason}, nil
	case errors.As(err, &refused):
		refuse(reply, refused)
		a.out = refused.Result.GetData()
	case err != nil:
		return nil, err
	case p.warning != nil:
		reply["status"] = uint32(p.warning.Status)
		explain(reply, p.warning.Violation)
	case a.value != nil:
		reply["value"] = a.value
	case name == "getrange_ztensor":
		least, greatest := math.Float32bits(a.least), math.Float32bits(a.greatest)
		reply["range"] = []string{fmt.Sprintf("%08X", least), fmt.Sprintf("%08X", greatest)}
		reply["status"] = 0
	default:
		reply["status"] = 0
	}
	return reply, p.look(ctx, name, a, reply)
}

func refuse(reply answer, refused *zdnn.ZdnnError) {
	reply["status"] = uint32(refused.Status)
	if refused.Refusal != nil {
		reply["refusal"] = refused.Refusal.Constraint
	}
	explain(reply, refused.Violation)
}

// run calls the verb. The verbs of a ztensor's life are called here by name.
func (p *program) run(ctx context.Context, name string, a *arguments) (err error) {
	pre, tfrmd := a.descriptor("pre_transformed_desc"), a.descriptor("transformed_desc")
	var id uint64
	switch name {
	case "init_ztensor":
		a.read("ztensor", &id)
		p.named[id] = p.session.InitZtensor(pre, tfrmd)
		return nil
	case "init_quantized_ztensor":
		a.read("ztensor", &id)
		scale, offset := a.float("scale"), a.float("offset")
		p.named[id] = p.session.InitQuantizedZtensor(pre, tfrmd, scale, offset)
		return nil
	case "allochelper_ztensor":
		return zdnn.AllochelperZtensor(ctx, a.ztensor("ztensor"))
	case "free_ztensor_buffer":
		return zdnn.FreeZtensorBuffer(ctx, a.ztensor("ztensor"))
	}
	err = verbs[name](ctx, p.session, a)
	for operand, z := range a.outputs {
		var named reference
		if a.read(operand, &named); named.NewID != 0 && z != nil {
			p.named[named.NewID] = z
		}
	}
	return err
}

// look adds the state of arrays, flags and ztensors after the call.
func (p *program) look(ctx context.Context, name string, a *arguments, reply answer) error {
	flagged := a.ztensor("ztensor")
	if flagged != nil && a.out != nil {
		reply["data_out"] = wordsOf(a.out, cellBytes(flagged.PreTransformedDesc().GetType()))
	}
	if flagged == nil {
		flagged = a.ztensor("dest")
	}
	if flagged != nil && (strings.HasPrefix(name, "transform_") || name == "reshape_ztensor") {
		reply["fp_flags"] = flags(flagged.Flags())
	}
	outputs := answer{}
	for _, operand := range []string{
		"output", "output_a", "output_b", "hn_output", "cf_output", "dest", "ztensor",
	} {
		z := a.outputs[operand]
		if z == nil {
			z = a.ztensor(operand)
		}
		if z == nil {
			continue
		}
		seen, err := see(ctx, z)
		if err != nil {
			return err
		}
		outputs[operand] = seen
	}
	reply["outputs"] = outputs
	return nil
}

func see(ctx context.Context, z *zdnn.Ztensor) (answer, error) {
	seen := answer{
		"is_transformed": z.IsTransformed(), "buffer_size": z.BufferSize(),
		"rec_scale": z.RecScale(), "offset": z.Offset(),
	}
	if z.Structure().GetNullBuffer() {
		return seen, nil
	}
	sticks, err := z.ReadSticks(ctx, zdnn.BYTE_ORDER_LITTLE_ENDIAN)
	seen["memory"] = wordsOf(sticks, cellBytes(z.TransformedDesc().GetType()))
	return seen, err
}

func flags(raised zdnn.FpFlags) []string {
	names := []string{}
	for _, flag := range []zdnn.FpFlags{
		zdnn.FP_FLAGS_INVALID, zdnn.FP_FLAGS_OVERFLOW, zdnn.FP_FLAGS_UNDERFLOW,
	} {
		if raised&flag != 0 {
			names = append(names, strings.TrimPrefix(flag.String(), "FP_FLAGS_"))
		}
	}
	return names
}

func explain(reply answer, violation *zdnnv1.RangeViolation) {
	if violation == nil {
		return
	}
	operands := answer{}
	for _, operand := range violation.Operands {
		elements := [][]any{}
		for _, violating := range operand.Elements {
			element := []any{}
			for _, index := range violating.Index {
				element = append(element, index)
			}
			element = append(element, fmt.Sprintf("%04X", violating.Code))
			for _, value := range violating.OperandValues {
				element = append(element, jsonFloat(value))
			}
			elements = append(elements, element)
		}
		operands[operand.Operand] = elements
	}
	reply["violation"] = operands
}

// jsonFloat returns a number as proto JSON has it.
func jsonFloat(value float32) any {
	switch wide := float64(value); {
	case math.IsNaN(wide):
		return "NaN"
	case math.IsInf(wide, 1):
		return "Infinity"
	case math.IsInf(wide, -1):
		return "-Infinity"
	default:
		return wide
	}
}
