// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import static dev.nnpa.Descriptors.generateQuantizedTransformedDesc;
import static dev.nnpa.Descriptors.initPreTransformedDesc;

import dev.nnpa.Session;
import dev.nnpa.UserArray;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.Ztensors;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.MatmulOps;
import dev.nnpa.zdnn.v1.QuantizedTransformTypes;
import dev.nnpa.zdnn.v1.TensorDesc;
import java.util.List;

/** The four examples of calling the zdnn_quantized_matmul_op API. */
final class QuantizedExamples {
  private static final int S = 2;
  private static final int M = 3;
  private static final int N = 4;
  private static final int P = 5;

  private QuantizedExamples() {}

  private static int whole(int place) {
    return place * 5 % 13 - 6;
  }

  private static UserArray floats(int count, int start) {
    float[] data = new float[count];
    for (int place = 0; place < count; place++) {
      data[place] = whole(place + start);
    }
    return UserArray.of(data);
  }

  private static UserArray bytes(int count, int start) {
    byte[] data = new byte[count];
    for (int place = 0; place < count; place++) {
      data[place] = (byte) whole(place + start);
    }
    return UserArray.of(data);
  }

  private static Ztensor created(
      Session session,
      DataLayouts layout,
      DataTypes type,
      QuantizedTransformTypes as,
      int... dims) {
    TensorDesc pre = initPreTransformedDesc(layout, type, dims);
    TensorDesc tfrmd = generateQuantizedTransformedDesc(pre, as);
    return Ztensors.initQuantizedZtensorWithMalloc(session, pre, tfrmd, 1, 0);
  }

  /**
   * A real ztensor is filled by transform_ztensor, a quantized one by transform_quantized_ztensor.
   */
  private static void fill(Ztensor ztensor, boolean real, UserArray data) {
    if (real) {
      Zdnn.transformZtensor(ztensor, data);
    } else {
      Zdnn.transformQuantizedZtensor(ztensor, false, Byte.MIN_VALUE, Byte.MAX_VALUE, data);
    }
  }

  private static QuantizedTransformTypes as(boolean real) {
    return real
        ? QuantizedTransformTypes.QUANTIZED_DLFLOAT16
        : QuantizedTransformTypes.QUANTIZED_INT8;
  }

  /** Multiplies stacks; the first quantized on the way, or the biases pre-computed. */
  static List<float[]> matmul(Session session, boolean onTheFly, boolean preComputed) {
    Ztensor input = created(session, DataLayouts.ZDNN_3DS, DataTypes.FP32, as(onTheFly), S, M, N);
    fill(input, onTheFly, floats(S * M * N, 0));
    Ztensor weights =
        created(
            session,
            DataLayouts.ZDNN_3DS,
            DataTypes.INT8,
            QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8,
            S,
            N,
            P);
    fill(weights, false, bytes(S * N * P, 1));
    Ztensor biases = created(session, DataLayouts.ZDNN_2DS, DataTypes.FP32, as(preComputed), S, P);
    fill(biases, preComputed, floats(S * P, 2));
    Ztensor output = created(session, DataLayouts.ZDNN_3DS, DataTypes.FP32, as(true), S, M, P);
    Zdnn.quantizedMatmulOp(
        input,
        weights,
        biases,
        MatmulOps.MATMUL_OP_ADDITION,
        Byte.MIN_VALUE,
        Byte.MAX_VALUE,
        false,
        false,
        preComputed,
        output);
    List<float[]> results = Examples.read(output);
    Examples.free(input, weights, biases, output);
    return results;
  }
}
