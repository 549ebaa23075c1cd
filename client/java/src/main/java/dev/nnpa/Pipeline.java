// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.OperationResult;
import java.util.List;

/**
 * Calls that leave together: verbs queue, and one Execute runs them.
 *
 * <pre>{@code
 * try (Pipeline pipeline = session.pipeline()) {
 *   Ztensor squared = Zdnn.mul(a, a);   // exists when the list has run; may be used at once
 *   Zdnn.transformOrigtensor(squared, out);
 *   pipeline.run();
 * }
 * }</pre>
 *
 * <p>The first error ends the list; {@link ZdnnException#operationIndex} is its index, and later
 * calls have not run. A call whose value is needed at once (a returned array, a query) first sends
 * the queue. Closing drops calls that have not run.
 */
public final class Pipeline implements AutoCloseable {
  private final Guest guest;
  private final List<OperationResult> results;
  private boolean closed;

  Pipeline(Guest guest) {
    this.guest = guest;
    this.results = guest.begin();
  }

  /** Runs the queue, and returns all answers so far, in the order of the calls. */
  public List<OperationResult> run() {
    if (closed) {
      throw new IllegalStateException("pipeline: closed");
    }
    guest.flush();
    return List.copyOf(results);
  }

  @Override
  public String toString() {
    String state = closed ? "closed" : guest.queued() + " calls queued";
    return "Pipeline[" + state + ", " + results.size() + " have run]";
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      guest.end();
    }
  }
}
