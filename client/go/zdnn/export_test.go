// SPDX-License-Identifier: Apache-2.0

package zdnn

import "context"

// WaitForEndOfStream waits until the session's stream has ended.
func WaitForEndOfStream(ctx context.Context, s *Session) error {
	select {
	case <-s.client.(*streamClient).stream.answers:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
