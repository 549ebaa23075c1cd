// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc;
import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc.AcceleratorServiceBlockingStub;
import dev.nnpa.zdnn.v1.CreateSessionRequest;
import dev.nnpa.zdnn.v1.DeleteSessionRequest;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.ExecuteResponse;
import dev.nnpa.zdnn.v1.GetMachineRequest;
import dev.nnpa.zdnn.v1.ListMachinesRequest;
import dev.nnpa.zdnn.v1.ListMachinesResponse;
import dev.nnpa.zdnn.v1.Machine;
import dev.nnpa.zdnn.v1.ReadTensorRequest;
import dev.nnpa.zdnn.v1.ReadTensorResponse;
import io.grpc.Channel;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.Function;

/** A connection over gRPC: TCP, TLS or a Unix socket. */
final class GrpcTransport implements Transport {
  private static final String GIVE_CA =
      "Give Endpoint.withTls, or set ZDNN_TLS_CA: the file with the certificate that signs the"
          + " server's.";

  private final Endpoint endpoint;
  private final ManagedChannel channel;
  private final AcceleratorServiceBlockingStub stub;
  private volatile String ticket = "";
  private volatile boolean closed;
  private volatile ListStream lists;

  GrpcTransport(Endpoint endpoint) {
    this.endpoint = endpoint;
    this.channel = endpoint.channel();
    this.stub = AcceleratorServiceGrpc.newBlockingStub(channel);
  }

  @Override
  public String target() {
    return endpoint.target();
  }

  @Override
  public String ticket() {
    return ticket;
  }

  private static <S extends AbstractStub<S>> S within(S stub, Duration bound) {
    return bound == null ? stub : stub.withDeadlineAfter(bound.toNanos(), TimeUnit.NANOSECONDS);
  }

  /** Makes a call outside of a session. */
  private <T> T call(Function<AcceleratorServiceBlockingStub, T> method) {
    try {
      return method.apply(within(stub, endpoint.connectTimeout()));
    } catch (StatusRuntimeException error) {
      NnpaException failure = NnpaException.of(error, target());
      if (failure instanceof TransportException lost
          && lost.code().equals("UNAVAILABLE")
          && lost.reason().isEmpty()
          && endpoint.lacksTls()) {
        throw new TransportException("UNAVAILABLE", target() + " speaks TLS", GIVE_CA, error);
      }
      throw failure;
    }
  }

  /** Makes a call of the session, with its routing ticket. */
  private <S extends AbstractStub<S>, T> T inSession(
      S service, Duration bound, Function<S, T> method) {
    try {
      return method.apply(Ticket.attached(within(service, bound), ticket));
    } catch (StatusRuntimeException error) {
      throw ofSession(error);
    }
  }

  private NnpaException ofSession(StatusRuntimeException error) {
    if (closed) {
      String text = target() + ": the session is closed";
      return new TransportException("CANCELLED", text, "Call Session.connect again.", error);
    }
    boolean givenUp = Context.current().isCancelled() || Thread.currentThread().isInterrupted();
    return givenUp ? NnpaException.of(error, target()) : NnpaException.inSession(error, target());
  }

  @Override
  public ListMachinesResponse listMachines(ListMachinesRequest request) {
    return call(timed -> timed.listMachines(request));
  }

  @Override
  public Machine getMachine(GetMachineRequest request) {
    return call(timed -> timed.getMachine(request));
  }

  @Override
  public dev.nnpa.zdnn.v1.Session createSession(CreateSessionRequest request) {
    // The ticket of a trace leads to its server behind a proxy.
    boolean traced = !request.getSession().getTrace().isEmpty();
    String given = traced ? System.getenv().getOrDefault("ZDNN_TICKET", "") : "";
    AtomicReference<Metadata> headers = new AtomicReference<>();
    dev.nnpa.zdnn.v1.Session session =
        call(
            timed ->
                Ticket.captured(Ticket.attached(timed, given), headers).createSession(request));
    ticket = Ticket.in(headers.get(), given);
    if (!endpoint.plain()) {
      long idle = session.getLimits().getIdleTimeout().getSeconds();
      Duration half = Duration.ofMillis(idle * 500); // What the server ends is far from it.
      lists =
          new ListStream(Ticket.attached(AcceleratorServiceGrpc.newStub(channel), ticket), half);
    }
    return session;
  }

  @Override
  public void deleteSession(DeleteSessionRequest request) {
    if (lists != null) {
      lists.close();
    }
    inSession(stub, endpoint.connectTimeout(), timed -> timed.deleteSession(request));
  }

  @Override
  public ExecuteResponse execute(ExecuteRequest request) {
    // A stream has no deadline for each list.
    boolean bounded = endpoint.timeout() != null || Context.current().getDeadline() != null;
    ListStream stream = lists;
    if (stream != null && !bounded) {
      try {
        return stream.ask(request);
      } catch (StatusRuntimeException error) {
        NnpaException failure = ofSession(error);
        if (!hasNoStream(failure)) {
          throw failure;
        }
        lists = null;
      }
    }
    return inSession(stub, endpoint.timeout(), timed -> timed.execute(request));
  }

  /** Returns whether the server has no stream left, or is too old to have streams. */
  private static boolean hasNoStream(NnpaException failure) {
    return failure instanceof TransportException refused
        && ("max_conversations".equals(refused.metadata().get("field"))
            || refused.code().equals("UNIMPLEMENTED") && refused.reason().isEmpty());
  }

  @Override
  public <S extends AbstractStub<S>, T> T call(Function<Channel, S> stub, Function<S, T> method) {
    return inSession(stub.apply(channel), endpoint.timeout(), method);
  }

  @Override
  public void readTensor(ReadTensorRequest request, Consumer<ReadTensorResponse> sink) {
    Function<AcceleratorServiceBlockingStub, Void> reading =
        timed -> {
          timed.readTensor(request).forEachRemaining(sink);
          return null;
        };
    // Leaving the context ends a stream whose reader has failed.
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      context.run(() -> inSession(stub, endpoint.timeout(), reading));
    }
  }

  @Override
  public void close() {
    closed = true;
    channel.shutdownNow();
  }
}
