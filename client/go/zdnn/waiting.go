// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// wait returns how long to wait for a full server: Options.Wait, else the environment's ZDNN_WAIT in
// seconds, else 0.
func (o *Options) wait() (time.Duration, error) {
	if o.Wait < 0 {
		return 0, fmt.Errorf("Wait: %v, expected 0 or more", o.Wait)
	}
	text := os.Getenv("ZDNN_WAIT")
	if o.Wait > 0 || text == "" {
		return o.Wait, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds < 1e9) {
		return 0, fmt.Errorf("ZDNN_WAIT: %q, expected seconds, 0 or more", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// createSession creates a session, and returns it with the ticket that a proxy gave. At a full server it
// tries again until wait is over, each time after 0.5 to 1.5 times the delay that the server names.
func createSession(
	ctx context.Context, client zdnnv1.AcceleratorServiceClient, opened *zdnnv1.Session,
	wait time.Duration, logger *slog.Logger,
) (*zdnnv1.Session, string, error) {
	given := ""
	if opened.Trace != "" {
		given = os.Getenv("ZDNN_TICKET")
	}
	request, until := &zdnnv1.CreateSessionRequest{Session: opened}, time.Now().Add(wait)
	for told := false; ; told = true {
		var header metadata.MD
		message, err := client.CreateSession(withTicket(ctx, given), request, grpc.Header(&header))
		if err == nil {
			if tickets := header.Get(TicketHeader); len(tickets) > 0 {
				given = tickets[0]
			}
			return message, given, nil
		}
		failure := ExplainError(err)
		var refused *TransportError
		left := time.Until(until)
		if !errors.As(failure, &refused) || refused.Reason != "SESSION_QUOTA_EXCEEDED" ||
			refused.RetryDelay == 0 || left <= 0 {
			return nil, "", failure
		}
		if !told {
			logger.Warn("the server is full: waiting for a session", "at most", wait)
		}
		delay := refused.RetryDelay/2 + rand.N(refused.RetryDelay)
		select {
		case <-ctx.Done():
			return nil, "", failure
		case <-time.After(min(left, delay)):
		}
	}
}
