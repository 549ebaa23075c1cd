// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.CreateSessionRequest;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Waiting for a full server, which names the delay after which it may be asked again. */
final class Waiting {
  private Waiting() {}

  /**
   * Returns for how long a full server is waited for: {@code chosen}, or where that is null the
   * environment's {@code ZDNN_WAIT}, seconds, else none.
   */
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

  /** Creates a session; a full server is asked again until the limit, then it is refused. */
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

  /** Returns half to one and a half of a delay, so that clients do not come at once. */
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
