// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.function.Function;

/** A call with a stream of requests: sends as fast as the server reads, and keeps the answer. */
final class Upload<Q, A> implements ClientResponseObserver<Q, A> {
  private static final int CHUNK_BYTES = 1 << 20;

  private final Iterator<Q> parts;
  private final CompletableFuture<A> answer = new CompletableFuture<>();
  private ClientCallStreamObserver<Q> call;
  private boolean complete;

  Upload(Iterator<Q> parts) {
    this.parts = parts;
  }

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

  @Override
  public void beforeStart(ClientCallStreamObserver<Q> started) {
    call = started;
    call.setOnReadyHandler(this::send);
  }

  private void send() {
    while (!complete && call.isReady()) {
      if (parts.hasNext()) {
        call.onNext(parts.next());
      } else {
        complete = true;
        call.onCompleted();
      }
    }
  }

  @Override
  public void onNext(A response) {
    complete = true; // A refusal may come before all chunks have left.
    answer.complete(response);
  }

  @Override
  public void onError(Throwable error) {
    complete = true;
    answer.completeExceptionally(error);
  }

  @Override
  public void onCompleted() {
    answer.completeExceptionally(Status.INTERNAL.withDescription("no answer").asRuntimeException());
  }

  /** Makes the call, and waits for the answer; an interrupted thread cancels it. */
  A answer(Consumer<StreamObserver<A>> method) {
    method.accept(this);
    return await(answer, call);
  }

  /** Waits for the answer of a call, whose errors are gRPC's; an interrupted thread cancels it. */
  static <A> A await(CompletableFuture<A> answer, ClientCallStreamObserver<?> call) {
    try {
      return answer.get();
    } catch (ExecutionException error) {
      throw Status.fromThrowable(error.getCause())
          .asRuntimeException(Status.trailersFromThrowable(error.getCause()));
    } catch (InterruptedException error) {
      call.cancel("interrupted", error);
      Thread.currentThread().interrupt();
      throw Status.CANCELLED.withDescription("interrupted").withCause(error).asRuntimeException();
    }
  }
}
