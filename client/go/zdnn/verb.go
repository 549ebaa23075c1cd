// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"fmt"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// verb builds the call of one operation: its ztensors by C parameter name, and its first error.
type verb struct {
	name    string
	session *Session
	tensors map[string]*Ztensor
	outputs []*Ztensor
	creates []*Ztensor
	read    func(*zdnnv1.OperationResult) error
	err     error
}

// input returns the reference of an operand; the first operand sets the session.
func (v *verb) input(operand string, z *Ztensor) *zdnnv1.TensorRef {
	if v.err != nil {
		return nil
	}
	ref, err := v.refer(z)
	if err != nil {
		v.err = fmt.Errorf("zdnn_%s: %s: %w", v.name, operand, err)
		return nil
	}
	v.tensors[operand] = z
	return ref
}

// refer returns the reference of a ztensor of the operation's session.
func (v *verb) refer(z *Ztensor) (*zdnnv1.TensorRef, error) {
	switch {
	case z == nil:
		return nil, errors.New("nil, expected a ztensor")
	case z.session == nil:
		return nil, errors.New("a Ztensor of no session, expected one of NewZtensor or a verb")
	case v.session == nil:
		v.session, v.tensors = z.session, map[string]*Ztensor{}
	case v.session != z.session:
		return nil, errors.New("of another session, expected a ztensor of the first operand's session")
	}
	return z.ref()
}

// existing returns the reference of an output, which must exist.
func (v *verb) existing(operand string, z *Ztensor) *zdnnv1.TensorRef {
	v.outputs = append(v.outputs, z)
	return v.input(operand, z)
}

// output returns the reference of an output; for nil, of a new ztensor that the server describes.
func (v *verb) output(operand string, z *Ztensor) *zdnnv1.TensorRef {
	if z != nil || v.err != nil {
		return v.existing(operand, z)
	}
	z = &Ztensor{session: v.session, id: v.session.NewID(), missing: "its list has not run"}
	v.tensors[operand] = z
	v.outputs, v.creates = append(v.outputs, z), append(v.creates, z)
	return &zdnnv1.TensorRef{Tensor: &zdnnv1.TensorRef_NewId{NewId: z.id}}
}

func (v *verb) call(operation *zdnnv1.Operation) *call {
	return &call{name: v.name, operation: operation, tensors: v.tensors, creates: v.creates, read: v.read}
}

// run submits the operation.
func (v *verb) run(ctx context.Context, operation *zdnnv1.Operation) error {
	if v.err != nil {
		return v.err
	}
	return v.session.submit(ctx, v.call(operation))
}

// single submits an operation of one output, and returns the output, if it is valid.
func (v *verb) single(ctx context.Context, operation *zdnnv1.Operation) (*Ztensor, error) {
	if err := v.run(ctx, operation); err != nil && !isWarned(err) {
		return nil, err
	} else {
		return v.outputs[0], err
	}
}

// pair submits an operation of two outputs, and returns them, if they are valid.
func (v *verb) pair(ctx context.Context, operation *zdnnv1.Operation) (*Ztensor, *Ztensor, error) {
	if err := v.run(ctx, operation); err != nil && !isWarned(err) {
		return nil, nil, err
	} else {
		return v.outputs[0], v.outputs[1], err
	}
}

// ask submits the queued calls and this operation, and returns its answer.
func (v *verb) ask(ctx context.Context, operation *zdnnv1.Operation) (*zdnnv1.OperationResult, error) {
	if v.err != nil {
		return nil, v.err
	}
	return v.session.ask(ctx, v.call(operation))
}

// warned wraps the error that Options.Warn returned: outputs are valid nevertheless.
type warned struct{ error }

func (w warned) Unwrap() error { return w.error }

func isWarned(err error) bool {
	var is warned
	return errors.As(err, &is)
}
