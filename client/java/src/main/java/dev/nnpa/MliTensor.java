// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.FxParams;
import dev.nnpa.mli.v1.SaParams;
import dev.nnpa.mli.v1.Tensor;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * An {@code mli_tensor}: typed elements, with their memory; a kernel sets the fields of its
 * outputs.
 *
 * <p>Source: embARC MLI documentation, "mli_tensor Structure", "Element Parameters", "Data
 * Formats".
 */
public final class MliTensor {
  private final ByteBuffer memory;
  private Tensor fields;

  private MliTensor(ByteBuffer memory, Tensor fields) {
    this.memory = memory;
    this.fields = fields;
  }

  /** Returns an MLI_EL_FX_8 tensor, value = x / 2^fracBits; without a shape it has one dim. */
  public static MliTensor fx(byte[] array, int fracBits, int... shape) {
    return filled(typed(ElType.MLI_EL_FX_8).setFx(fx(fracBits)), array, shape);
  }

  /** Returns an MLI_EL_FX_16 tensor; otherwise as of bytes. */
  public static MliTensor fx(short[] array, int fracBits, int... shape) {
    return filled(typed(ElType.MLI_EL_FX_16).setFx(fx(fracBits)), array, shape);
  }

  /** Returns a signed asymmetric MLI_EL_SA_8 tensor, (x - zero_point) * scale / 2^bits. */
  public static MliTensor sa(byte[] array, SaParams params, int... shape) {
    return filled(typed(ElType.MLI_EL_SA_8).setSa(params), array, shape);
  }

  /** Returns an MLI_EL_FP_32 tensor. */
  public static MliTensor fp(float[] array, int... shape) {
    return filled(typed(ElType.MLI_EL_FP_32), array, shape);
  }

  /** Returns a fixed-point output for a kernel to fill: zeroed memory, its shape unset. */
  public static MliTensor empty(int count, ElType elType, int fracBits) {
    return new MliTensor(
        Elements.room(count * width(elType)), typed(elType).setFx(fx(fracBits)).build());
  }

  /** Returns a signed asymmetric output for a kernel to fill. */
  public static MliTensor empty(int count, ElType elType, SaParams params) {
    return new MliTensor(Elements.room(count * width(elType)), typed(elType).setSa(params).build());
  }

  /** Returns an MLI_EL_FP_32 output for a kernel to fill. */
  public static MliTensor emptyFp(int count) {
    return new MliTensor(Elements.room(Float.BYTES * count), typed(ElType.MLI_EL_FP_32).build());
  }

  /** Returns numbers as MLI_EL_FX_8 or MLI_EL_FX_16: nearest, ties to even, saturated. */
  public static MliTensor quantise(double[] values, ElType elType, int fracBits, int... shape) {
    if (elType != ElType.MLI_EL_FX_8 && elType != ElType.MLI_EL_FX_16) {
      throw new IllegalArgumentException(
          "elType: " + elType + ", expected MLI_EL_FX_8 or MLI_EL_FX_16");
    }
    int limit = 1 << (8 * width(elType) - 1);
    short[] elements = new short[values.length];
    for (int i = 0; i < values.length; i++) {
      if (!Double.isFinite(values[i])) {
        throw new IllegalArgumentException("values: " + values[i] + ", expected finite numbers");
      }
      double scaled = Math.rint(values[i] * Math.pow(2, fracBits));
      elements[i] = (short) Math.max(-limit, Math.min(limit - 1, scaled));
    }
    if (elType == ElType.MLI_EL_FX_16) {
      return fx(elements, fracBits, shape);
    }
    byte[] narrow = new byte[elements.length];
    for (int i = 0; i < narrow.length; i++) {
      narrow[i] = (byte) elements[i];
    }
    return fx(narrow, fracBits, shape);
  }

  private static Tensor.Builder typed(ElType elType) {
    return Tensor.newBuilder().setElType(elType);
  }

