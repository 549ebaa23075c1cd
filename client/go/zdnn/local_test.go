// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// Every status of the contract has a text that begins with its name.
func TestEveryStatusHasAText(t *testing.T) {
	for number, name := range zdnnv1.ZdnnStatus_name {
		if got := GetStatusMessage(ZdnnStatus(number)); !strings.HasPrefix(got, name+": ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := GetStatusMessage(1); got != "(Status string is not defined.)" {
		t.Error(got)
	}
}

// Every reason of the contract has advice.
func TestEveryReasonHasAdvice(t *testing.T) {
	none := advice("", codes.OK)
	for number, name := range zdnnv1.ErrorReason_name {
		reason := strings.TrimPrefix(name, "ERROR_REASON_")
		if got := advice(reason, codes.OK); (got == none) != (number == 0) {
			t.Error(reason, got)
		}
	}
}

// A host of the other byte order turns each element around, and nothing else.
func TestTurn(t *testing.T) {
	raw := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	turn(raw, 4)
	if !bytes.Equal(raw, []byte{4, 3, 2, 1, 8, 7, 6, 5}) {
		t.Error(raw)
	}
}

// An error's operation index counts only the caller's operations.
func TestRenumber(t *testing.T) {
	err := renumber(&TransportError{
		Message:  "operations[3].add.input_a: no tensor 7",
		Metadata: map[string]string{"operation_index": "3", "field": "operations[3].add.input_a"},
	}, 2).(*TransportError)
	if err.Metadata["operation_index"] != "1" || err.Metadata["field"] != "operations[1].add.input_a" {
		t.Error(err.Metadata)
	}
	if !strings.HasPrefix(err.Message, "operations[1].") {
		t.Error(err.Message)
	}
}

// An answer in chunks that cut elements fills the array all the same; more than announced is an error.
func TestSinkOfUnevenChunks(t *testing.T) {
	s := &sink[int32]{maxBytes: 12}
	if err := s.expect(12); err != nil {
		t.Fatal(err)
	}
	for _, chunk := range [][]byte{{1, 0, 0, 0, 2}, {0}, {0, 0, 3, 0, 0, 0}} {
		if err := s.add(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if s.array[0] != 1 || s.array[1] != 2 || s.array[2] != 3 {
		t.Error(s.array)
	}
	if s.add([]byte{9}) == nil {
		t.Error("a byte more than announced")
	}
	if (&sink[int32]{maxBytes: 12}).expect(16) == nil {
		t.Error("more than the descriptor allows")
	}
}

// A wrong count of sizes is refused by the layout's name, and a layout of no sizes takes any.
func TestInitPreTransformedDesc(t *testing.T) {
	for _, sizes := range [][]uint32{{1, 2}, {1, 2, 3, 4, 5}} {
		says := fmt.Sprintf("sizes: %v, layout ZDNN_NHWC has 4, not %d", sizes, len(sizes))
		if _, err := InitPreTransformedDesc(ZDNN_NHWC, FP32, sizes...); err == nil || err.Error() != says {
			t.Errorf("%v, expected %s", err, says)
		}
	}
	desc, err := InitPreTransformedDesc(ZDNN_2D, FP32, 3, 4)
	if err != nil || desc.Dim2 != 3 || desc.Dim1 != 4 || desc.Dim4 != 0 {
		t.Error(desc, err)
	}
}

// forgetful is a service that has lost the tensors of the first list, and counts its calls.
type forgetful struct {
	zdnnv1.AcceleratorServiceClient
	lists []int
}

func (f *forgetful) Execute(
	_ context.Context, request *zdnnv1.ExecuteRequest, _ ...grpc.CallOption,
) (*zdnnv1.ExecuteResponse, error) {
	f.lists = append(f.lists, len(request.Operations))
	if len(f.lists) > 1 {
		return &zdnnv1.ExecuteResponse{Results: make([]*zdnnv1.OperationResult, len(request.Operations))}, nil
	}
	refusal, err := status.New(codes.NotFound, "operations[0]: no tensor 7").WithDetails(&errdetails.ErrorInfo{
		Domain: "nnpa", Reason: "TENSOR_NOT_FOUND", Metadata: map[string]string{"tensor": "7"},
	})
	if err != nil {
		return nil, err
	}
	return nil, refusal.Err()
}

func (f *forgetful) ListTensors(
	context.Context, *zdnnv1.ListTensorsRequest, ...grpc.CallOption,
) (*zdnnv1.ListTensorsResponse, error) {
	return &zdnnv1.ListTensorsResponse{}, nil
}

// A dropped tensor that the server has freed already does not keep the caller's calls from running.
func TestDroppedAndFreedAlready(t *testing.T) {
	service := &forgetful{}
	s := &Session{client: service, message: &zdnnv1.Session{Name: "sessions/x"}}
	s.drop(7)
	results, err := s.Execute(context.Background(), &zdnnv1.Operation{})
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	if len(service.lists) != 2 || service.lists[0] != 2 || service.lists[1] != 1 {
		t.Error(service.lists)
	}
}
