// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// ZdnnError is a zDNN status that is neither ZDNN_OK nor a warning.
type ZdnnError struct {
	// Status may be a response code without a name, 0x000C0000 + RC.
	Status ZdnnStatus
	// Name is zDNN's name of the status, or its number.
	Name string
	// Message is the text of zdnn_get_status_message.
	Message string
	// Op is the C function without its prefix.
	Op string
	// Refusal has field, value, limit and constraint; may be nil.
	Refusal *zdnnv1.Refusal
	// Violation has the elements that are not numbers; may be nil.
	Violation *zdnnv1.RangeViolation
	// OperationIndex is the call's place in a pipeline, 0-based; -1 outside of one.
	OperationIndex int
	// Result is the whole answer.
	Result *zdnnv1.OperationResult
}

func newZdnnError(op string, index int, result *zdnnv1.OperationResult) *ZdnnError {
	code := ZdnnStatus(result.GetZdnnStatus())
	return &ZdnnError{
		Status: code, Name: statusName(code), Message: GetStatusMessage(code), Op: op,
		Refusal: result.GetRefusal(), Violation: result.GetRangeViolation(),
		OperationIndex: index, Result: result,
	}
}

func (e *ZdnnError) Error() string {
	text := fmt.Sprintf("zdnn_%s: %s", e.Op, cmp.Or(e.Refusal.GetText(), e.Message))
	if e.OperationIndex >= 0 {
		text = fmt.Sprintf("operation %d, %s", e.OperationIndex, text)
	}
	if r := e.Refusal; r != nil && r.Text == "" {
		text += fmt.Sprintf(" %s is %s, allowed: %s (%s).", r.Field, r.Value, r.Limit, r.Constraint)
	}
	text += explainViolation(e.Violation)
	if e.Op == "transform_origtensor" && e.Status == ZDNN_CONVERT_FAILURE {
		text += " The array is returned beside this error, with NaN for them."
	}
	return text
}

// ZdnnWarning is a warning status, such as ZDNN_ELEMENT_RANGE_VIOLATION: outputs are valid
// otherwise. It is handed to Options.Warn, which may make it the verb's error.
type ZdnnWarning struct {
	// Status is the warning, Name its zDNN name, Message its text.
	Status        ZdnnStatus
	Name, Message string
	// Op is the C function without its prefix.
	Op string
	// Violation has the elements that are not numbers; may be nil.
	Violation *zdnnv1.RangeViolation
	// Result is the whole answer.
	Result *zdnnv1.OperationResult
}

func (w *ZdnnWarning) Error() string {
	return fmt.Sprintf("zdnn_%s: %s%s", w.Op, w.Message, explainViolation(w.Violation))
}

// ProgramCheck reports that the machine would have ended the program: operands contradict each other, or
// lack storage.
type ProgramCheck struct {
	// Kind is "data" (SIGILL on Linux), "access" (SIGSEGV), "operation" (SIGILL), or "assertion" for
	// a debug build of MLI (SIGABRT).
	Kind string
	// Op is the C function without its prefix; Field, Value, Limit and Constraint describe the fault.
	Op, Field, Value, Limit, Constraint string
	// PrecheckStatus is the status that precheck would have given, or ZDNN_OK for none.
	PrecheckStatus ZdnnStatus
	// OperationIndex is the call's place in the list; operations before it have taken effect.
	OperationIndex int
	// Message is the server's sentence.
	Message string
}

func (e *ProgramCheck) Error() string {
	text := asSentence(e.Message)
	if e.PrecheckStatus != ZDNN_OK {
		name := statusName(e.PrecheckStatus)
		text += fmt.Sprintf(" With precheck the status would have been %s.", name)
	}
	if e.Constraint == "pipeline_c11" && e.Value == "0 bytes" {
		text += " The ztensor has no buffer: it was freed, or never allocated."
	}
	return text
}

// asSentence returns the text with a full stop at its end.
func asSentence(text string) string {
	if text != "" && strings.Contains(".!?", text[len(text)-1:]) {
		return text
	}
	return text + "."
}

// TransportError reports that the call did not reach the accelerator, or that its answer did not come
// back. It is a gRPC status for status.FromError; an ended context matches context.DeadlineExceeded or
// context.Canceled.
type TransportError struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is the ErrorReason without its prefix, or "".
	Reason string
	// Message is the server's sentence, Metadata the values in it, by name.
	Message  string
	Metadata map[string]string
	// Advice is the remedy.
	Advice string
	// RetryDelay is the delay after which the server asks to try again; 0 if it does not ask.
	RetryDelay time.Duration
	// Err is the error as gRPC has it.
	Err error
}

func (e *TransportError) Error() string {
	label := e.Code.String()
	if e.Reason != "" {
		label += " / " + e.Reason
	}
	return fmt.Sprintf("%s: %s %s", label, asSentence(e.Message), e.Advice)
}

