// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Empty;
import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc;
import dev.nnpa.zdnn.v1.CreateSessionRequest;
import dev.nnpa.zdnn.v1.DeleteSessionRequest;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A server that opens and closes sessions, and keeps the authorization of every call. */
final class RecordingServer implements AutoCloseable {
  private final List<String> authorizations = new CopyOnWriteArrayList<>();
  private final Server server;

  RecordingServer() throws IOException {
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
            .addService(new Sessions())
            .intercept(new Recorder())
            .build()
            .start();
  }

  private static final class Sessions extends AcceleratorServiceGrpc.AcceleratorServiceImplBase {
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
  }

  private final class Recorder implements ServerInterceptor {
    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
      Metadata.Key<String> key = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
      authorizations.add(headers.get(key));
      return next.startCall(call, headers);
    }
  }

  String target() {
    return "127.0.0.1:" + server.getPort();
  }

  List<String> authorizations() {
    return authorizations;
  }

  @Override
  public void close() {
    server.shutdownNow();
  }
}
