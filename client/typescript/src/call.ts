// SPDX-License-Identifier: Apache-2.0

/** Calls: a C function's name, its operation on the wire, and the ztensors that its answer changes. */

import { type MessageInitShape } from "@bufbuild/protobuf";

import type { OperationResult, OperationSchema } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import type { TensorRefSchema, Ztensor as Structure } from "./gen/nnpa/zdnn/v1/tensor_pb.js";

/** An operation of the wire contract. */
export type OperationInit = MessageInitShape<typeof OperationSchema>;

/** A reference to a tensor, as operations have it. */
export type Ref = MessageInitShape<typeof TensorRefSchema>;

/**
 * Facts about C's pointers: whether the addresses of buffers, of the save area and of the work area
 * lie off their 4 KiB boundary.
 */
export interface Pointers {
  bufferMisaligned?: boolean;
  saveAreaMisaligned?: boolean;
  workAreaMisaligned?: boolean;
}

/** A ztensor as a call sees it: its id, and the state that an answer changes. */
export interface CallTensor {
  readonly id: bigint;
  /** Replaces the structure by an answer's. */
  update(structure: Structure): void;
  /** Records that the session does not hold this ztensor, and why. */
  invalidate(reason: string): void;
  /** Records that the buffer is gone; the structure stays. */
  release(): void;
}

/** Throws TypeError for the first operand, by C parameter name, that is not a ztensor. */
export function requireZtensors(operands: Readonly<Record<string, unknown>>): void {
  for (const [name, operand] of Object.entries(operands)) {
    if (operand instanceof Object && "ref" in operand) {
      continue;
    }
    const isArray = Array.isArray(operand) || ArrayBuffer.isView(operand);
    const advice = isArray ? "; session.ztensor(array) makes one of an array" : "";
    const kind = operand instanceof Object ? operand.constructor.name : String(operand);
    throw new TypeError(`${name}: ${kind}, expected a ztensor${advice}`);
  }
}

/** Returns the operation that frees the sticks of a tensor. */
export function free(ztensor: Ref): OperationInit {
  return { operation: { case: "freeZtensorBuffer", value: { ztensor } } };
}

/**
 * One call of a C function: its name without prefix, and its operation on the wire.
 *
 * `tensors` are its ztensors by C parameter name; the answer may change their structure. `creates`
 * exist only after a successful answer. `bytes` counts the arrays that it carries. `read` gets
 * every answer.
 */
export interface Call {
  name: string;
  operation: OperationInit;
  tensors?: Readonly<Record<string, CallTensor>>;
  creates?: readonly CallTensor[];
  bytes?: number;
  read?: (result: OperationResult) => void;
}
