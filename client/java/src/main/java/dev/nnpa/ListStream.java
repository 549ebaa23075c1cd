// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc.AcceleratorServiceStub;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.ExecuteResponse;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * Lists of operations over one stream, which costs less than a call each. A stream that has ended,
 * or idled for longer than the server may wait, is begun anew.
 */
final class ListStream {
  private final AcceleratorServiceStub stub;
  private final Duration maxIdle;
  private Running running;
  private long used;

  /** Streams of a stub that carries the session's ticket; a {@code maxIdle} of zero is none. */
  ListStream(AcceleratorServiceStub stub, Duration maxIdle) {
    this.stub = stub.withExecutor(Runnable::run); // Answers only wake the thread that waits.
    this.maxIdle = maxIdle;
  }

  /** A stream that has begun. */
  private static final class Running
      implements ClientResponseObserver<ExecuteRequest, ExecuteResponse> {
    private ClientCallStreamObserver<ExecuteRequest> call;
    private CompletableFuture<ExecuteResponse> answer = new CompletableFuture<>();
    private Throwable end;

    @Override
    public void beforeStart(ClientCallStreamObserver<ExecuteRequest> started) {
      call = started;
    }

    /** Returns a future for the next answer, or for the end of the stream. */
    synchronized CompletableFuture<ExecuteResponse> next() {
      answer = end == null ? new CompletableFuture<>() : CompletableFuture.failedFuture(end);
      return answer;
    }

    synchronized boolean hasEnded() {
      return end != null;
    }

    @Override
    public synchronized void onNext(ExecuteResponse response) {
      answer.complete(response);
    }

    @Override
    public synchronized void onError(Throwable error) {
      end = error;
      answer.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      String text = "the stream of lists ended without an answer";
      onError(Status.CANCELLED.withDescription(text).asRuntimeException());
    }
  }

  /**
   * Sends a list, and returns its answer; throws {@link StatusRuntimeException} as a call does. A
   * cancelled context or an interrupted thread ends the stream.
   */
  synchronized ExecuteResponse ask(ExecuteRequest request) {
    Context context = Context.current();
    if (context.isCancelled()) {
      throw Contexts.statusFromCancelled(context).asRuntimeException();
    }
    Running stream = usable();
    CompletableFuture<ExecuteResponse> answer = stream.next();
    stream.call.onNext(request);
    Context.CancellationListener giveUp =
        cancelled -> stream.call.cancel("the context is cancelled", cancelled.cancellationCause());
    context.addListener(giveUp, Runnable::run);
    try {
      return Upload.await(answer, stream.call);
    } catch (StatusRuntimeException error) {
      running = null;
      throw error;
    } finally {
      context.removeListener(giveUp);
      used = System.nanoTime();
    }
  }

  /** Returns the stream, or begins another, which no caller's context bounds. */
  private Running usable() {
    boolean idled = !maxIdle.isZero() && System.nanoTime() - used > maxIdle.toNanos();
    if (running == null || idled || running.hasEnded()) {
      close();
      Running begun = new Running();
      Context.ROOT.run(() -> stub.executeStream(begun));
      running = begun;
    }
    return running;
  }

  /** Ends the stream in order; the next list begins another. */
  synchronized void close() {
    if (running != null && !running.hasEnded()) {
      running.call.onCompleted();
    }
    running = null;
  }
}
