// SPDX-License-Identifier: Apache-2.0

import { type Session, zdnn, type Ztensor } from "nnpa";

import { counting, integers } from "./fill.js";

const INT8_MIN = -128;
const INT8_MAX = 127;

/**
 * Creates and fills a quantized ztensor, frees it, and returns what is left of the structure,
 * rec_scale and offset: the zDNN API Reference 1.2.0's "Example of an application creating a quantized
 * ztensor".
 */
export async function quantizedZtensor(session: Session): Promise<Float32Array[]> {
  const [dimN, dimH, dimW, dimC] = [1, 32, 32, 3];
  const data1 = counting(dimN * dimH * dimW * dimC);
  const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_NHWC, zdnn.FP32, dimN, dimH, dimW, dimC);
  const [scale, offset] = [3, 2];
  const tfrmd = zdnn.generateQuantizedTransformedDesc(pre, zdnn.QUANTIZED_DLFLOAT16);
  const ztensor = await zdnn.initQuantizedZtensorWithMalloc(session, pre, tfrmd, scale, offset);
  await zdnn.transformZtensor(ztensor, data1);
  await zdnn.freeZtensorBuffer(ztensor);
  return [Float32Array.of(ztensor.recScale, ztensor.offset)];
}

/** How the quantized products differ: input quantized on the way, biases pre-computed. */
interface Variant {
  onTheFly: boolean;
  preComputed: boolean;
}

/** Makes a ztensor of scale 1 and offset 0, quantizing FP32 data to INT8 or keeping DLFLOAT16. */
async function operand(
  session: Session,
  layout: number,
  sizes: readonly number[],
  start: number,
  dlfloat: boolean,
): Promise<Ztensor> {
  const pre = zdnn.initPreTransformedDesc(layout, zdnn.FP32, ...sizes);
  const kind = dlfloat ? zdnn.QUANTIZED_DLFLOAT16 : zdnn.QUANTIZED_INT8;
  const tfrmd = zdnn.generateQuantizedTransformedDesc(pre, kind);
  const ztensor = await zdnn.initQuantizedZtensorWithMalloc(session, pre, tfrmd, 1, 0);
  const count = sizes.reduce((product, size) => product * size, 1);
  const data = Float32Array.from(integers(count, start));
  return dlfloat
    ? zdnn.transformZtensor(ztensor, data)
    : zdnn.transformQuantizedZtensor(ztensor, false, INT8_MIN, INT8_MAX, data);
}

/**
 * Multiplies quantized stacks: the zDNN API Reference 1.2.0's four examples "of calling the
 * zdnn_quantized_matmul_op API". Flags that the C programs leave out of the call are false.
 */
export function quantizedMatmul({ onTheFly, preComputed }: Variant) {
  return async (session: Session): Promise<Float32Array[]> => {
    const [s, m, n, p] = [2, 3, 4, 5];
    const input = await operand(session, zdnn.ZDNN_3DS, [s, m, n], 0, onTheFly);

    const weightsPre = zdnn.initPreTransformedDesc(zdnn.ZDNN_3DS, zdnn.INT8, s, n, p);
    const weightsTfrmd = zdnn.generateQuantizedTransformedDesc(
      weightsPre, zdnn.QUANTIZED_WEIGHTS_INT8,
    );
    const weights = await zdnn.initQuantizedZtensorWithMalloc(session, weightsPre, weightsTfrmd, 1, 0);
    const weightsData = integers(s * n * p, 1);
    await zdnn.transformQuantizedZtensor(weights, false, INT8_MIN, INT8_MAX, weightsData);

    const biases = await operand(session, zdnn.ZDNN_2DS, [s, p], 2, preComputed);

    const outputPre = zdnn.initPreTransformedDesc(zdnn.ZDNN_3DS, zdnn.FP32, s, m, p);
    const outputTfrmd = zdnn.generateQuantizedTransformedDesc(outputPre, zdnn.QUANTIZED_DLFLOAT16);
    const output = await zdnn.initQuantizedZtensorWithMalloc(session, outputPre, outputTfrmd, 1, 0);

    const op = zdnn.MATMUL_OP_ADDITION;
    await zdnn.quantizedMatmulOp(
      input, weights, biases, op, INT8_MIN, INT8_MAX, false, false, preComputed, output,
    );

    const outputData = new Float32Array(s * m * p);
    await zdnn.transformOrigtensor(output, outputData);
    for (const ztensor of [input, weights, biases, output]) {
      await zdnn.freeZtensorBuffer(ztensor);
    }
    return [outputData];
  };
}
