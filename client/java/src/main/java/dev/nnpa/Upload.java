// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.WriteTensorRequest;
import dev.nnpa.zdnn.v1.WriteTensorResponse;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.Iterator;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** One WriteTensor under way: sends as fast as the server takes, and keeps the answer. */
final class Upload implements ClientResponseObserver<WriteTensorRequest, WriteTensorResponse> {
  private final Iterator<WriteTensorRequest> parts;
  private final CompletableFuture<WriteTensorResponse> answer = new CompletableFuture<>();
  private ClientCallStreamObserver<WriteTensorRequest> call;
  private boolean complete;

  Upload(Iterator<WriteTensorRequest> parts) {
    this.parts = parts;
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<WriteTensorRequest> started) {
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
  public void onNext(WriteTensorResponse response) {
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

  /** Waits for the answer; an interrupted thread cancels the call. */
  WriteTensorResponse answer() {
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