  private static FxParams fx(int fracBits) {
    return FxParams.newBuilder().setFracBits(fracBits).build();
  }

  private static MliTensor filled(Tensor.Builder fields, Object array, int... shape) {
    int length = Array.getLength(array);
    IntStream.of(shape.length == 0 ? new int[] {length} : shape).forEach(fields::addShape);
    MliTensor tensor = new MliTensor(Elements.of(array), fields.build());
    if (tensor.count() != length) {
      throw new IllegalArgumentException(
          "array: " + length + " elements, shape " + tensor.sizes() + " has " + tensor.count());
    }
    return tensor;
  }

  private String sizes() {
    return shape().stream().map(String::valueOf).collect(Collectors.joining("x"));
  }

  private static int width(ElType elType) {
    return switch (elType) {
      case MLI_EL_FX_16 -> Short.BYTES;
      case MLI_EL_SA_32, MLI_EL_FP_32 -> Integer.BYTES;
      default -> 1;
    };
  }

  /** Returns the sizes, outermost first; of an output that no kernel has filled, none. */
  public List<Integer> shape() {
    return fields.getShapeList();
  }

  /** Returns the type of the elements. */
  public ElType elType() {
    return fields.getElType();
  }

  /** Returns the fractional bits of a fixed-point tensor, else 0. */
  public int fracBits() {
    return fields.getFx().getFracBits();
  }

  /** Returns the number of elements of the shape. */
  int count() {
    return shape().stream().reduce(1, (a, b) -> a * b);
  }

  /** Returns the number of elements that fit the memory. */
  int room() {
    return memory.capacity() / width(elType());
  }

  /** Returns a copy of the elements of MLI_EL_FX_8 or MLI_EL_SA_8. */
  public byte[] bytes() {
    return elements(byte[].class);
  }

  /** Returns a copy of the elements of MLI_EL_FX_16. */
  public short[] shorts() {
    return elements(short[].class);
  }

  private <A> A elements(Class<A> array) {
    int width = Elements.width(array);
    if (width(elType()) != width) {
      throw new IllegalStateException(
          "elements: " + elType() + ", expected a type of " + width + " bytes");
    }
    return Elements.array(memory.slice(0, count() * width), array);
  }

  /** Returns the values that the elements of a fixed-point or FP32 tensor stand for. */
  public double[] dequantise() {
    if (fields.hasSa()) {
      throw new IllegalStateException("tensor: " + this + ", expected fixed point or FP32");
    }
    double unit = Math.pow(2, -fracBits());
    return IntStream.range(0, count()).mapToDouble(i -> element(i) * unit).toArray();
  }

  private double element(int index) {
    return switch (elType()) {
      case MLI_EL_FX_16 -> memory.getShort(Short.BYTES * index);
      case MLI_EL_FP_32 -> memory.getFloat(Float.BYTES * index);
      default -> memory.get(index);
    };
  }

  /** Returns the tensor as the wire carries it; a second tensor in its memory has only fields. */
  Tensor message(boolean withMemory) {
    Tensor.Builder message = fields.toBuilder();
    return withMemory
        ? message.setData(ByteString.copyFrom(memory.array())).build()
        : message.setCapacity(memory.capacity()).build();
  }

  /** Copies the output of a kernel: fields, and contents from the first element on. */
  void update(Tensor answer) {
    memory.put(0, answer.getData().toByteArray());
    fields = answer.toBuilder().clearMemory().clearCapacity().build();
  }

  /** Returns shape, type and parameters, in one line. */
  @Override
  public String toString() {
    String sizes = shape().isEmpty() ? "scalar" : sizes();
    String parameters = fields.hasSa() ? ", asymmetric" : "";
    if (fields.hasFx()) {
      parameters = ", " + fracBits() + " frac_bits";
    }
    return "MliTensor[" + sizes + " " + elType() + parameters + "]";
  }
}
