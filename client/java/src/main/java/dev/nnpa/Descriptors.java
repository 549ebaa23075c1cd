// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.DataFormats;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.QuantizedTransformTypes;
import dev.nnpa.zdnn.v1.Refusal;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.ZdnnStatus;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Descriptors, sizes and limits: functions that need no server.
 *
 * <p>Descriptors are {@code zdnn_tensor_desc} as the wire carries it; dimensions are elements, and
 * an {@code int} above 2^31-1 is C's {@code uint32_t} of the same bits. Layouts and types are
 * zDNN's; an {@code int} may be any number, as in C. A function refuses by a {@link ZdnnException}.
 *
 * <p>Source: zDNN API Reference 1.2.0, the function of the same name, for example
 * zdnn_get_max_limit for getMaxLimit.
 */
public final class Descriptors {
  private static final Set<DataTypes> FLOATS =
      EnumSet.of(DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT);

  private static final Set<DataLayouts> NOT_QUANTIZABLE =
      EnumSet.of(DataLayouts.ZDNN_NCHW, DataLayouts.ZDNN_HWCK, DataLayouts.ZDNN_4DS);

  private Descriptors() {}

  /** Describes the user's tensor: {@code dims} has a size per dimension, outermost first. */
  public static TensorDesc initPreTransformedDesc(DataLayouts layout, DataTypes type, int... dims) {
    return initPreTransformedDesc(layout.getNumber(), type.getNumber(), dims);
  }

  /**
   * As above for any numbers: neither layout nor type is checked here, as in C; a concatenated or
   * unknown layout takes no dimensions.
   */
  public static TensorDesc initPreTransformedDesc(int layout, int type, int... dims) {
    TensorDesc.Builder desc = TensorDesc.newBuilder().setLayoutValue(layout).setTypeValue(type);
    int rank = rank(desc.getLayout());
    if (rank > 0 && dims.length != rank) {
      String sizes = Arrays.toString(dims) + ", layout " + desc.getLayout();
      throw new IllegalArgumentException(
          "dims: " + sizes + " has " + rank + ", not " + dims.length);
    }
    int[] all = new int[4];
    System.arraycopy(dims, 0, all, 4 - rank, rank);
    return place(desc, all).build();
  }

  /** Returns layout, sizes and type: "ZDNN_2D 2x3 FP32". */
  static String describe(TensorDesc desc) {
    int[] all = {desc.getDim4(), desc.getDim3(), desc.getDim2(), desc.getDim1()};
    int rank = rank(desc.getLayout());
    String sizes =
        Arrays.stream(all, rank == 0 ? 0 : 4 - rank, 4)
            .mapToObj(Integer::toUnsignedString)
            .collect(Collectors.joining("x"));
    return desc.getLayout() + " " + sizes + " " + desc.getType();
  }

  /** Returns the number of dimensions of a layout; 0 for concatenated and unknown ones. */
  private static int rank(DataLayouts layout) {
    return switch (layout) {
      case ZDNN_1D -> 1;
      case ZDNN_2D, ZDNN_2DS -> 2;
      case ZDNN_3D, ZDNN_3DS -> 3;
      case ZDNN_4D, ZDNN_4DS, ZDNN_NHWC, ZDNN_NCHW, ZDNN_HWCK -> 4;
      default -> 0;
    };
  }

  /**
   * Describes the sticks of a tensor. Refuses with ZDNN_INVALID_LAYOUT a layout that has no
   * transformed form, with ZDNN_INVALID_TYPE a type other than FP32, FP16, BFLOAT, INT32.
   */
  public static TensorDesc generateTransformedDesc(TensorDesc preTfrmdDesc) {
    String op = "generate_transformed_desc";
    int[] dims = placed(preTfrmdDesc);
    if (dims.length == 0) {
      throw refuseLayout(op, 1, preTfrmdDesc, "a plain one");
    }
    boolean whole = preTfrmdDesc.getType() == DataTypes.INT32;
    if (!whole && !FLOATS.contains(preTfrmdDesc.getType())) {
      throw refuseType(op, 2, preTfrmdDesc, "FP32, FP16, BFLOAT or INT32");
    }
    boolean kernel = preTfrmdDesc.getLayout() == DataLayouts.ZDNN_HWCK;
    return place(TensorDesc.newBuilder(), dims)
        .setLayout(kernel ? DataLayouts.ZDNN_HWCK : DataLayouts.ZDNN_NHWC)
        .setFormat(kernel ? DataFormats.ZDNN_FORMAT_4DKERNEL : DataFormats.ZDNN_FORMAT_4DFEATURE)
        .setType(whole ? DataTypes.ZDNN_BINARY_INT32 : DataTypes.ZDNN_DLFLOAT16)
        .build();
  }

