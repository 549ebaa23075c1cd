// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.nnpa.zdnn.v1.DataTypes;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Set;
import java.util.stream.Stream;

/**
 * A dense user array as it travels, little-endian, with the pre-transformed types that its elements
 * may have.
 */
public final class UserArray {
  private final ByteBuffer bytes;
  private final Set<DataTypes> types;

  private UserArray(ByteBuffer bytes, Set<DataTypes> types) {
    this.bytes = bytes.order(ByteOrder.LITTLE_ENDIAN);
    this.types = types;
  }

  /** Returns a copy of FP32 numbers. */
  public static UserArray of(float... values) {
    return new UserArray(Elements.of(values), EnumSet.of(DataTypes.FP32));
  }

  /** Returns a copy of FP16 or BFLOAT numbers, given by their bits. */
  public static UserArray of(short... bits) {
    return new UserArray(Elements.of(bits), EnumSet.of(DataTypes.FP16, DataTypes.BFLOAT));
  }

  /** Returns a copy of INT32 numbers. */
  public static UserArray of(int... values) {
    return new UserArray(Elements.of(values), EnumSet.of(DataTypes.INT32));
  }

  /** Returns a copy of INT8 numbers. */
  public static UserArray of(byte... values) {
    return new UserArray(Elements.of(values), EnumSet.of(DataTypes.INT8));
  }

  /** Returns the bytes between a buffer's position and limit, uncopied, as an array of any type. */
  public static UserArray wrap(ByteBuffer littleEndian) {
    return new UserArray(littleEndian.slice(), EnumSet.allOf(DataTypes.class));
  }

  /** Returns an array of the type over these bytes; an unknown type stands for any type. */
  static UserArray received(ByteBuffer littleEndian, DataTypes type) {
    boolean valid = type != DataTypes.UNRECOGNIZED;
    return new UserArray(littleEndian, valid ? EnumSet.of(type) : EnumSet.allOf(DataTypes.class));
  }

  /** Returns the size, bytes. */
  public int size() {
    return bytes.limit();
  }

  /** Returns the bytes, little-endian, uncopied. */
  public ByteBuffer buffer() {
    return bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns FP32 numbers. */
  public float[] floats() {
    return elements("floats", float[].class, DataTypes.FP32);
  }

  /** Returns the bits of FP16 or BFLOAT numbers. */
  public short[] shorts() {
    return elements("shorts", short[].class, DataTypes.FP16, DataTypes.BFLOAT);
  }

  /** Returns INT32 numbers. */
  public int[] ints() {
    return elements("ints", int[].class, DataTypes.INT32);
  }

  /** Returns INT8 numbers. */
  public byte[] bytes() {
    return elements("bytes", byte[].class, DataTypes.INT8);
  }

  private <A> A elements(String face, Class<A> array, DataTypes... expected) {
    if (Stream.of(expected).noneMatch(types::contains)) {
      throw new IllegalStateException(
          face + ": the array is of type " + types + ", expected " + Arrays.toString(expected));
    }
    return Elements.array(bytes, array);
  }

  /** Throws IllegalArgumentException for an array of another type than a descriptor's. */
  void check(DataTypes expected) {
    if (expected != DataTypes.UNRECOGNIZED && !types.contains(expected)) {
      throw new IllegalArgumentException(
          "data: an array of type " + types + ", the descriptor says " + expected);
    }
  }

  @Override
  public String toString() {
    return "UserArray[" + size() + " bytes of " + types + "]";
  }

  /** Throws IllegalArgumentException for an array of another type or size. */
  void check(DataTypes type, int... dims) {
    check(type);
    long elements = Arrays.stream(dims).asLongStream().reduce(1, (a, b) -> a * b);
    int width = width(type);
    if (elements * width != size()) {
      String given = size() % width == 0 ? size() / width + " elements" : size() + " bytes";
      String expected = "dims " + Arrays.toString(dims) + " have " + elements + " of " + type;
      throw new IllegalArgumentException("data: " + given + ", " + expected);
    }
  }

  /** Returns the size of an element of a pre-transformed type, bytes. */
  static int width(DataTypes type) {
    return switch (type) {
      case FP32, INT32 -> 4;
      case INT8 -> 1;
      default -> 2;
    };
  }

  /** Returns the bytes as a message carries them; the array must not change until it has left. */
  ByteString carried() {
    return UnsafeByteOperations.unsafeWrap(buffer());
  }
}
