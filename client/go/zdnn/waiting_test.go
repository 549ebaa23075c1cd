// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// full is a server that refuses some sessions, then answers with a proxy's ticket.
type full struct {
	zdnnv1.AcceleratorServiceClient
	refusals int
	reason   *errdetails.ErrorInfo
	retry    *errdetails.RetryInfo
	tickets  []string
}

func (f *full) CreateSession(
	ctx context.Context, _ *zdnnv1.CreateSessionRequest, options ...grpc.CallOption,
) (*zdnnv1.Session, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	f.tickets = append(f.tickets, sent.Get(TicketHeader)...)
	if f.refusals > 0 {
		f.refusals--
		refused := status.New(codes.ResourceExhausted, "full")
		if f.retry == nil {
			refused, _ = refused.WithDetails(f.reason)
		} else {
			refused, _ = refused.WithDetails(f.reason, f.retry)
		}
		return nil, refused.Err()
	}
	for _, option := range options {
		if header, is := option.(grpc.HeaderCallOption); is {
			*header.HeaderAddr = metadata.Pairs(TicketHeader, "dGlja2V0")
		}
	}
	return &zdnnv1.Session{Name: "sessions/s"}, nil
}

func (f *full) GetSession(
	ctx context.Context, _ *zdnnv1.GetSessionRequest, _ ...grpc.CallOption,
) (*zdnnv1.Session, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	f.tickets = append(f.tickets, sent.Get(TicketHeader)...)
	return nil, status.Error(codes.Unavailable, "upstream connect error")
}

var (
	quota = &errdetails.ErrorInfo{Reason: "SESSION_QUOTA_EXCEEDED", Domain: "nnpa"}
	soon  = &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// A full server is asked again while it names a delay and the time is not over, a token's quota never.
func TestAFullServerIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		server *full
		wait   time.Duration
		served bool
	}{
		"in time":       {&full{refusals: 5, reason: quota, retry: soon}, time.Minute, true},
		"without wait":  {&full{refusals: 1, reason: quota, retry: soon}, 0, false},
		"token's quota": {&full{refusals: 1, reason: quota}, time.Minute, false},
	} {
		s, err := NewSession(t.Context(), test.server, Options{Wait: test.wait, Logger: quiet})
		if (err == nil) != test.served || (s != nil) != test.served {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSession(t.Context(), &full{}, Options{Wait: -1}); err == nil {
		t.Error("a negative wait is taken")
	}
}

// The ticket of the first answer goes with every call of the session, and not with its creation; a
// server that is gone is one error.
func TestTicketAndLoss(t *testing.T) {
	server := &full{}
	s, err := NewSession(t.Context(), server, Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Status(t.Context())
	var lost *SessionLostError
	var transport *TransportError
	if !errors.As(err, &lost) || !errors.As(err, &transport) || transport.Code != codes.Unavailable {
		t.Error(err)
	}
	if len(server.tickets) != 1 || server.tickets[0] != "dGlja2V0" {
		t.Error(server.tickets)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = s.Status(cancelled); errors.As(err, &lost) {
		t.Error("the caller has cancelled, and is told that the server is gone")
	}
}