  /** Returns dim4 to dim1 of the sticks of a layout; none for one without a transformed form. */
  private static int[] placed(TensorDesc pre) {
    int d4 = pre.getDim4();
    int d3 = pre.getDim3();
    int d2 = pre.getDim2();
    int d1 = pre.getDim1();
    return switch (pre.getLayout()) {
      case ZDNN_1D -> new int[] {1, 1, 1, d1};
      case ZDNN_2D -> new int[] {1, 1, d2, d1};
      case ZDNN_2DS -> new int[] {d2, 1, 1, d1};
      case ZDNN_3D -> new int[] {1, d3, d2, d1};
      case ZDNN_3DS -> new int[] {d3, 1, d2, d1};
      case ZDNN_4D, ZDNN_NHWC, ZDNN_HWCK -> new int[] {d4, d3, d2, d1};
      case ZDNN_NCHW -> new int[] {d4, d2, d1, d3};
      case ZDNN_4DS -> new int[] {d4, 1, d2, d3 == 1 ? d1 : d3 * padded(d1)};
      default -> new int[0];
    };
  }

  private static TensorDesc.Builder place(TensorDesc.Builder desc, int... dims) {
    return desc.setDim4(dims[0]).setDim3(dims[1]).setDim2(dims[2]).setDim1(dims[3]);
  }

  /** Returns the size rounded up to whole sticks of 64 cells, as a uint32_t. */
  private static int padded(int size) {
    return (int) ((Integer.toUnsignedLong(size) + 63) / 64 * 64);
  }

  /**
   * Describes the sticks of a quantized tensor. Refuses, in this order: ZDNN_INVALID_LAYOUT (4DS,
   * NCHW, HWCK and concatenated ones), ZDNN_INVALID_TYPE, ZDNN_INVALID_TRANSFORM_TYPE.
   */
  public static TensorDesc generateQuantizedTransformedDesc(
      TensorDesc preTfrmdDesc, QuantizedTransformTypes transformType) {
    return generateQuantizedTransformedDesc(preTfrmdDesc, transformType.getNumber());
  }

  /** As above for any number. */
  public static TensorDesc generateQuantizedTransformedDesc(
      TensorDesc preTfrmdDesc, int transformType) {
    String op = "generate_quantized_transformed_desc";
    int[] dims = placed(preTfrmdDesc);
    if (dims.length == 0 || NOT_QUANTIZABLE.contains(preTfrmdDesc.getLayout())) {
      throw refuseLayout(op, 1, preTfrmdDesc, "1D, 2D, 2DS, 3D, 3DS, 4D or NHWC");
    }
    if (preTfrmdDesc.getType() != DataTypes.INT8 && !FLOATS.contains(preTfrmdDesc.getType())) {
      throw refuseType(op, 2, preTfrmdDesc, "FP32, FP16, BFLOAT or INT8");
    }
    QuantizedTransformTypes chosen = QuantizedTransformTypes.forNumber(transformType);
    if (chosen == null) {
      String value = Integer.toUnsignedString(transformType);
      throw refuse(
          ZdnnStatus.ZDNN_INVALID_TRANSFORM_TYPE, op, 3, "transform_type", value, "0, 1 or 2");
    }
    boolean weights = chosen == QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8;
    boolean real = chosen == QuantizedTransformTypes.QUANTIZED_DLFLOAT16;
    return place(TensorDesc.newBuilder(), dims)
        .setLayout(DataLayouts.ZDNN_NHWC)
        .setFormat(weights ? DataFormats.ZDNN_FORMAT_4DWEIGHTS : DataFormats.ZDNN_FORMAT_4DFEATURE)
        .setType(real ? DataTypes.ZDNN_DLFLOAT16 : DataTypes.ZDNN_BINARY_INT8)
        .build();
  }

