// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import dev.nnpa.network.v1.NamedArray;
import dev.nnpa.network.v1.Port;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

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
    List<Long> sizes = new ArrayList<>();
    for (long size : shape) {
      sizes.add(size);
    }
    return new NetworkArray(data, List.copyOf(sizes));
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
      throw new IllegalArgumentException(
          "input "
              + port.getName()
              + ": got "
              + data.getClass().getSimpleName()
              + ", expected "
              + port.getDtype()
              + " ("
              + expected.getSimpleName()
              + ")");
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

  private static List<Long> inferred(Port port, long count) {
    List<Long> sizes = port.getShapeList();
    String input = "input " + port.getName() + ": ";
    long free = sizes.stream().filter(size -> size < 0).count();
    long fixed = sizes.stream().filter(size -> size >= 0).reduce(1L, (a, b) -> a * b);
    if (free > 1) {
      throw new IllegalArgumentException(
          input + sizes + " has " + free + " free dims, give a shape");
    }
    boolean fills = free == 0 ? count == fixed : fixed > 0 && count % fixed == 0;
    if (!fills) {
      throw new IllegalArgumentException(input + "got " + count + " elements, expected " + sizes);
    }
    return sizes.stream().map(size -> size < 0 ? count / fixed : size).toList();
  }

  private List<Long> checked(Port port, long count) {
    List<Long> sizes = port.getShapeList();
    String input = "input " + port.getName() + ": ";
    boolean fits = sizes.size() == shape.size();
    for (int i = 0; fits && i < shape.size(); i++) {
      long size = shape.get(i);
      fits = size >= 0 && (sizes.get(i) < 0 || sizes.get(i) == size);
    }
    if (!fits) {
      String type = port.getDtype() + " ";
      throw new IllegalArgumentException(
          input + "got " + type + shape + ", expected " + type + sizes);
    }
    if (shape.stream().reduce(1L, (a, b) -> a * b) != count) {
      throw new IllegalArgumentException(input + count + " elements do not fill shape " + shape);
    }
    return shape;
  }

  private ByteString bytes() {
    if (data instanceof String[] texts) {
      return ByteString.copyFrom(joined(texts));
    }
    if (data instanceof byte[] bytes) {
      return ByteString.copyFrom(bytes);
    }
    ByteBuffer buffer =
        ByteBuffer.allocate(Math.multiplyExact(Array.getLength(data), width(data.getClass())))
            .order(ByteOrder.LITTLE_ENDIAN);
    if (data instanceof float[] floats) {
      buffer.asFloatBuffer().put(floats);
    } else if (data instanceof double[] doubles) {
      buffer.asDoubleBuffer().put(doubles);
    } else if (data instanceof short[] shorts) {
      buffer.asShortBuffer().put(shorts);
    } else if (data instanceof int[] ints) {
      buffer.asIntBuffer().put(ints);
    } else if (data instanceof long[] longs) {
      buffer.asLongBuffer().put(longs);
    } else {
      for (boolean truth : (boolean[]) data) {
        buffer.put((byte) (truth ? 1 : 0));
      }
    }
    return ByteString.copyFrom(buffer.rewind());
  }

  private static int width(Class<?> array) {
    if (array == double[].class || array == long[].class) {
      return Long.BYTES;
    }
    if (array == float[].class || array == int[].class) {
      return Integer.BYTES;
    }
    return array == short[].class ? Short.BYTES : 1;
  }

  private static byte[] joined(String[] texts) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (String text : texts) { // source: NamedArray.data, the length before each text
      byte[] characters = text.getBytes(StandardCharsets.UTF_8);
      ByteBuffer length = ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      bytes.writeBytes(length.putInt(characters.length).array());
      bytes.writeBytes(characters);
    }
    return bytes.toByteArray();
  }

  /** Returns the array of a message; its bytes if Java has no array of the type. */
  static NetworkArray decode(NamedArray message) {
    ByteBuffer bytes =
        message.getData().asReadOnlyByteBuffer().slice().order(ByteOrder.LITTLE_ENDIAN);
    Class<?> type = ARRAYS.getOrDefault(message.getDtype(), byte[].class);
    Object data = type == String[].class ? split(bytes) : elements(bytes, type);
    return new NetworkArray(data, List.copyOf(message.getShapeList()));
  }

  private static Object elements(ByteBuffer bytes, Class<?> type) {
    Object data = Array.newInstance(type.getComponentType(), bytes.remaining() / width(type));
    if (data instanceof float[] floats) {
      bytes.asFloatBuffer().get(floats);
    } else if (data instanceof double[] doubles) {
      bytes.asDoubleBuffer().get(doubles);
    } else if (data instanceof short[] shorts) {
      bytes.asShortBuffer().get(shorts);
    } else if (data instanceof int[] ints) {
      bytes.asIntBuffer().get(ints);
    } else if (data instanceof long[] longs) {
      bytes.asLongBuffer().get(longs);
    } else if (data instanceof boolean[] truths) {
      for (int i = 0; i < truths.length; i++) {
        truths[i] = bytes.get() != 0;
      }
    } else {
      bytes.get((byte[]) data);
    }
    return data;
  }

  private static String[] split(ByteBuffer bytes) {
    List<String> texts = new ArrayList<>();
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
