// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"weak"

	"google.golang.org/protobuf/proto"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// call is one call of a C function: its name without prefix, and its operation on the wire.
type call struct {
	name      string
	operation *zdnnv1.Operation
	// tensors are its ztensors by C parameter name, alive until it has run; the answer may change
	// their structure.
	tensors map[string]*Ztensor
	// creates are the ztensors that exist only after a successful answer.
	creates []*Ztensor
	// read gets every answer.
	read func(*zdnnv1.OperationResult) error
}

// converts reports whether the function clears the thread's IEEE flags and may raise them.
func (c *call) converts() bool {
	return strings.HasPrefix(c.name, "transform_") || c.name == "reshape_ztensor"
}

// track frees the buffer of a tensor when the tensor becomes unreachable.
func (s *Session) track(z *Ztensor) {
	if z.id == 0 || z.tracked || z.structure == nil || z.structure.NullBuffer {
		return
	}
	s.living[z.id] = weak.Make(z)
	z.dropped, z.tracked = runtime.AddCleanup(z, s.drop, z.id), true
}

// drop queues an unreachable tensor to be freed; it runs on the collector's goroutine.
func (s *Session) drop(id uint64) {
	s.droppedLock.Lock()
	defer s.droppedLock.Unlock()
	s.dropped = append(s.dropped, id)
}

func (s *Session) takeDropped() []uint64 {
	s.droppedLock.Lock()
	defer s.droppedLock.Unlock()
	ids := s.dropped
	s.dropped = nil
	for _, id := range ids {
		delete(s.living, id)
	}
	return ids
}

// untrack stops tracking a tensor that the server has freed; its structure stays.
func (s *Session) untrack(z *Ztensor) {
	delete(s.living, z.id)
	if z.tracked {
		z.dropped.Stop()
		z.tracked = false
	}
	z.structure = proto.Clone(z.structure).(*zdnnv1.Ztensor)
	z.id, z.structure.NullBuffer = 0, true
}

