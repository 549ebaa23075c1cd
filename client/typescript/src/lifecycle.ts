// SPDX-License-Identifier: Apache-2.0

/**
 * Init functions of ztensors.
 *
 * A ztensor without a buffer needs no server: it lives in the client, and travels inline with the few
 * operations that take one. Allocation creates it in the session.
 */

import { allochelperZtensor } from "./allocation.js";
import { requireZtensors } from "./call.js";
import type { TensorDesc } from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";
import { Ztensor } from "./ztensor.js";

/**
 * Returns a ztensor without a buffer; descriptors are copied.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_init_ztensor.
 */
export function initZtensor(session: Session, preTfrmdDesc: TensorDesc, tfrmdDesc: TensorDesc): Ztensor {
  return Ztensor.unallocated(session.guest, preTfrmdDesc, tfrmdDesc);
}

/**
 * Returns a quantized ztensor without a buffer; it keeps 1/scale in FP32, 0 for scale 0.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor.
 */
export function initQuantizedZtensor(
  session: Session,
  preTfrmdDesc: TensorDesc,
  tfrmdDesc: TensorDesc,
  scale: number,
  offset: number,
): Ztensor {
  const pair = [Math.fround(scale), Math.fround(offset)] as const;
  return Ztensor.unallocated(session.guest, preTfrmdDesc, tfrmdDesc, pair);
}

/**
 * Returns a ztensor with zero-filled sticks. Throws ZdnnError as `allochelperZtensor`.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_init_ztensor_with_malloc.
 */
export function initZtensorWithMalloc(
  session: Session,
  preTfrmdDesc: TensorDesc,
  tfrmdDesc: TensorDesc,
  options?: CallOptions,
): Promise<Ztensor> {
  return allochelperZtensor(initZtensor(session, preTfrmdDesc, tfrmdDesc), options);
}

/**
 * Returns a quantized ztensor with zero-filled sticks. Throws ZdnnError as `allochelperZtensor`.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor_with_malloc.
 */
export function initQuantizedZtensorWithMalloc(
  session: Session,
  preTfrmdDesc: TensorDesc,
  tfrmdDesc: TensorDesc,
  scale: number,
  offset: number,
  options?: CallOptions,
): Promise<Ztensor> {
  const ztensor = initQuantizedZtensor(session, preTfrmdDesc, tfrmdDesc, scale, offset);
  return allochelperZtensor(ztensor, options);
}

/**
 * Returns whether the ztensor carries a scale: its reciprocal is not 0.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_is_quantized_ztensor.
 */
export function isQuantizedZtensor(ztensor: Ztensor): boolean {
  requireZtensors({ ztensor });
  return ztensor.recScale !== 0;
}
