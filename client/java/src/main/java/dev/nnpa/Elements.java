// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Java's arrays of numbers and booleans as the wire carries them: little-endian bytes. */
final class Elements {
  private Elements() {}

  /** Returns room for a number of bytes. */
  static ByteBuffer room(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns a copy of the elements of an array. */
  static ByteBuffer of(Object array) {
    ByteBuffer bytes = room(Math.multiplyExact(Array.getLength(array), width(array.getClass())));
    if (array instanceof byte[] numbers) {
      bytes.put(0, numbers);
    } else if (array instanceof short[] numbers) {
      bytes.asShortBuffer().put(numbers);
    } else if (array instanceof int[] numbers) {
      bytes.asIntBuffer().put(numbers);
    } else if (array instanceof long[] numbers) {
      bytes.asLongBuffer().put(numbers);
    } else if (array instanceof float[] numbers) {
      bytes.asFloatBuffer().put(numbers);
    } else if (array instanceof double[] numbers) {
      bytes.asDoubleBuffer().put(numbers);
    } else {
      boolean[] truths = (boolean[]) array;
      for (int i = 0; i < truths.length; i++) {
        bytes.put(i, (byte) (truths[i] ? 1 : 0));
      }
    }
    return bytes;
  }

  /** Returns the size of an element of an array's class, bytes. */
  static int width(Class<?> array) {
    if (array == double[].class || array == long[].class) {
      return Long.BYTES;
    }
    if (array == float[].class || array == int[].class) {
      return Integer.BYTES;
    }
    return array == short[].class ? Short.BYTES : 1;
  }

  /** Returns all elements, of an array's class, of a buffer from its start to its limit. */
  static <A> A array(ByteBuffer buffer, Class<A> type) {
    ByteBuffer bytes = buffer.duplicate().rewind().order(ByteOrder.LITTLE_ENDIAN);
    Object array = Array.newInstance(type.getComponentType(), bytes.limit() / width(type));
    if (array instanceof byte[] numbers) {
      bytes.get(numbers);
    } else if (array instanceof short[] numbers) {
      bytes.asShortBuffer().get(numbers);
    } else if (array instanceof int[] numbers) {
      bytes.asIntBuffer().get(numbers);
    } else if (array instanceof long[] numbers) {
      bytes.asLongBuffer().get(numbers);
    } else if (array instanceof float[] numbers) {
      bytes.asFloatBuffer().get(numbers);
    } else if (array instanceof double[] numbers) {
      bytes.asDoubleBuffer().get(numbers);
    } else {
      boolean[] truths = (boolean[]) array;
      for (int i = 0; i < truths.length; i++) {
        truths[i] = bytes.get(i) != 0;
      }
    }
    return type.cast(array);
  }
}
