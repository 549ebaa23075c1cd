// SPDX-License-Identifier: Apache-2.0

import { type Session, zdnn } from "nnpa";

import { counting } from "./fill.js";

/**
 * Adds two tensors, call by call as in C, and returns the sum: the zDNN API Reference 1.2.0's
 * "Example flow of an application calling the zDNN APIs".
 */
export async function add(session: Session): Promise<Float32Array[]> {
  const [dimN, dimH, dimW, dimC] = [1, 32, 32, 3];
  const numElements = dimN * dimH * dimW * dimC;
  const data1 = counting(numElements);
  const data2 = counting(numElements);

  const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_NHWC, zdnn.FP32, dimN, dimH, dimW, dimC);
  const tfrmd = zdnn.generateTransformedDesc(pre);

  const ztensorA = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);
  const ztensorB = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);
  const ztensorOut = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);

  await zdnn.transformZtensor(ztensorA, data1);
  await zdnn.transformZtensor(ztensorB, data2);

  await zdnn.add(ztensorA, ztensorB, ztensorOut);

  const dataOut = new Float32Array(numElements);
  await zdnn.transformOrigtensor(ztensorOut, dataOut);

  await zdnn.freeZtensorBuffer(ztensorA);
  await zdnn.freeZtensorBuffer(ztensorB);
  await zdnn.freeZtensorBuffer(ztensorOut);
  return [dataOut];
}