// submit runs the calls, or queues them while a pipeline is open.
func (s *Session) submit(ctx context.Context, calls ...*call) error {
	if s.pipelines == 0 {
		return s.run(ctx, calls)
	}
	size := 0
	for _, queued := range calls {
		size += proto.Size(queued.operation)
	}
	if s.queuedBytes+size > int(s.message.GetLimits().GetMaxMessageBytes()/2) {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	s.queue, s.queuedBytes = append(s.queue, calls...), s.queuedBytes+size
	return nil
}

// ask runs the queued calls and this call, and returns its answer.
func (s *Session) ask(ctx context.Context, question *call) (*zdnnv1.OperationResult, error) {
	var answer *zdnnv1.OperationResult
	question.read = func(result *zdnnv1.OperationResult) error {
		answer = result
		return nil
	}
	err := s.submit(ctx, question)
	return answer, errors.Join(err, s.flush(ctx))
}

// flush runs the calls that an open pipeline has queued.
func (s *Session) flush(ctx context.Context) error {
	if len(s.queue) == 0 {
		return nil
	}
	calls := s.queue
	s.queue, s.queuedBytes = nil, 0
	return s.run(ctx, calls)
}

func (s *Session) run(ctx context.Context, calls []*call) error {
	operations := make([]*zdnnv1.Operation, len(calls))
	for i, queued := range calls {
		operations[i] = queued.operation
	}
	results, err := s.execute(ctx, operations)
	if err != nil {
		invalidateAll(calls, "the call that makes it failed")
		return err
	}
	invalidateAll(calls[len(results):], "the list of operations ended before")
	before, inList := len(s.results), s.pipelines > 0
	if inList {
		s.results = append(s.results, results...)
	}
	var first error
	for i, result := range results {
		if err := s.applyResult(calls[i], result); first == nil {
			first = err
		}
	}
	for i, result := range results {
		index := -1
		if inList {
			index = before + i
		}
		if err := s.raiseForStatus(calls[i], result, index); first == nil || !isWarned(err) && err != nil {
			first = err
		}
	}
	return first
}

// execute runs operations as they are, after dropped tensors have been freed.
func (s *Session) execute(
	ctx context.Context, operations []*zdnnv1.Operation,
) ([]*zdnnv1.OperationResult, error) {
	if s.uncertain {
		if err := s.reconcile(ctx); err != nil {
			return nil, err
		}
	}
	freed := s.takeDropped()
	request := &zdnnv1.ExecuteRequest{Session: s.message.Name}
	for _, id := range freed {
		request.Operations = append(request.Operations, free(refByID(id)))
	}
	request.Operations = append(request.Operations, operations...)
	answer, err := s.client.Execute(s.WithTicket(ctx), request)
	if err == nil {
		return answer.Results[min(len(freed), len(answer.Results)):], nil
	}
	for _, id := range freed {
		s.drop(id)
	}
	failure := s.explain(ctx, err)
	if missing, lost := lostTensor(failure); lost && slices.Contains(freed, missing) {
		if err := s.reconcile(ctx); err != nil {
			return nil, err
		}
		return s.execute(ctx, operations)
	}
	s.markUncertain(ctx, failure)
	return nil, renumber(failure, len(freed))
}

// lostTensor returns the id of the tensor that an error says does not exist.
func lostTensor(err error) (uint64, bool) {
	var transport *TransportError
	if !errors.As(err, &transport) || transport.Reason != "TENSOR_NOT_FOUND" {
		return 0, false
	}
	id, err := strconv.ParseUint(transport.Metadata["tensor"], 10, 64)
	return id, err == nil
}

// markUncertain reconciles after an error that leaves open which operations have run: at once, or, if
// the context has ended, before the next call.
func (s *Session) markUncertain(ctx context.Context, failure error) {
	var transport *TransportError
	if errors.As(failure, &transport) && nothingHasRun(transport.Reason) {
		return
	}
	s.uncertain = true
	if ctx.Err() == nil && s.reconcile(ctx) != nil {
		s.uncertain = true
	}
}

// reconcile replaces the state of the session's tensors by the server's.
func (s *Session) reconcile(ctx context.Context) error {
	infos, err := s.ListTensors(ctx)
	if err != nil {
		return err
	}
	present := make(map[uint64]*zdnnv1.ZtensorInfo, len(infos))
	for _, info := range infos {
		present[info.Id] = info
	}
	for _, id := range s.takeDropped() {
		if present[id] != nil {
			s.drop(id)
		}
	}
	for id, held := range s.living {
		if z := held.Value(); z != nil && present[id] != nil {
			z.update(present[id].Ztensor)
		}
	}
	s.uncertain = false
	return nil
}

// applyResult updates the call's ztensors from its result, and hands the result to call.read.
func (s *Session) applyResult(c *call, result *zdnnv1.OperationResult) error {
	code := ZdnnStatus(result.ZdnnStatus)
	for _, info := range result.Outputs {
		if z := c.tensors[info.Operand]; z != nil {
			z.update(info.Ztensor)
		}
	}
	for _, z := range c.creates {
		if code != ZDNN_OK && !isWarning(code) {
			z.invalidate("zdnn_" + c.name + " failed")
		}
	}
	for operand, z := range c.tensors {
		s.track(z)
		if c.converts() && (operand == "ztensor" || operand == "dest") {
			z.flags = FpFlags(result.FpFlags)
		}
	}
	for _, line := range result.Diagnostics {
		s.logger.Debug(line.Text, "op", c.name, "stream", line.Stream.String())
	}
	if c.read != nil {
		return c.read(result)
	}
	return nil
}

// raiseForStatus returns the error of an error status, or of a warning that Options.Warn refuses.
func (s *Session) raiseForStatus(c *call, result *zdnnv1.OperationResult, index int) error {
	code := ZdnnStatus(result.ZdnnStatus)
	switch {
	case code == ZDNN_OK:
		return nil
	case !isWarning(code):
		return newZdnnError(c.name, index, result)
	}
	warning := &ZdnnWarning{
		Status: code, Name: statusName(code), Message: GetStatusMessage(code), Op: c.name,
		Violation: result.RangeViolation, Result: result,
	}
	return s.emit(warning)
}

// emit hands a warning to Options.Warn, whose error it returns, or to the logger.
func (s *Session) emit(warning *ZdnnWarning) error {
	if s.warn == nil {
		s.logger.Warn(warning.Error())
		return nil
	}
	if err := s.warn(warning); err != nil {
		return warned{err}
	}
	return nil
}

func invalidateAll(calls []*call, reason string) {
	for _, queued := range calls {
		for _, z := range queued.creates {
			z.invalidate(reason)
		}
	}
}
