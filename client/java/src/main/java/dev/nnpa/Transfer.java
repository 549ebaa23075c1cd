// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.ReadSticks;
import dev.nnpa.zdnn.v1.ReadTensorRequest;
import dev.nnpa.zdnn.v1.ReadTensorResponse;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.TransformOrigtensor;
import dev.nnpa.zdnn.v1.WriteArrays;
import dev.nnpa.zdnn.v1.WriteSticks;
import dev.nnpa.zdnn.v1.WriteTensorHeader;
import dev.nnpa.zdnn.v1.WriteTensorRequest;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** Data on its way: user arrays and sticks, inline when small, in chunks when large. */
final class Transfer {
  // Above this, chunks are faster than one message.
  private static final long INLINE_BYTES = 1 << 19;

  private Transfer() {}

  private static long inlineBytes(Guest guest) {
    return Math.min(INLINE_BYTES, guest.limits.getMaxInlineBytes());
  }

  /** Sends user arrays to a transform; {@code make} puts them, or none, into its operation. */
  static Ztensor transform(
      String op, Ztensor ztensor, Function<List<ByteString>, Operation> make, UserArray... data) {
    Guest guest = Verb.guestOf("ztensor", ztensor);
    DataTypes type = ztensor.preTransformedDesc().getType();
    long total = 0;
    for (UserArray array : data) {
      array.check(type);
      total += array.size();
    }
    boolean empty = ztensor.id() == 0;
    List<ByteString> carried = empty ? List.of() : Stream.of(data).map(UserArray::carried).toList();
    boolean streamed = !empty && total > inlineBytes(guest);
    Operation operation = make.apply(streamed ? List.of() : carried);
    Call call = new Call(op, operation, Map.of("ztensor", ztensor), List.of(), keepFlags(ztensor));
    if (streamed) {
      WriteArrays.Builder arrays = WriteArrays.newBuilder().setOperation(operation);
      carried.forEach(array -> arrays.addArrayBytes(array.size()));
      write(guest, call, WriteTensorHeader.newBuilder().setArrays(arrays), carried);
    } else {
      guest.submit(call);
    }
    return ztensor;
  }

  private static Consumer<OperationResult> keepFlags(Ztensor ztensor) {
    return result -> ztensor.raise(result.getFpFlags());
  }

  private static void write(
      Guest guest, Call call, WriteTensorHeader.Builder header, List<ByteString> arrays) {
    guest.flush();
    WriteTensorRequest first =
        WriteTensorRequest.newBuilder().setHeader(header.setSession(guest.name)).build();
    Iterator<WriteTensorRequest> parts =
        Upload.parts(
            first, chunk -> WriteTensorRequest.newBuilder().setChunk(chunk).build(), arrays);
    OperationResult result;
    try {
      result = guest.transport.writeTensor(parts).getResult();
    } catch (NnpaException error) {
      guest.markUncertain();
      call.creates().forEach(ztensor -> ztensor.invalidate("the call that makes it failed"));
      throw error;
    }
    guest.applyResult(call, result);
    guest.throwForStatus(call, result, -1);
  }

  /** Fetches the user's array, at once. */
  static UserArray origtensor(Ztensor ztensor) {
    Guest guest = Verb.guestOf("ztensor", ztensor);
    DataTypes type = ztensor.preTransformedDesc().getType();
    Sink sink = new Sink(null);
    fetch(ztensor, sink, denseBytes(ztensor));
    guest.flush();
    return UserArray.received(sink.filled(), type);
  }

  /** Fetches the user's array into {@code data}; a pipeline may defer it. */
  static void origtensor(Ztensor ztensor, UserArray data) {
    fetch(ztensor, new Sink(data.buffer()), data.size());
  }

  private static void fetch(Ztensor ztensor, Sink sink, double size) {
    Guest guest = Verb.guestOf("ztensor", ztensor);
    TransformOrigtensor.Builder arm = TransformOrigtensor.newBuilder().setZtensor(ztensor.ref());
    Operation operation = Operation.newBuilder().setTransformOrigtensor(arm).build();
    Map<String, Ztensor> tensors = Map.of("ztensor", ztensor);
    Consumer<OperationResult> flags = keepFlags(ztensor);
    String op = "transform_origtensor";
    if (ztensor.id() != 0 && size > inlineBytes(guest)) {
      ReadTensorRequest.Builder request = ReadTensorRequest.newBuilder().setOperation(operation);
      read(guest, new Call(op, operation, tensors, List.of(), flags), request, sink);
      return;
    }
    guest.submit(new Call(op, operation, tensors, List.of(), flags.andThen(sink::add)));
  }

