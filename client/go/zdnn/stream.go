// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"io"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// streamClient sends lists of operations over one ExecuteStream, which costs less than a call each;
// the rest are calls of the client that it wraps, and so are lists where a server has no stream.
type streamClient struct {
	zdnnv1.AcceleratorServiceClient
	stream *listStream
	// maxIdle is how long a stream may idle, half of the server's limit.
	maxIdle time.Duration
	// refused reports that the server has no stream for this session.
	refused bool
}

// listStream is an ExecuteStream that has begun; a goroutine receives its answers.
type listStream struct {
	requests grpc.BidiStreamingClient[zdnnv1.ExecuteRequest, zdnnv1.ExecuteResponse]
	metadata metadata.MD
	cancel   context.CancelFunc
	// answers is closed when the stream has ended, by err.
	answers chan *zdnnv1.ExecuteResponse
	err     error
	used    time.Time
}

// Execute runs a list over the stream. The end of the context ends the stream with it, and the next
// list begins another.
func (c *streamClient) Execute(
	ctx context.Context, request *zdnnv1.ExecuteRequest, options ...grpc.CallOption,
) (*zdnnv1.ExecuteResponse, error) {
	if c.refused || len(options) > 0 {
		return c.AcceleratorServiceClient.Execute(ctx, request, options...)
	}
	answer, err := c.ask(ctx, request)
	if err == nil {
		return answer, nil
	}
	c.stream = nil
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if c.refused = hasNoStream(err); c.refused {
		return c.AcceleratorServiceClient.Execute(ctx, request)
	}
	return nil, err
}

// hasNoStream reports whether a server has all its streams taken, or is too old to have any.
func hasNoStream(err error) bool {
	var failure *TransportError
	return errors.As(ExplainError(err), &failure) && (failure.Metadata["field"] == "max_conversations" ||
		failure.Code == codes.Unimplemented && failure.Reason == "")
}

func (c *streamClient) ask(
	ctx context.Context, request *zdnnv1.ExecuteRequest,
) (*zdnnv1.ExecuteResponse, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	stream := c.stream
	stop := context.AfterFunc(ctx, stream.cancel)
	defer stop()
	if err := stream.requests.Send(request); err != nil && !errors.Is(err, io.EOF) {
		stream.cancel()
		return nil, err
	}
	answer, active := <-stream.answers // io.EOF: the stream has ended, by stream.err
	if !active {
		return nil, stream.err
	}
	if !stop() { // the context ended as the answer came, and the stream with it
		c.stream = nil
	}
	stream.used = time.Now()
	return answer, nil
}

// open begins a stream, unless the open stream is usable and has the context's metadata.
func (c *streamClient) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	if c.stream != nil && c.stream.isUsable(c.maxIdle) && reflect.DeepEqual(sent, c.stream.metadata) {
		return nil
	}
	c.end()
	begun, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), sent))
	defer context.AfterFunc(ctx, cancel)()
	requests, err := c.ExecuteStream(begun)
	if err != nil {
		cancel()
		return err
	}
	c.stream = &listStream{
		requests: requests, metadata: sent, cancel: cancel,
		answers: make(chan *zdnnv1.ExecuteResponse, 1), used: time.Now(),
	}
	go c.stream.receive()
	return nil
}

// isUsable reports whether the stream has neither ended nor idled for too long.
func (l *listStream) isUsable(maxIdle time.Duration) bool {
	select {
	case <-l.answers:
		return false
	default:
		return maxIdle == 0 || time.Since(l.used) < maxIdle
	}
}

// receive hands on answers until the stream ends.
func (l *listStream) receive() {
	defer l.cancel()
	for {
		answer, err := l.requests.Recv()
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Canceled, "the stream of lists ended without an answer")
		}
		if err != nil {
			l.err = err
			close(l.answers)
			return
		}
		l.answers <- answer
	}
}

// end ends the stream in order.
func (c *streamClient) end() {
	if c.stream != nil {
		_ = c.stream.requests.CloseSend()
		c.stream = nil
	}
}

// DeleteSession ends the stream before the session.
func (c *streamClient) DeleteSession(
	ctx context.Context, request *zdnnv1.DeleteSessionRequest, options ...grpc.CallOption,
) (*emptypb.Empty, error) {
	c.end()
	return c.AcceleratorServiceClient.DeleteSession(ctx, request, options...)
}
