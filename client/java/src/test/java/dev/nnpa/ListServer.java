// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Empty;
import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc;
import dev.nnpa.zdnn.v1.CreateSessionRequest;
import dev.nnpa.zdnn.v1.DeleteSessionRequest;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.ExecuteResponse;
import dev.nnpa.zdnn.v1.ListTensorsRequest;
import dev.nnpa.zdnn.v1.ListTensorsResponse;
import io.grpc.Server;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/** A server that counts the streams and calls on which lists come, and does with them as told. */
final class ListServer implements AutoCloseable {
  final AtomicInteger streams = new AtomicInteger();
  final AtomicInteger calls = new AtomicInteger();
  private final Consumer<StreamObserver<ExecuteResponse>> serve;
  private final StatusRuntimeException refusal;
  private final Server server;

  /** Serves the lists of streams by {@code serve}, and those of calls with an empty answer. */
  ListServer(Consumer<StreamObserver<ExecuteResponse>> serve) throws IOException {
    this(serve, null);
  }

  /** Refuses lists, on streams and in calls. */
  ListServer(StatusRuntimeException refusal) throws IOException {
    this(answer -> answer.onError(refusal), refusal);
  }

  private ListServer(
      Consumer<StreamObserver<ExecuteResponse>> serve, StatusRuntimeException refusal)
      throws IOException {
    this.serve = serve;
    this.refusal = refusal;
    this.server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
            .addService(new Lists())
            .build()
            .start();
  }

  private final class Lists extends AcceleratorServiceGrpc.AcceleratorServiceImplBase {
    @Override
    public void createSession(
        CreateSessionRequest request, StreamObserver<dev.nnpa.zdnn.v1.Session> answer) {
      answer.onNext(dev.nnpa.zdnn.v1.Session.newBuilder().setName("sessions/1").build());
      answer.onCompleted();
    }

    @Override
    public void deleteSession(DeleteSessionRequest request, StreamObserver<Empty> answer) {
      answer.onNext(Empty.getDefaultInstance());
      answer.onCompleted();
    }

    @Override
    public void listTensors(
        ListTensorsRequest request, StreamObserver<ListTensorsResponse> answer) {
      answer.onNext(ListTensorsResponse.getDefaultInstance());
      answer.onCompleted();
    }

    @Override
    public void execute(ExecuteRequest request, StreamObserver<ExecuteResponse> answer) {
      calls.incrementAndGet();
      if (refusal == null) {
        answer.onNext(ExecuteResponse.getDefaultInstance());
        answer.onCompleted();
      } else {
        answer.onError(refusal);
      }
    }

    @Override
    public StreamObserver<ExecuteRequest> executeStream(StreamObserver<ExecuteResponse> answer) {
      streams.incrementAndGet();
      return new StreamObserver<>() {
        @Override
        public void onNext(ExecuteRequest request) {
          serve.accept(answer);
        }

        @Override
        public void onError(Throwable error) {
          // The client has given the stream up.
        }

        @Override
        public void onCompleted() {
          answer.onCompleted();
        }
      };
    }
  }

  Endpoint endpoint() {
    return Endpoint.of("127.0.0.1:" + server.getPort(), Map.of());
  }

  /** Returns how many streams and how many calls have come. */
  String counts() {
    return streams.get() + " streams, " + calls.get() + " calls";
  }

  @Override
  public void close() {
    server.shutdownNow();
  }
}