// Unwrap returns gRPC's error.
func (e *TransportError) Unwrap() error { return e.Err }

// Is matches context.DeadlineExceeded and context.Canceled by the gRPC code.
func (e *TransportError) Is(target error) bool {
	return e.Code == codes.DeadlineExceeded && target == context.DeadlineExceeded ||
		e.Code == codes.Canceled && target == context.Canceled
}

// GRPCStatus returns gRPC's status.
func (e *TransportError) GRPCStatus() *status.Status { return status.Convert(e.Err) }

// SessionLostError reports that the server of the session is gone, or that the connection to it broke:
// ztensors are lost, Connect again. It is a TransportError for errors.As; gRPC or a proxy chose its
// code.
type SessionLostError struct {
	transport *TransportError
}

func (e *SessionLostError) Error() string {
	return fmt.Sprintf("%s: the server of this session is gone: %s "+
		"Connect again: what the session held is lost with its server.",
		e.transport.Code, asSentence(e.transport.Message))
}

// Unwrap returns the TransportError.
func (e *SessionLostError) Unwrap() error { return e.transport }

// lostCodes are the codes that, without a reason of the server, mean that the server is gone.
var lostCodes = map[codes.Code]bool{
	codes.Unavailable: true, codes.Internal: true, codes.Canceled: true, codes.Unknown: true,
}

// ExplainError translates the error of a gRPC call, of this or another API of the server, into a
// ProgramCheck or TransportError; nil stays nil.
func ExplainError(err error) error {
	if err == nil {
		return nil
	}
	rpc := status.Convert(err)
	if rpc.Code() == codes.Unknown {
		rpc = status.FromContextError(err)
	}
	var info errdetails.ErrorInfo
	var retryDelay time.Duration
	for _, detail := range rpc.Details() {
		switch reported := detail.(type) {
		case *errdetails.ErrorInfo:
			if reported.Domain == "nnpa" {
				info.Reason, info.Metadata = reported.Reason, reported.Metadata
			}
		case *errdetails.RetryInfo:
			retryDelay = reported.RetryDelay.AsDuration()
		}
	}
	if info.Reason == "PROGRAM_CHECK" {
		return newProgramCheck(rpc.Message(), info.Metadata)
	}
	return &TransportError{
		Code: rpc.Code(), Reason: info.Reason, Message: rpc.Message(), Metadata: info.Metadata,
		Advice: advice(info.Reason, rpc.Code()), RetryDelay: retryDelay, Err: err,
	}
}

func newProgramCheck(message string, metadata map[string]string) *ProgramCheck {
	status, _ := strconv.ParseInt(metadata["precheck_status"], 10, 32)
	index, _ := strconv.Atoi(metadata["operation_index"])
	return &ProgramCheck{
		Kind: metadata["kind"], Op: metadata["operation"], Field: metadata["field"],
		Value: metadata["value"], Limit: metadata["limit"], Constraint: metadata["constraint"],
		PrecheckStatus: ZdnnStatus(status), OperationIndex: index, Message: message,
	}
}

// explainViolation returns " output: 2 not numbers, first at [0 0 1 3]: 0x7FFF from -1." and so on.
func explainViolation(violation *zdnnv1.RangeViolation) string {
	var text strings.Builder
	for _, operand := range violation.GetOperands() {
		fmt.Fprintf(&text, " %s: %d not numbers", operand.Operand, operand.Count)
		if len(operand.Elements) > 0 {
			first := operand.Elements[0]
			fmt.Fprintf(&text, ", first at %v: 0x%04X", first.Index, first.Code)
			if len(first.OperandValues) > 0 {
				values := strings.Trim(fmt.Sprint(first.OperandValues), "[]")
				fmt.Fprintf(&text, " from %s", strings.ReplaceAll(values, " ", ", "))
			}
			if first.Padding {
				text.WriteString(" (padding)")
			}
		}
		text.WriteByte('.')
	}
	return text.String()
}

var indexed = regexp.MustCompile(`operations\[(\d+)\]`)

// renumber lowers operation indices by the number of operations that the client put before the caller's.
func renumber(err error, before int) error {
	shift := func(text string) string {
		return indexed.ReplaceAllStringFunc(text, func(position string) string {
			number, _ := strconv.Atoi(indexed.FindStringSubmatch(position)[1])
			return fmt.Sprintf("operations[%d]", number-before)
		})
	}
	switch e := err.(type) {
	case *ProgramCheck:
		e.OperationIndex -= before
		e.Message, e.Field = shift(e.Message), shift(e.Field)
	case *TransportError:
		e.Message = shift(e.Message)
		for key, value := range e.Metadata {
			e.Metadata[key] = shift(value)
		}
		if number, err := strconv.Atoi(e.Metadata["operation_index"]); err == nil {
			e.Metadata["operation_index"] = strconv.Itoa(number - before)
		}
	}
	return err
}
