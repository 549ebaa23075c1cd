// SPDX-License-Identifier: Apache-2.0

/** Allocation of a ztensor's sticks in its session, and their release. */

import { type Call, free, type OperationInit, requireZtensors } from "./call.js";
import type { CallOptions } from "./transport.js";
import type { Ztensor } from "./ztensor.js";

/**
 * Allocates zero-filled sticks, and returns the ztensor.
 *
 * Throws ZdnnError: ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE
 * (0, or beyond what the machine allows), ZDNN_ALLOCATION_FAILURE.
 * Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
 */
export async function allochelperZtensor(ztensor: Ztensor, options?: CallOptions): Promise<Ztensor> {
  requireZtensors({ ztensor });
  const calls: Call[] = [];
  const creates: Ztensor[] = [];
  if (!ztensor.id) {
    calls.push({ name: "init_ztensor", operation: creation(ztensor) });
    creates.push(ztensor);
  }
  const operation: OperationInit = {
    operation: { case: "allochelperZtensor", value: { ztensor: ztensor.ref() } },
  };
  calls.push({ name: "allochelper_ztensor", operation, tensors: { ztensor }, creates });
  await ztensor.guest.submit(calls, options);
  return ztensor;
}

/** Gives a ztensor an id, and returns the operation that creates it in the session. */
function creation(ztensor: Ztensor): OperationInit {
  const { preTransformedDesc, transformedDesc } = ztensor.structure;
  const id = ztensor.guest.newId();
  ztensor.claim(id);
  const value = { ztensor: id, preTransformedDesc, transformedDesc };
  if (ztensor.quantization === undefined) {
    return { operation: { case: "initZtensor", value } };
  }
  const [scale, offset] = ztensor.quantization;
  return { operation: { case: "initQuantizedZtensor", value: { ...value, scale, offset } } };
}

/**
 * Frees the sticks; the structure does not change. A ztensor without references is freed the same
 * way, later. Throws ZdnnError: ZDNN_INVALID_BUFFER when there are none.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_free_ztensor_buffer.
 */
export async function freeZtensorBuffer(ztensor: Ztensor, options?: CallOptions): Promise<void> {
  requireZtensors({ ztensor });
  const { guest } = ztensor;
  const call: Call = {
    name: "free_ztensor_buffer",
    operation: free(ztensor.ref()),
    tensors: { ztensor },
    read: (result) => {
      if (result.zdnnStatus === 0 && ztensor.id) {
        guest.untrack(ztensor);
      }
    },
  };
  await guest.submit([call], options);
}