  /**
   * Describes the sticks of weights or biases of a recurrent layer, gates side by side in dim1.
   * {@code info} is the sum of one RNN_TYPE_*, one PREV_LAYER_* and one USAGE_* of {@link
   * Constants}.
   *
   * <p>Refuses, in this order: ZDNN_INVALID_TYPE; ZDNN_INVALID_SHAPE (odd dim2 of weights behind a
   * bidirectional layer); ZDNN_INVALID_LAYOUT (weights are 3DS, biases 2DS) or
   * ZDNN_INVALID_CONCAT_INFO (usage); ZDNN_INVALID_CONCAT_INFO (RNN type).
   */
  public static TensorDesc generateTransformedDescConcatenated(TensorDesc preTfrmdDesc, int info) {
    String op = "generate_transformed_desc_concatenated";
    int usage = info & 0xFF << Constants.BITSHIFT_USAGE;
    int rnn = info & 0xFF << Constants.BITSHIFT_RNN_TYPE;
    int previous = info & 0xFF << Constants.BITSHIFT_PREV_LAYER;
    boolean halves = usage == Constants.USAGE_WEIGHTS && previous == Constants.PREV_LAYER_BIDIR;
    if (!FLOATS.contains(preTfrmdDesc.getType())) {
      throw refuseType(op, 1, preTfrmdDesc, "FP32, FP16 or BFLOAT");
    }
    if (halves && preTfrmdDesc.getDim2() % 2 != 0) {
      String value = Integer.toUnsignedString(preTfrmdDesc.getDim2());
      String limit = "even behind a bidirectional layer";
      throw refuse(ZdnnStatus.ZDNN_INVALID_SHAPE, op, 2, "pre_tfrmd_desc.dim2", value, limit);
    }
    checkUsage(op, preTfrmdDesc, usage);
    if (rnn != Constants.RNN_TYPE_LSTM && rnn != Constants.RNN_TYPE_GRU) {
      String limit = "RNN_TYPE_LSTM or RNN_TYPE_GRU";
      throw refuse(
          ZdnnStatus.ZDNN_INVALID_CONCAT_INFO, op, 4, "info", String.format("0x%08X", info), limit);
    }
    return concatenated(preTfrmdDesc, rnn == Constants.RNN_TYPE_LSTM, halves);
  }

  private static void checkUsage(String op, TensorDesc pre, int usage) {
    DataLayouts expected =
        switch (usage) {
          case Constants.USAGE_WEIGHTS, Constants.USAGE_HIDDEN_WEIGHTS -> DataLayouts.ZDNN_3DS;
          case Constants.USAGE_BIASES, Constants.USAGE_HIDDEN_BIASES -> DataLayouts.ZDNN_2DS;
          default -> {
            String value = String.format("usage 0x%X", usage);
            String limit = "a USAGE_ number";
            throw refuse(ZdnnStatus.ZDNN_INVALID_CONCAT_INFO, op, 3, "info", value, limit);
          }
        };
    if (pre.getLayout() != expected) {
      throw refuseLayout(op, 3, pre, expected.name());
    }
  }

  private static TensorDesc concatenated(TensorDesc pre, boolean lstm, boolean halves) {
    DataLayouts whole = lstm ? DataLayouts.ZDNN_FICO : DataLayouts.ZDNN_ZRH;
    DataLayouts split = lstm ? DataLayouts.ZDNN_BIDIR_FICO : DataLayouts.ZDNN_BIDIR_ZRH;
    TensorDesc.Builder target = place(TensorDesc.newBuilder(), placed(pre));
    if (halves) {
      target.setDim2(2 * padded(pre.getDim2() >>> 1));
    }
    return target
        .setDim1((lstm ? 4 : 3) * padded(pre.getDim1()))
        .setLayout(halves ? split : whole)
        .setFormat(DataFormats.ZDNN_FORMAT_4DFEATURE)
        .setType(DataTypes.ZDNN_DLFLOAT16)
        .build();
  }

