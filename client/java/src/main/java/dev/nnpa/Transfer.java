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
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** Data on its way: user arrays and sticks, inline when small, in chunks when large. */
final class Transfer {
  // Above this, chunks are faster than one message.
  private static final long INLINE_BYTES = 1 << 19;

  private Transfer() {}

  private static boolean exceedsMessage(Ztensor ztensor, double bytes) {
    long limit = Math.min(INLINE_BYTES, ztensor.guest.limits.getMaxInlineBytes());
    return ztensor.id() != 0 && bytes > limit;
  }

  /** Sends user arrays to a transform; {@code make} puts them, or none, into its operation. */
  static Ztensor transform(
      String op, Ztensor ztensor, Function<List<ByteString>, Operation> make, UserArray... data) {
    Verb verb = new Verb(op, ztensor);
    DataTypes type = ztensor.preTransformedDesc().getType();
    long total = 0;
    for (UserArray array : data) {
      array.check(type);
      total += array.size();
    }
    boolean empty = ztensor.id() == 0;
    List<ByteString> carried = empty ? List.of() : Stream.of(data).map(UserArray::carried).toList();
    boolean streamed = exceedsMessage(ztensor, total);
    verb.operation = make.apply(streamed ? List.of() : carried);
    verb.read = ztensor::keepFlags;
    if (streamed) {
      WriteArrays.Builder arrays = WriteArrays.newBuilder().setOperation(verb.operation);
      carried.forEach(array -> arrays.addArrayBytes(array.size()));
      write(verb, WriteTensorHeader.newBuilder().setArrays(arrays), carried);
    } else {
      verb.guest.submit(List.of(verb));
    }
    return ztensor;
  }

  private static void write(Verb verb, WriteTensorHeader.Builder header, List<ByteString> arrays) {
    Guest guest = verb.guest;
    guest.flush();
    var first = WriteTensorRequest.newBuilder().setHeader(header.setSession(guest.name)).build();
    Iterator<WriteTensorRequest> parts =
        Upload.parts(
            first, chunk -> WriteTensorRequest.newBuilder().setChunk(chunk).build(), arrays);
    OperationResult result;
    try {
      result = guest.transport.writeTensor(parts).getResult();
    } catch (NnpaException error) {
      guest.markUncertain();
      Guest.invalidate(List.of(verb), "the call that makes it failed");
      throw error;
    }
    guest.conclude(verb, result);
  }

  /** Fetches the user's array, at once. */
  static UserArray origtensor(Ztensor ztensor) {
    Verb verb = new Verb("transform_origtensor", ztensor);
    DataTypes type = ztensor.preTransformedDesc().getType();
    Sink sink = new Sink(null);
    fetch(verb, ztensor, sink, denseBytes(ztensor));
    verb.guest.flush();
    return UserArray.received(sink.filled(), type);
  }

  /** Fetches the user's array into {@code data}; a pipeline may defer it. */
  static void origtensor(Ztensor ztensor, UserArray data) {
    Verb verb = new Verb("transform_origtensor", ztensor);
    fetch(verb, ztensor, new Sink(data.buffer()), data.size());
  }

  private static void fetch(Verb verb, Ztensor ztensor, Sink sink, double size) {
    TransformOrigtensor.Builder arm = TransformOrigtensor.newBuilder().setZtensor(ztensor.ref());
    Operation.Builder operation = Operation.newBuilder().setTransformOrigtensor(arm);
    Consumer<OperationResult> flags = ztensor::keepFlags;
    if (exceedsMessage(ztensor, size)) {
      verb.read = flags;
      read(verb, ReadTensorRequest.newBuilder().setOperation(operation), sink);
    } else {
      verb.read = flags.andThen(sink::add);
      verb.run(operation);
    }
  }

  /** Returns an upper bound for the bytes of the dense array. */
  private static double denseBytes(Ztensor ztensor) {
    TensorDesc desc = ztensor.transformedDesc();
    return IntStream.of(desc.getDim4(), desc.getDim3(), desc.getDim2(), desc.getDim1())
        .mapToDouble(Integer::toUnsignedLong)
        .reduce(UserArray.width(ztensor.preTransformedDesc().getType()), (a, b) -> a * b);
  }

  /**
   * Collects an answer in a buffer of the announced size: the caller's, or a new one; of a stream,
   * its header has the size and its chunks the contents.
   */
  private static final class Sink implements Consumer<ReadTensorResponse> {
    private ByteBuffer buffer;
    private OperationResult result = OperationResult.getDefaultInstance();

    Sink(ByteBuffer own) {
      buffer = own;
    }

    private void expect(long total) {
      if (buffer == null) {
        buffer = Elements.room(Math.toIntExact(total));
      } else if (buffer.remaining() != total) {
        throw new IllegalArgumentException(
            "data: " + buffer.remaining() + " bytes, expected " + total);
      }
    }

    void add(OperationResult answer) {
      if (answer.hasData()) {
        expect(answer.getData().size());
        answer.getData().copyTo(buffer);
      }
    }

    @Override
    public void accept(ReadTensorResponse part) {
      if (!part.hasHeader()) {
        part.getChunk().copyTo(buffer);
        return;
      }
      result = part.getHeader().getResult();
      if (part.getHeader().getTotalBytes() > 0) {
        expect(part.getHeader().getTotalBytes());
      }
    }

    ByteBuffer filled() {
      return buffer == null ? ByteBuffer.allocate(0) : buffer.flip();
    }
  }

  /** Reads a stream into the sink, then throws for the status that came first. */
  private static void read(Verb verb, ReadTensorRequest.Builder request, Sink sink) {
    verb.guest.flush();
    verb.guest.transport.readTensor(request.setSession(verb.guest.name).build(), sink);
    verb.guest.conclude(verb, sink.result);
  }

  /** Fetches the sticks of a buffer. */
  static ByteBuffer readSticks(Ztensor ztensor) {
    Sink sink = new Sink(null);
    ReadSticks.Builder source = ReadSticks.newBuilder().setId(ztensor.id());
    Verb verb = new Verb("read_sticks", ztensor);
    read(verb, ReadTensorRequest.newBuilder().setSticks(source), sink);
    return sink.filled();
  }

  /** Replaces the sticks of a buffer. */
  static void writeSticks(Ztensor ztensor, ByteBuffer sticks) {
    var target = WriteSticks.newBuilder().setId(ztensor.id()).setIsTransformed(true);
    write(new Verb("write_sticks", ztensor), target, sticks);
  }

  /** Creates a tensor from a structure as it stands; {@code sticks} null is C's NULL. */
  static Ztensor put(Guest guest, dev.nnpa.zdnn.v1.Ztensor structure, ByteBuffer sticks) {
    Verb verb = new Verb("put_ztensor", guest);
    verb.output("ztensor", null);
    Ztensor ztensor = verb.tensor("ztensor");
    var sent = structure.toBuilder().clearContents().setNullBuffer(sticks == null);
    WriteSticks.Builder target = WriteSticks.newBuilder().setId(ztensor.id()).setNewZtensor(sent);
    write(verb, target, sticks == null ? ByteBuffer.allocate(0) : sticks);
    return ztensor;
  }

  private static void write(Verb verb, WriteSticks.Builder target, ByteBuffer sticks) {
    target.setTotalBytes(sticks.remaining());
    List<ByteString> arrays = List.of(UserArray.wrap(sticks).carried());
    write(verb, WriteTensorHeader.newBuilder().setSticks(target), arrays);
  }
}
