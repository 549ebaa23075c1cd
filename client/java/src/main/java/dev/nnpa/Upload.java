// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.BlockingClientCall;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.Function;

/** Calls with a stream of requests, which are sent as fast as the server reads. */
final class Upload {
  private static final int CHUNK_BYTES = 1 << 20;

  private Upload() {}

  /** Returns a header, then bytes in chunks, as messages. */
  static <Q> Iterator<Q> parts(Q header, Function<ByteString, Q> message, List<ByteString> arrays) {
    List<Q> parts = new ArrayList<>(List.of(header));
    for (ByteString left : arrays) {
      while (!left.isEmpty()) {
        int size = Math.min(CHUNK_BYTES, left.size());
        parts.add(message.apply(left.substring(0, size)));
        left = left.substring(size);
      }
    }
    return parts.iterator();
  }

  /** Sends messages, and waits for the answer; an interrupted thread cancels the call. */
  static <Q, A> A answer(BlockingClientCall<Q, A> call, Iterator<Q> parts) {
    try {
      boolean open = true; // A refusal may come before all chunks have left.
      while (open && parts.hasNext()) {
        open = call.write(parts.next());
      }
      call.halfClose();
      A answer = call.read();
      if (answer == null) {
        throw Status.INTERNAL.withDescription("no answer").asRuntimeException();
      }
      return answer;
    } catch (StatusException error) {
      throw error.getStatus().asRuntimeException(error.getTrailers());
    } catch (InterruptedException error) {
      call.cancel("interrupted", error);
      throw interrupted(error);
    }
  }

  /** Returns the error of a call whose thread was interrupted, which it stays. */
  static StatusRuntimeException interrupted(InterruptedException error) {
    Thread.currentThread().interrupt();
    return Status.CANCELLED.withDescription("interrupted").withCause(error).asRuntimeException();
  }
}
