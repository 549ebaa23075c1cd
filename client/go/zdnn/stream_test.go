// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

// listening is a server that answers lists, and counts the ways on which they came.
type listening struct {
	zdnnv1.UnimplementedAcceleratorServiceServer
	streams, calls atomic.Int32
	tickets        []string
	// serve is the server's ExecuteStream; nil answers every list.
	serve func(grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]) error
}

func (l *listening) CreateSession(ctx context.Context, _ *zdnnv1.CreateSessionRequest) (*zdnnv1.Session, error) {
	return &zdnnv1.Session{Name: "sessions/s"}, grpc.SetHeader(ctx, metadata.Pairs(zdnn.TicketHeader, "dGlja2V0"))
}

func (l *listening) DeleteSession(context.Context, *zdnnv1.DeleteSessionRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (l *listening) ListTensors(context.Context, *zdnnv1.ListTensorsRequest) (*zdnnv1.ListTensorsResponse, error) {
	return &zdnnv1.ListTensorsResponse{}, nil
}

func (l *listening) Execute(context.Context, *zdnnv1.ExecuteRequest) (*zdnnv1.ExecuteResponse, error) {
	l.calls.Add(1)
	return &zdnnv1.ExecuteResponse{}, nil
}

func (l *listening) ExecuteStream(
	stream grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse],
) error {
	l.streams.Add(1)
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	l.tickets = append(l.tickets, incoming.Get(zdnn.TicketHeader)...)
	if l.serve != nil {
		return l.serve(stream)
	}
	for {
		if err := answer(stream); err != nil {
			return nil
		}
	}
}

// answer answers one list.
func answer(stream grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return stream.Send(&zdnnv1.ExecuteResponse{})
}

// session starts the server and opens a session on it.
func (l *listening) session(t *testing.T, options zdnn.Options) *zdnn.Session {
	t.Helper()
	listener, host := must(net.Listen("tcp", "127.0.0.1:0"))(t), grpc.NewServer()
	zdnnv1.RegisterAcceleratorServiceServer(host, l)
	go func() { _ = host.Serve(listener) }()
	t.Cleanup(host.Stop)
	s := must(zdnn.Connect(t.Context(), listener.Addr().String(), options))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// counts runs lists, and returns how many streams and calls the server has seen.
func (l *listening) counts(t *testing.T, s *zdnn.Session, lists int) [2]int32 {
	t.Helper()
	for range lists {
		if _, err := s.Execute(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return [2]int32{l.streams.Load(), l.calls.Load()}
}

// All lists of a session go over one stream, which brings the session's ticket; without it each is a
// call, by the option or by the environment.
func TestListsShareAStream(t *testing.T) {
	host := &listening{}
	if got := host.counts(t, host.session(t, zdnn.Options{}), 5); got != [2]int32{1, 0} {
		t.Error(got)
	}
	if !slices.Equal(host.tickets, []string{"dGlja2V0"}) {
		t.Error(host.tickets)
	}
	if got := host.counts(t, host.session(t, zdnn.Options{Plain: true}), 5); got != [2]int32{1, 5} {
		t.Error(got)
	}
	for _, text := range []string{"1", "stream", "shared-memory, stream"} {
		t.Setenv("ZDNN_PLAIN", text)
		plain := &listening{}
		if got := plain.counts(t, plain.session(t, zdnn.Options{}), 5); got != [2]int32{0, 5} {
			t.Error(text, got)
		}
	}
	t.Setenv("ZDNN_PLAIN", "steam")
	err := use(t, server, zdnn.Options{})
	if err == nil || !strings.Contains(err.Error(), `ZDNN_PLAIN: "steam", expected 1, or some of stream`) {
		t.Error(err)
	}
}

// Where a server has no room for a stream, or none at all, lists are calls, and it is asked once.
func TestNoStream(t *testing.T) {
	full, err := status.New(codes.ResourceExhausted, "full").WithDetails(&errdetails.ErrorInfo{
		Domain: "nnpa", Reason: "CALL_QUOTA_EXCEEDED", Metadata: map[string]string{"field": "max_conversations"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []error{full.Err(), status.Error(codes.Unimplemented, "unknown method")} {
		host := &listening{serve: func(grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]) error {
			return refusal
		}}
		if got := host.counts(t, host.session(t, zdnn.Options{}), 3); got != [2]int32{1, 3} {
			t.Error(refusal, got)
		}
	}
}

// A stream that the server has ended between two lists is no error of the next one.
func TestAStreamIsBegunAnew(t *testing.T) {
	host := &listening{serve: answer}
	s := host.session(t, zdnn.Options{})
	if got := host.counts(t, s, 1); got != [2]int32{1, 0} {
		t.Error(got)
	}
	if err := zdnn.WaitForEndOfStream(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := host.counts(t, s, 1); got != [2]int32{2, 0} {
		t.Error(got)
	}
}

// A call that is given up ends the stream, and no later call gets its answer.
func TestACallIsGivenUp(t *testing.T) {
	waits := make(chan struct{})
	first := true
	host := &listening{}
	host.serve = func(stream grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]) error {
		if first {
			first = false
			_, _ = stream.Recv()
			close(waits)
			<-stream.Context().Done()
			return nil
		}
		return answer(stream)
	}
	s := host.session(t, zdnn.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-waits; cancel() }()
	_, err := s.Execute(ctx)
	var lost *zdnn.SessionLostError
	if !errors.Is(err, context.Canceled) || errors.As(err, &lost) {
		t.Fatal(err)
	}
	if got := host.counts(t, s, 1); got != [2]int32{2, 0} {
		t.Error(got)
	}
}

// A server that goes away in a list, by whatever code, is told as lost, over a stream and in calls.
func TestAServerGoesAwayInAStream(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Canceled, codes.Unknown} {
		host := &listening{serve: func(stream grpc.BidiStreamingServer[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]) error {
			_, _ = stream.Recv()
			return status.Error(code, "upstream connect error")
		}}
		_, err := host.session(t, zdnn.Options{}).Execute(t.Context())
		var lost *zdnn.SessionLostError
		if !errors.As(err, &lost) || !strings.Contains(err.Error(), "the server of this session is gone") {
			t.Error(code, err)
		}
	}
}

// Results and errors are the same over a stream as in calls, and the session goes on after each error.
func TestStreamsAnswerAsCalls(t *testing.T) {
	var seen [2][]any
	for i, isPlain := range []bool{false, true} {
		ctx, s := open(t, zdnn.Options{Plain: isPlain})
		a, b := vector(t, ctx, s, 1, 2), vector(t, ctx, s, 1, 2, 3)
		_, check := zdnn.Add(ctx, a, b, nil)
		_, refusal := s.Execute(ctx, &zdnnv1.Operation{})
		freed := zdnn.FreeZtensorBuffer(ctx, b)
		sum := values(t, ctx, must(zdnn.Add(ctx, a, a, nil))(t))
		seen[i] = []any{check.Error(), refusal.Error(), freed, sum}
	}
	if !reflect.DeepEqual(seen[0], seen[1]) || seen[0][1] == "" {
		t.Errorf("%v\n%v", seen[0], seen[1])
	}
}
