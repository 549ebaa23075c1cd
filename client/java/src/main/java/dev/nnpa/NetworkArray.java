// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.nnpa.network.v1.NamedArray;
import dev.nnpa.network.v1.Port;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * An array of a hosted network: its elements, row-major, and its sizes, outermost first.
 *
 * <p>Elements are float[], double[], byte[] (int8, uint8), short[] (int16, uint16, and the bits of
 * float16 and bfloat16), int[] (int32, uint32), long[] (int64, uint64), boolean[] or String[].
 */
public final class NetworkArray {
  private static final String TEXT = "object";

  /** Java's array of each of a model's types, by NumPy's names. */
  private static final Map<String, Class<?>> ARRAYS =
      Map.ofEntries(
          Map.entry("float32", float[].class),
          Map.entry("float64", double[].class),
          Map.entry("float16", short[].class),
          Map.entry("bfloat16", short[].class),
          Map.entry("int8", byte[].class),
          Map.entry("int16", short[].class),
          Map.entry("int32", int[].class),
          Map.entry("int64", long[].class),
          Map.entry("uint8", byte[].class),
          Map.entry("uint16", short[].class),
          Map.entry("uint32", int[].class),
          Map.entry("uint64", long[].class),
          Map.entry("bool", boolean[].class),
          Map.entry(TEXT, String[].class));

  private final Object data;
  private final List<Long> shape;

  private NetworkArray(Object data, List<Long> shape) {
    this.data = data;
    this.shape = shape;
  }

  /**
   * Returns an array of elements, one of the types above, and a shape; without a shape, the array
   * takes the input's, with one free dim filled.
   */
  public static NetworkArray of(Object data, long... shape) {
    if (data == null || !ARRAYS.containsValue(data.getClass())) {
      String type = data == null ? "null" : data.getClass().getSimpleName();
      throw new IllegalArgumentException("data: " + type + ", expected an array such as float[]");
    }
    return new NetworkArray(data, LongStream.of(shape).boxed().toList());
  }

  /** Returns the sizes, outermost first; of an input without a shape, none. */
  public List<Long> shape() {
    return shape;
  }

  /** Returns the elements, an array of one of the types above. */
  public Object data() {
    return data;
  }

  /** Returns FP32 elements; throws ClassCastException for others. */
  public float[] floats() {
    return (float[]) data;
  }

  /** Returns int64 elements; throws ClassCastException for others. */
  public long[] longs() {
    return (long[]) data;
  }

  /** Returns texts; throws ClassCastException for other elements. */
  public String[] strings() {
    return (String[]) data;
  }

  /** Returns "x float32[2, 3]". */
  static String describe(Port port) {
    return port.getName() + " " + port.getDtype() + port.getShapeList();
  }

  /** Returns the array as an input; throws for an array of another type or shape. */
  NamedArray encode(Port port) {
    Class<?> expected = ARRAYS.getOrDefault(port.getDtype(), byte[].class);
    if (data.getClass() != expected) {
      String type = port.getDtype() + " (" + expected.getSimpleName() + ")";
      throw refusal(port, "got " + data.getClass().getSimpleName() + ", expected " + type);
    }
    long count = Array.getLength(data);
    List<Long> sizes = shape.isEmpty() ? inferred(port, count) : checked(port, count);
    return NamedArray.newBuilder()
        .setName(port.getName())
        .setDtype(port.getDtype())
        .addAllShape(sizes)
        .setData(bytes())
        .build();
  }

  private static IllegalArgumentException refusal(Port port, String text) {
    return new IllegalArgumentException("input " + port.getName() + ": " + text);
  }

  private static List<Long> inferred(Port port, long count) {
    List<Long> sizes = port.getShapeList();
    long free = sizes.stream().filter(size -> size < 0).count();
    long fixed = sizes.stream().filter(size -> size >= 0).reduce(1L, (a, b) -> a * b);
    if (free > 1) {
      throw refusal(port, sizes + " has " + free + " free dims, give a shape");
    }
    boolean fills = free == 0 ? count == fixed : fixed > 0 && count % fixed == 0;
    if (!fills) {
      throw refusal(port, "got " + count + " elements, expected " + sizes);
    }
    return sizes.stream().map(size -> size < 0 ? count / fixed : size).toList();
  }

  private List<Long> checked(Port port, long count) {
    List<Long> sizes = port.getShapeList();
    boolean fits = sizes.size() == shape.size();
    for (int i = 0; fits && i < shape.size(); i++) {
      long size = shape.get(i);
      fits = size >= 0 && (sizes.get(i) < 0 || sizes.get(i) == size);
    }
    if (!fits) {
      String type = port.getDtype() + " ";
      throw refusal(port, "got " + type + shape + ", expected " + type + sizes);
    }
    if (shape.stream().reduce(1L, (a, b) -> a * b) != count) {
      throw refusal(port, count + " elements do not fill shape " + shape);
    }
    return shape;
  }

  private ByteString bytes() {
    return data instanceof String[] texts
        ? joined(texts)
        : UnsafeByteOperations.unsafeWrap(Elements.of(data));
  }

  private static ByteString joined(String... texts) {
    List<ByteString> parts = new ArrayList<>();
    for (String text : texts) { // source: NamedArray.data, the length before each text
      ByteString characters = ByteString.copyFromUtf8(text);
      ByteBuffer length = Elements.of(new int[] {characters.size()});
      parts.addAll(List.of(ByteString.copyFrom(length), characters));
    }
    return ByteString.copyFrom(parts);
  }

  /** Returns the array of a message; its bytes if Java has no array of the type. */
  static NetworkArray decode(NamedArray message) {
    ByteBuffer bytes = message.getData().asReadOnlyByteBuffer().slice();
    Class<?> type = ARRAYS.getOrDefault(message.getDtype(), byte[].class);
    Object data = type == String[].class ? split(bytes) : Elements.array(bytes, type);
    return new NetworkArray(data, List.copyOf(message.getShapeList()));
  }

  private static String[] split(ByteBuffer bytes) {
    List<String> texts = new ArrayList<>();
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    while (bytes.hasRemaining()) {
      byte[] characters = new byte[bytes.getInt()];
      bytes.get(characters);
      texts.add(new String(characters, StandardCharsets.UTF_8));
    }
    return texts.toArray(String[]::new);
  }

  /** Returns type and sizes, in one line. */
  @Override
  public String toString() {
    String sizes = shape.stream().map(String::valueOf).collect(Collectors.joining("x"));
    return "NetworkArray[" + data.getClass().getComponentType().getSimpleName() + " " + sizes + "]";
  }
}
