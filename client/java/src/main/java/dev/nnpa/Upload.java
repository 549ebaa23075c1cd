// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.StreamObserver;
import java.util.Iterator;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;

/**
 * A call of a stream of requests under way: sends as fast as the server takes, and keeps the
 * answer.
 */
final class Upload<Q, A> implements ClientResponseObserver<Q, A> {
  private final Iterator<Q> parts;
  private final CompletableFuture<A> answer = new CompletableFuture<>();
  private ClientCallStreamObserver<Q> call;
  private boolean complete;

  Upload(Iterator<Q> parts) {
    this.parts = parts;
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
