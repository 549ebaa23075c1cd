// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import static dev.nnpa.Descriptors.generateQuantizedTransformedDesc;
import static dev.nnpa.Descriptors.generateTransformedDesc;
import static dev.nnpa.Descriptors.initPreTransformedDesc;

import dev.nnpa.Session;
import dev.nnpa.UserArray;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.Ztensors;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.QuantizedTransformTypes;
import dev.nnpa.zdnn.v1.TensorDesc;
import java.util.List;

/** "Example flow of an application calling the zDNN APIs", and the quantized ztensor beside it. */
final class ElementwiseExamples {
  private static final int[] DIMS = {1, 32, 32, 3};

  private ElementwiseExamples() {}

  /** Returns numbers that count from 0 to 127, again and again. */
  private static UserArray counting() {
    float[] data = new float[DIMS[0] * DIMS[1] * DIMS[2] * DIMS[3]];
    for (int place = 0; place < data.length; place++) {
      data[place] = place & 0x7F;
    }
    return UserArray.of(data);
  }

  /** Adds two tensors. */
  static List<float[]> add(Session session) {
    TensorDesc pre = initPreTransformedDesc(DataLayouts.ZDNN_NHWC, DataTypes.FP32, DIMS);
    TensorDesc tfrmd = generateTransformedDesc(pre);
    Ztensor a = Ztensors.initZtensorWithMalloc(session, pre, tfrmd);
    Ztensor b = Ztensors.initZtensorWithMalloc(session, pre, tfrmd);
    Ztensor out = Ztensors.initZtensorWithMalloc(session, pre, tfrmd);
    Zdnn.transformZtensor(a, counting());
    Zdnn.transformZtensor(b, counting());
    Zdnn.add(a, b, out);
    List<float[]> results = Examples.read(out);
    Examples.free(a, b, out);
    return results;
  }

  /** Creates a quantized ztensor, and returns what is left of it: rec_scale and offset. */
  static List<float[]> quantizedZtensor(Session session) {
    TensorDesc pre = initPreTransformedDesc(DataLayouts.ZDNN_NHWC, DataTypes.FP32, DIMS);
    TensorDesc tfrmd =
        generateQuantizedTransformedDesc(pre, QuantizedTransformTypes.QUANTIZED_DLFLOAT16);
    Ztensor ztensor = Ztensors.initQuantizedZtensorWithMalloc(session, pre, tfrmd, 3, 2);
    Zdnn.transformZtensor(ztensor, counting());
    Examples.free(ztensor);
    return List.of(new float[] {ztensor.recScale(), ztensor.offset()});
  }
}
