// SPDX-License-Identifier: Apache-2.0

// Package mli is embARC MLI's fixed-point kernels, bit for bit: a Library on a session, and one method
// per function of the library's documentation, without mli_. Tensors come in C's order; an output that
// is nil is created.
//
// A status that is an error is an *Error; a call that does not reach the library is a
// *zdnn.TransportError; an assertion of a debug build, which would end the program, is a
// *zdnn.ProgramCheck.
package mli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
	"nnpa.dev/nnpa/zdnn"
)

// Options are the options of a build of the library; see the comments of BuildOptions in the wire
// contract.
type Options struct {
	// Build has rounding, debug level, accumulator and conversion; nil is the default of each.
	Build *mliv1.BuildOptions
	// Logger gets remarks on calls that succeed, such as an accumulator that overflows. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Library runs kernels over a session's connection. One goroutine at a time may use it.
type Library struct {
	session *zdnn.Session
	client  mliv1.MliServiceClient
	options Options
	batches int
	queue   []call
}

// New returns a library on a session of zdnn.Connect.
func New(session *zdnn.Session, options Options) (*Library, error) {
	if session == nil || session.Conn() == nil {
		return nil, errors.New("session: has no connection, expected one of zdnn.Connect")
	}
	options.Logger = cmp.Or(options.Logger, slog.Default())
	client := mliv1.NewMliServiceClient(session.Conn())
	return &Library{session: session, client: client, options: options}, nil
}

// Error is a status of the library that is not MLI_STATUS_OK; nothing was written.
type Error struct {
	// Kernel is the function without mli_.
	Kernel string
	// Status is the number, with the library's name of it.
	Status mliv1.MliStatus
	// Refusal has field, value, limit and constraint.
	Refusal *mliv1.Refusal
	// KernelIndex is the call's place in a batch, 0-based: those before it have written, those after
	// it have not run. -1 outside of a batch.
	KernelIndex int
}

func (e *Error) Error() string {
	text := cmp.Or(e.Refusal.GetText(), e.Status.String())
	if e.KernelIndex >= 0 {
		return fmt.Sprintf("kernel %d, mli_%s: %s", e.KernelIndex, e.Kernel, text)
	}
	return fmt.Sprintf("mli_%s: %s", e.Kernel, text)
}

// operand is a tensor of a call, by its field.
type operand struct {
	field  string
	tensor *Tensor
}

// RnnCellCfg is mli_rnn_cell_cfg, which is mli_lstm_cell_cfg too.
type RnnCellCfg struct {
	Mode mliv1.RnnMode
	Act  mliv1.RnnOutActivation
	// IrTsr holds intermediate results; nil is created.
	IrTsr *Tensor
}

// call is one call of a kernel, by its arm; the last operand is its output.
type call struct {
	kernel   string
	operands []operand
	// An output that is nil is created with this type and the number of elements of sized, unless sized is
	// nil.
	kind  mliv1.ElType
	sized *Tensor
	// cfg is a recurrent cell's; its intermediate results have gates times the elements of sized.
	cfg   *RnnCellCfg
	gates int
}

// complete creates the tensors that the caller left out, and refuses operands that are not tensors.
func (c *call) complete() error {
	last := len(c.operands) - 1
	if err := require(c.kernel, c.operands[:last]); err != nil {
		return err
	}
	out := &c.operands[last]
	if c.sized != nil && out.tensor == nil {
		count, fracBits := c.sized.room(), int32(0)
		if c.cfg != nil {
			in, prevOut := c.operands[0].tensor, c.operands[1].tensor
			count, fracBits = count*frames(in, c.cfg), prevOut.FracBits()
		}
		out.tensor = Empty(count, c.kind, fracBits)
	}
	if c.cfg != nil {
		if c.cfg.IrTsr == nil {
			c.cfg.IrTsr = Empty(c.gates*c.sized.room(), c.kind, 0)
		}
		c.operands = append(c.operands, operand{"cfg.ir_tsr", c.cfg.IrTsr})
	}
	return require(c.kernel, c.operands[last:])
}

// frames returns the number of frames that give an output each.
func frames(in *Tensor, cfg *RnnCellCfg) int {
	if cfg.Mode == mliv1.RnnMode_RNN_BATCH_TO_BATCH && len(in.Shape()) > 0 {
		return int(in.Shape()[0])
	}
	return 1
}

// require returns the error of the first operand that is not a tensor.
func require(kernel string, operands []operand) error {
	for _, o := range operands {
		if o.tensor == nil || o.tensor.fields == nil {
			return fmt.Errorf("mli_%s: %s: %v, expected a tensor of Fx, Quantise or Empty", kernel, o.field, o.tensor)
		}
	}
	return nil
}

// Batch runs the kernels of body in one request when it ends. Outputs are filled then, and may be used
// as inputs at once. The first error ends the batch: Error.KernelIndex is its place. When body returns an
// error, nothing runs. Batches may nest; the outer one runs.
func (l *Library) Batch(ctx context.Context, body func() error) error {
	l.batches++
	err := body()
	l.batches--
	if l.batches > 0 {
		return err
	}
	queue := l.queue
	l.queue = nil
	if err != nil || len(queue) == 0 {
		return err
	}
	return l.send(ctx, queue, true)
}

// submit runs a call now, or queues it in a batch, and returns its output.
func (l *Library) submit(ctx context.Context, c call) (*Tensor, error) {
	output := len(c.operands) - 1
	if err := c.complete(); err != nil {
		return nil, err
	}
	if l.batches > 0 {
		l.queue = append(l.queue, c)
	} else if err := l.send(ctx, []call{c}, false); err != nil {
		return nil, err
	}
	return c.operands[output].tensor, nil
}

func (l *Library) send(ctx context.Context, calls []call, isBatch bool) error {
	request := &mliv1.RunKernelRequest{Options: l.options.Build}
	places := encoder{}
	for i, c := range calls {
		request.Kernels = append(request.Kernels, places.encode(i, c))
	}
	answer, err := l.client.RunKernel(l.session.WithTicket(ctx), request)
	if err != nil {
		return zdnn.ExplainError(err)
	}
	for i, result := range answer.Results {
		if result.MliStatus != mliv1.MliStatus_MLI_STATUS_OK {
			refused := &Error{
				Kernel: calls[i].kernel, Status: result.MliStatus, Refusal: result.Refusal, KernelIndex: -1,
			}
			if isBatch {
				refused.KernelIndex = i
			}
			return refused
		}
		l.finish(calls[i], result)
	}
	return nil
}

// finish copies the outputs of a kernel, and logs its remarks.
func (l *Library) finish(c call, result *mliv1.KernelResult) {
	for _, output := range result.Outputs {
		for _, o := range c.operands {
			if o.field == output.Field {
				copy(o.tensor.memory, output.Tensor.GetData())
				o.tensor.fields = proto.Clone(output.Tensor).(*mliv1.Tensor)
				o.tensor.fields.Memory, o.tensor.fields.Capacity = nil, nil
			}
		}
	}
	remarks := result.Messages
	if result.AccumulatorOverflow {
		remarks = append(remarks, "a partial sum left the accumulator, the result is undefined in MLI")
	}
	if result.Refusal != nil {
		remarks = append(remarks, "nothing is written: "+result.Refusal.Text)
	}
	for _, remark := range remarks {
		l.options.Logger.Warn(fmt.Sprintf("mli_%s: %s", c.kernel, remark))
	}
}

// encoder holds the first place of each tensor of a request: later uses refer to it.
type encoder map[*Tensor]*mliv1.Place

// encode returns a call's message; arms and fields are found by their names.
func (e encoder) encode(index int, c call) *mliv1.Kernel {
	kernel := &mliv1.Kernel{}
	arm := kernel.ProtoReflect()
	message := arm.Mutable(arm.Descriptor().Fields().ByName(protoreflect.Name(c.kernel))).Message()
	fields := message.Descriptor().Fields()
	if c.cfg != nil {
		irTsr := e.ref(index, "cfg.ir_tsr", c.cfg.IrTsr)
		cfg := &mliv1.RnnCellCfg{Mode: &c.cfg.Mode, Act: &c.cfg.Act, IrTsr: irTsr}
		message.Set(fields.ByName("cfg"), protoreflect.ValueOfMessage(cfg.ProtoReflect()))
	}
	for _, o := range c.operands {
		if field := fields.ByName(protoreflect.Name(o.field)); field != nil {
			ref := e.ref(index, o.field, o.tensor)
			message.Set(field, protoreflect.ValueOfMessage(ref.ProtoReflect()))
		}
	}
	return kernel
}

func (e encoder) ref(index int, field string, t *Tensor) *mliv1.TensorRef {
	place, placed := e[t]
	if placed && int(place.GetKernelIndex()) < index {
		return &mliv1.TensorRef{Tensor: &mliv1.TensorRef_OutputOf{OutputOf: place}}
	}
	inline := proto.Clone(t.fields).(*mliv1.Tensor)
	if placed { // a second field of the same kernel
		inline.Capacity = proto.Uint32(uint32(len(t.memory)))
		shared := &mliv1.SharedTensor{Place: &mliv1.Place{Field: place.Field}, Tensor: inline}
		return &mliv1.TensorRef{Tensor: &mliv1.TensorRef_SameMemoryAs{SameMemoryAs: shared}}
	}
	inline.Memory = &mliv1.Tensor_Data{Data: t.memory}
	e[t] = &mliv1.Place{KernelIndex: proto.Uint32(uint32(index)), Field: field}
	return &mliv1.TensorRef{Tensor: &mliv1.TensorRef_Inline{Inline: inline}}
}