  /** Returns the bytes of the sticks that a transformed descriptor calls for, modulo 2^64. */
  public static long getsizeZtensor(TensorDesc tfrmdDesc) {
    long rows = Integer.toUnsignedLong(tfrmdDesc.getDim2());
    int cells = 64;
    if (tfrmdDesc.getType() == DataTypes.ZDNN_BINARY_INT32) {
      cells = 32;
    } else if (tfrmdDesc.getType() == DataTypes.ZDNN_BINARY_INT8) {
      boolean weights = tfrmdDesc.getFormat() == DataFormats.ZDNN_FORMAT_4DWEIGHTS;
      rows = weights ? (rows + 1) / 2 : rows;
      cells = weights ? 64 : 128;
    }
    long sticks = (Integer.toUnsignedLong(tfrmdDesc.getDim1()) + cells - 1) / cells;
    long outer =
        Integer.toUnsignedLong(tfrmdDesc.getDim4()) * Integer.toUnsignedLong(tfrmdDesc.getDim3());
    return outer * ((rows + 31) / 32) * sticks * 4096;
  }

  /**
   * Returns the largest value of a pre-transformed type that a transformed type can hold. Refuses
   * other pairs with ZDNN_INVALID_TYPE.
   */
  public static double getMaxLimit(DataTypes transformedType, DataTypes preTransformedType) {
    return getMaxLimit(transformedType.getNumber(), preTransformedType.getNumber());
  }

  /** As above for any numbers. */
  public static double getMaxLimit(int transformedType, int preTransformedType) {
    return limit("get_max_limit", transformedType, preTransformedType, 1);
  }

  /** Returns the smallest value; otherwise as {@link #getMaxLimit(DataTypes, DataTypes)}. */
  public static double getMinLimit(DataTypes transformedType, DataTypes preTransformedType) {
    return getMinLimit(transformedType.getNumber(), preTransformedType.getNumber());
  }

  /** As above for any numbers. */
  public static double getMinLimit(int transformedType, int preTransformedType) {
    return limit("get_min_limit", transformedType, preTransformedType, -1);
  }

  private static double limit(String op, int transformedType, int preTransformedType, int sign) {
    DataTypes transformed = DataTypes.forNumber(transformedType);
    DataTypes pre = DataTypes.forNumber(preTransformedType);
    if (transformed != DataTypes.ZDNN_DLFLOAT16
        && transformed != DataTypes.ZDNN_BINARY_INT8
        && transformed != DataTypes.ZDNN_BINARY_INT32) {
      String allowed = "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32";
      String value = Integer.toUnsignedString(transformedType);
      throw refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, 1, "transformed_type", value, allowed);
    }
    boolean real = FLOATS.contains(pre);
    if (transformed == DataTypes.ZDNN_DLFLOAT16 && real) {
      return sign * largest(pre);
    }
    if (transformed == DataTypes.ZDNN_BINARY_INT8 && (real || pre == DataTypes.INT8)) {
      return sign > 0 ? Byte.MAX_VALUE : Byte.MIN_VALUE;
    }
    if (transformed == DataTypes.ZDNN_BINARY_INT32 && pre == DataTypes.INT32) {
      return sign > 0 ? Integer.MAX_VALUE : Integer.MIN_VALUE;
    }
    String value = Integer.toUnsignedString(preTransformedType);
    String allowed = "a type that becomes transformed_type";
    throw refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, 2, "pre_transformed_type", value, allowed);
  }

  /** Returns DLFLOAT16's largest value in a float type; BFLOAT's is truncated. */
  private static double largest(DataTypes pre) {
    return switch (pre) {
      case FP16 -> 65504.0;
      case BFLOAT -> 8556380160.0;
      default -> 8573157376.0;
    };
  }

  private static ZdnnException refuseLayout(String op, int number, TensorDesc pre, String limit) {
    String value = Integer.toUnsignedString(pre.getLayoutValue());
    String field = "pre_tfrmd_desc.layout";
    return refuse(ZdnnStatus.ZDNN_INVALID_LAYOUT, op, number, field, value, limit);
  }

  private static ZdnnException refuseType(String op, int number, TensorDesc pre, String limit) {
    String value = Integer.toUnsignedString(pre.getTypeValue());
    return refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, number, "pre_tfrmd_desc.type", value, limit);
  }

  private static ZdnnException refuse(
      ZdnnStatus status, String op, int number, String field, String value, String limit) {
    Refusal refusal =
        Refusal.newBuilder()
            .setField(field)
            .setValue(value)
            .setLimit(limit)
            .setConstraint(op + "_c" + number)
            .build();
    return new ZdnnException(status.getNumber(), op, refusal);
  }
}