  /** Returns an upper bound for the bytes of the dense array. */
  private static double denseBytes(Ztensor ztensor) {
    TensorDesc desc = ztensor.transformedDesc();
    return IntStream.of(desc.getDim4(), desc.getDim3(), desc.getDim2(), desc.getDim1())
        .mapToDouble(Integer::toUnsignedLong)
        .reduce(UserArray.width(ztensor.preTransformedDesc().getType()), (a, b) -> a * b);
  }

  /** Collects chunks in a buffer of the announced size: the caller's, or a new one. */
  private static final class Sink {
    private ByteBuffer buffer;

    Sink(ByteBuffer own) {
      buffer = own;
    }

    void expect(long total) {
      if (buffer == null) {
        buffer = Elements.room(Math.toIntExact(total));
      } else if (buffer.remaining() != total) {
        throw new IllegalArgumentException(
            "data: " + buffer.remaining() + " bytes, expected " + total);
      }
    }

    void add(OperationResult result) {
      if (result.hasData()) {
        expect(result.getData().size());
        result.getData().copyTo(buffer);
      }
    }

    void add(ByteString chunk) {
      chunk.copyTo(buffer);
    }

    ByteBuffer filled() {
      return buffer == null ? ByteBuffer.allocate(0) : buffer.flip();
    }
  }

  /** Reads a stream into the sink, then throws for the status that came first. */
  private static void read(Guest guest, Call call, ReadTensorRequest.Builder request, Sink sink) {
    guest.flush();
    OperationResult.Builder result = OperationResult.newBuilder();
    Consumer<ReadTensorResponse> part =
        message -> {
          if (message.hasHeader()) {
            result.mergeFrom(message.getHeader().getResult());
            if (message.getHeader().getTotalBytes() > 0) {
              sink.expect(message.getHeader().getTotalBytes());
            }
          } else {
            sink.add(message.getChunk());
          }
        };
    guest.transport.readTensor(request.setSession(guest.name).build(), part);
    guest.applyResult(call, result.build());
    guest.throwForStatus(call, result.build(), -1);
  }

  /** Fetches the sticks of a buffer. */
  static ByteBuffer readSticks(Ztensor ztensor) {
    Sink sink = new Sink(null);
    ReadSticks.Builder source = ReadSticks.newBuilder().setId(ztensor.id());
    Call call = new Call("read_sticks", Operation.getDefaultInstance(), Map.of("ztensor", ztensor));
    read(ztensor.guest(), call, ReadTensorRequest.newBuilder().setSticks(source), sink);
    return sink.filled();
  }

  /** Replaces the sticks of a buffer. */
  static void writeSticks(Ztensor ztensor, ByteBuffer sticks) {
    WriteSticks.Builder target =
        WriteSticks.newBuilder()
            .setId(ztensor.id())
            .setTotalBytes(sticks.remaining())
            .setIsTransformed(true);
    Call call =
        new Call("write_sticks", Operation.getDefaultInstance(), Map.of("ztensor", ztensor));
    WriteTensorHeader.Builder header = WriteTensorHeader.newBuilder().setSticks(target);
    write(ztensor.guest(), call, header, List.of(UserArray.wrap(sticks).carried()));
  }

  /**
   * Creates a tensor in the session from a structure as it stands; {@code sticks} null is C's NULL.
   */
  static Ztensor put(Guest guest, dev.nnpa.zdnn.v1.Ztensor structure, ByteBuffer sticks) {
    Ztensor ztensor = new Ztensor(guest, null, guest.newId());
    dev.nnpa.zdnn.v1.Ztensor.Builder sent =
        structure.toBuilder().clearContents().setNullBuffer(sticks == null);
    UserArray bytes = UserArray.wrap(sticks == null ? ByteBuffer.allocate(0) : sticks);
    WriteSticks.Builder target =
        WriteSticks.newBuilder()
            .setId(ztensor.id())
            .setNewZtensor(sent)
            .setTotalBytes(bytes.size());
    Map<String, Ztensor> tensors = Map.of("ztensor", ztensor);
    Call call =
        new Call(
            "put_ztensor", Operation.getDefaultInstance(), tensors, List.of(ztensor), result -> {});
    write(guest, call, WriteTensorHeader.newBuilder().setSticks(target), List.of(bytes.carried()));
    return ztensor;
  }
}
