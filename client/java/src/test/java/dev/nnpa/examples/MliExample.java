// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import com.google.protobuf.ByteString;
import dev.nnpa.Endpoint;
import dev.nnpa.NnpaException;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.FullyConnected;
import dev.nnpa.mli.v1.FxParams;
import dev.nnpa.mli.v1.Kernel;
import dev.nnpa.mli.v1.KernelResult;
import dev.nnpa.mli.v1.MliServiceGrpc;
import dev.nnpa.mli.v1.MliStatus;
import dev.nnpa.mli.v1.RunKernelRequest;
import dev.nnpa.mli.v1.Tensor;
import dev.nnpa.mli.v1.TensorRef;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/** One fixed-point kernel of embARC MLI, by the generated messages. */
public final class MliExample {
  private MliExample() {}

  /** Returns weights * in + bias, all of whole numbers: a fully connected layer in fx16. */
  public static short[] fullyConnected(String target, short[] in, short[] weights, short[] bias) {
    TensorRef.Builder room = TensorRef.newBuilder();
    room.getInlineBuilder().setZeroBytes(2 * bias.length).setFx(FxParams.getDefaultInstance());
    FullyConnected.Builder layer =
        FullyConnected.newBuilder()
            .setIn(whole(in, in.length))
            .setWeights(whole(weights, bias.length, in.length))
            .setBias(whole(bias, bias.length))
            .setOut(room);
    ManagedChannel channel = Endpoint.of(target).channel();
    try {
      Kernel kernel = Kernel.newBuilder().setKrnFullyConnectedFx16(layer).build();
      RunKernelRequest request = RunKernelRequest.newBuilder().addKernels(kernel).build();
      KernelResult result =
          MliServiceGrpc.newBlockingStub(channel).runKernel(request).getResults(0);
      if (result.getMliStatus() != MliStatus.MLI_STATUS_OK) {
        throw new IllegalStateException(result.getRefusal().getText());
      }
      ByteBuffer data = result.getOutputs(0).getTensor().getData().asReadOnlyByteBuffer();
      short[] out = new short[bias.length];
      data.order(ByteOrder.LITTLE_ENDIAN).asShortBuffer().get(out);
      return out;
    } catch (StatusRuntimeException error) {
      throw NnpaException.of(error, target);
    } finally {
      channel.shutdownNow();
    }
  }

  /** A tensor of whole numbers: no fractional bits. */
  private static TensorRef whole(short[] values, Integer... shape) {
    ByteBuffer data = ByteBuffer.allocate(2 * values.length).order(ByteOrder.LITTLE_ENDIAN);
    data.asShortBuffer().put(values);
    Tensor.Builder tensor =
        Tensor.newBuilder()
            .setData(ByteString.copyFrom(data))
            .addAllShape(List.of(shape))
            .setElType(ElType.MLI_EL_FX_16)
            .setFx(FxParams.getDefaultInstance());
    return TensorRef.newBuilder().setInline(tensor).build();
  }
}
