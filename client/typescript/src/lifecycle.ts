// SPDX-License-Identifier: Apache-2.0

/**
 * The life of a ztensor: init, allocate, free.
 *
 * A ztensor without a buffer needs no server: it lives in the client, and travels inline with the few
 * operations that take one. Allocation makes it known to the session.
 */

import { clone, create } from "@bufbuild/protobuf";

import { type TensorDesc, TensorDescSchema, ZtensorSchema } from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import type { Call, OperationInit } from "./guest.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";
import { type Ref, Ztensor } from "./ztensor.js";

/**
 * Returns a ztensor without a buffer; descriptors are copied.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_init_ztensor.
 */
export function initZtensor(session: Session, preTfrmdDesc: TensorDesc, tfrmdDesc: TensorDesc): Ztensor {
  return blank(session, preTfrmdDesc, tfrmdDesc);
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
  return blank(session, preTfrmdDesc, tfrmdDesc, pair);
}

function blank(
  session: Session,
  preTransformedDesc: TensorDesc,
  transformedDesc: TensorDesc,
  quantization?: readonly [number, number],
): Ztensor {
  const [scale, offset] = quantization ?? [0, 0];
  const structure = create(ZtensorSchema, {
    preTransformedDesc: clone(TensorDescSchema, preTransformedDesc),
    transformedDesc: clone(TensorDescSchema, transformedDesc),
    bufferSize: 0n,
    nullBuffer: true,
    recScale: scale === 0 ? scale : Math.fround(1 / scale),
    offset,
  });
  return new Ztensor(session.guest, structure, 0n, quantization);
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
 * Allocates zero-filled sticks, and returns the ztensor.
 *
 * Throws ZdnnError: ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE
 * (0, or beyond what the machine allows), ZDNN_ALLOCATION_FAILURE.
 * Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
 */
export async function allochelperZtensor(ztensor: Ztensor, options?: CallOptions): Promise<Ztensor> {
  const { guest } = ztensor;
  const call = (creates: Ztensor[]): Call => {
    const operation = allochelper(ztensor.ref());
    return { name: "allochelper_ztensor", operation, tensors: { ztensor }, creates };
  };
  if (ztensor.id) {
    await guest.submit([call([])], options);
    return ztensor;
  }
  const id = guest.newId();
  const operation = creation(ztensor, id);
  ztensor.claim(id);
  await guest.submit([{ name: "init_ztensor", operation }, call([ztensor])], options);
  return ztensor;
}

function allochelper(ztensor: Ref): OperationInit {
  return { operation: { case: "allochelperZtensor", value: { ztensor } } };
}

function creation(ztensor: Ztensor, id: bigint): OperationInit {
  const { preTransformedDesc, transformedDesc } = ztensor.structure;
  const value = { ztensor: id, preTransformedDesc, transformedDesc };
  if (ztensor.quantization === undefined) {
    return { operation: { case: "initZtensor", value } };
  }
  const [scale, offset] = ztensor.quantization;
  return { operation: { case: "initQuantizedZtensor", value: { ...value, scale, offset } } };
}

/**
 * Frees the sticks; the structure stays as it is. Dropping all references to a ztensor does the same,
 * later. Throws ZdnnError: ZDNN_INVALID_BUFFER when there are none.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_free_ztensor_buffer.
 */
export async function freeZtensorBuffer(ztensor: Ztensor, options?: CallOptions): Promise<void> {
  const { guest } = ztensor;
  const operation: OperationInit = {
    operation: { case: "freeZtensorBuffer", value: { ztensor: ztensor.ref() } },
  };
  const call: Call = {
    name: "free_ztensor_buffer",
    operation,
    tensors: { ztensor },
    read: (result) => {
      if (result.zdnnStatus === 0 && ztensor.id) {
        guest.forget(ztensor);
      }
    },
  };
  await guest.submit([call], options);
}

/**
 * Tells whether the ztensor carries a scale: its reciprocal is not 0.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_is_quantized_ztensor.
 */
export function isQuantizedZtensor(ztensor: Ztensor): boolean {
  return ztensor.recScale !== 0;
}
