// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.CreateSessionRequest;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Waiting for a full server, which names the delay after which it may be asked again. */
final class Waiting {
  private Waiting() {}

  /** Returns how long to wait for a full server: {@code chosen}, else ZDNN_WAIT's seconds, or 0. */
  static Duration limit(Duration chosen) {
    if (chosen != null) {
      return chosen;
    }
    String text = System.getenv().getOrDefault("ZDNN_WAIT", "");
    try {
      double seconds = text.isEmpty() ? 0 : Double.parseDouble(text);
      if (seconds >= 0 && seconds < 1e9) {
        return Duration.ofMillis((long) (seconds * 1e3));
      }
    } catch (NumberFormatException error) {
      // As for any other text that is no time.
    }
    throw new IllegalArgumentException("ZDNN_WAIT: " + text + ", expected seconds, 0 or more");
  }

  /** Creates a session; retries at a full server until the limit, then throws its refusal. */
  static dev.nnpa.zdnn.v1.Session createSession(
      Transport transport, CreateSessionRequest request, Duration limit) {
    long until = System.nanoTime() + limit.toNanos();
    boolean told = false;
    while (true) {
      try {
        return transport.createSession(request);
      } catch (TransportException refused) {
        long left = until - System.nanoTime();
        if (!refused.reason().equals("SESSION_QUOTA_EXCEEDED")
            || refused.retryDelay().isZero()
            || left <= 0) {
          throw refused;
        }
        if (!told) {
          String place = transport.target();
          String text = place + " is full: waiting " + limit + " at most for a session";
          System.getLogger("dev.nnpa").log(System.Logger.Level.WARNING, text);
          told = true;
        }
        pause(refused, Math.min(left, jittered(refused.retryDelay().toNanos())));
      }
    }
  }

  /** Returns 0.5 to 1.5 times a delay, so that waiting clients spread out. */
  private static long jittered(long delay) {
    return delay / 2 + ThreadLocalRandom.current().nextLong(delay);
  }

  private static void pause(TransportException refused, long nanoseconds) {
    try {
      Thread.sleep(Duration.ofNanos(nanoseconds).toMillis());
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw refused;
    }
  }
}
