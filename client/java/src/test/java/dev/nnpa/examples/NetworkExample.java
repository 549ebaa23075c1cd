// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import com.google.protobuf.ByteString;
import dev.nnpa.Endpoint;
import dev.nnpa.NnpaException;
import dev.nnpa.Session;
import dev.nnpa.UserArray;
import dev.nnpa.network.v1.AiErrorType;
import dev.nnpa.network.v1.Buffer;
import dev.nnpa.network.v1.CreateNetworkHeader;
import dev.nnpa.network.v1.CreateNetworkRequest;
import dev.nnpa.network.v1.CreateNetworkResponse;
import dev.nnpa.network.v1.DestroyNetworkRequest;
import dev.nnpa.network.v1.GetNetworkInfoRequest;
import dev.nnpa.network.v1.InferNetworkRequest;
import dev.nnpa.network.v1.InitNetworkRequest;
import dev.nnpa.network.v1.NamedArray;
import dev.nnpa.network.v1.Network;
import dev.nnpa.network.v1.NetworkParams;
import dev.nnpa.network.v1.NetworkServiceGrpc;
import dev.nnpa.network.v1.NetworkServiceGrpc.NetworkServiceBlockingStub;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** An ONNX model as a hosted network, with X-CUBE-AI's life cycle: create, init, run, destroy. */
public final class NetworkExample {
  private static final int CHUNK_BYTES = 1 << 20;

  private NetworkExample() {}

  /** Feeds the first input of a model, of fixed shape, and returns its first output, both FP32. */
  public static float[] infer(String target, byte[] model, float... input) {
    ManagedChannel channel = Endpoint.of(target).channel();
    try (Session session = Session.connect(target)) {
      NetworkServiceBlockingStub networks = NetworkServiceGrpc.newBlockingStub(channel);
      Network network = create(channel, session.name(), ByteString.copyFrom(model));
      init(networks, session.name(), network.getName());
      NamedArray.Builder array =
          NamedArray.newBuilder()
              .setName(network.getInputs(0).getName())
              .setDtype("float32")
              .addAllShape(network.getInputs(0).getShapeList())
              .setData(ByteString.copyFrom(UserArray.of(input).buffer()));
      InferNetworkRequest.Builder request = InferNetworkRequest.newBuilder().addInputs(array);
      request.setSession(session.name()).setNetwork(network.getName());
      ByteString output = networks.inferNetwork(request.build()).getOutputs(0).getData();
      DestroyNetworkRequest.Builder end = DestroyNetworkRequest.newBuilder();
      networks.destroyNetwork(end.setSession(session.name()).setNetwork(network.getName()).build());
      return UserArray.wrap(output.asReadOnlyByteBuffer()).floats();
    } catch (StatusRuntimeException error) {
      throw NnpaException.of(error, target);
    } finally {
      channel.shutdownNow();
    }
  }

  /** Sends the model in chunks: ai_name_create. */
  private static Network create(ManagedChannel channel, String session, ByteString model) {
    Answer answer = new Answer();
    StreamObserver<CreateNetworkRequest> parts =
        NetworkServiceGrpc.newStub(channel).createNetwork(answer);
    CreateNetworkHeader.Builder header =
        CreateNetworkHeader.newBuilder().setSession(session).setOnnxBytes(model.size());
    parts.onNext(CreateNetworkRequest.newBuilder().setHeader(header).build());
    for (int start = 0; start < model.size(); start += CHUNK_BYTES) {
      ByteString chunk = model.substring(start, Math.min(start + CHUNK_BYTES, model.size()));
      parts.onNext(CreateNetworkRequest.newBuilder().setChunk(chunk).build());
    }
    parts.onCompleted();
    CreateNetworkResponse created = answer.get();
    if (created.getError().getType() != AiErrorType.AI_ERROR_NONE) {
      throw new IllegalStateException(created.getError().toString());
    }
    return created.getNetwork();
  }

  /** Binds the model's own weights, and activations as the report asks for: ai_name_init. */
  private static void init(NetworkServiceBlockingStub networks, String session, String network) {
    var info = GetNetworkInfoRequest.newBuilder().setSession(session).setNetwork(network).build();
    var report = networks.getNetworkInfo(info).getReport();
    Buffer.Builder activations =
        Buffer.newBuilder()
            .setChannels(report.getActivations().getChannels())
            .setData(ByteString.EMPTY);
    NetworkParams.Builder params =
        NetworkParams.newBuilder()
            .setParams(Buffer.getDefaultInstance())
            .setActivations(activations);
    InitNetworkRequest.Builder request = InitNetworkRequest.newBuilder().setParams(params);
    if (!networks.initNetwork(request.setSession(session).setNetwork(network).build()).getOk()) {
      throw new IllegalStateException("init: GetNetworkError tells why");
    }
  }

  /** The one answer of a call that streams requests. */
  private static final class Answer implements StreamObserver<CreateNetworkResponse> {
    private final CompletableFuture<CreateNetworkResponse> answer = new CompletableFuture<>();

    @Override
    public void onNext(CreateNetworkResponse response) {
      answer.complete(response);
    }

    @Override
    public void onError(Throwable error) {
      answer.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      answer.completeExceptionally(Status.INTERNAL.asRuntimeException());
    }

    CreateNetworkResponse get() {
      try {
        return answer.join();
      } catch (CompletionException error) {
        throw (StatusRuntimeException) error.getCause();
      }
    }
  }
}
