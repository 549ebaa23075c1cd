// SPDX-License-Identifier: Apache-2.0

/**
 * Runs two embARC MLI kernels in one call: node mli.js [target].
 *
 * The generated messages are the API; the session's connection carries them.
 */

import process from "node:process";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { connect, type Session } from "nnpa";
import { ElType, type KernelSchema, MliService, MliStatus, type TensorSchema } from "nnpa/mli/v1";

/** Fractional bits of what goes in, of the weights, and of the layer's sums. */
const [IN_BITS, WEIGHT_BITS, SUM_BITS] = [14, 7, 12];

type Inline = MessageInitShape<typeof TensorSchema>;

/** Returns a tensor with memory of its own. */
function fixed(array: Int16Array | Int8Array, shape: number[], fracBits: number): Inline {
  return {
    memory: { case: "data", value: new Uint8Array(array.buffer) },
    shape,
    elType: array instanceof Int8Array ? ElType.MLI_EL_FX_8 : ElType.MLI_EL_FX_16,
    elParams: { case: "fx", value: { fracBits } },
  };
}

/** Returns room for two elements of 16 bits, which a kernel fills. */
function room(elParams: Inline["elParams"] = { case: undefined }): Inline {
  return { memory: { case: "zeroBytes", value: 4 }, elParams };
}

function inline(value: Inline): { tensor: { case: "inline"; value: Inline } } {
  return { tensor: { case: "inline", value } };
}

/** Returns the kernels of tanh(weights * in + bias), 16-bit data with 8-bit weights. */
function kernels(data: Int16Array): MessageInitShape<typeof KernelSchema>[] {
  const layer = {
    in: inline(fixed(data, [3], IN_BITS)),
    weights: inline(fixed(Int8Array.of(64, -64, 32, 127, 0, -32), [2, 3], WEIGHT_BITS)),
    bias: inline(fixed(Int8Array.of(16, -16), [2], WEIGHT_BITS)),
    out: inline(room({ case: "fx", value: { fracBits: SUM_BITS } })),
  };
  const sums = { tensor: { case: "outputOf" as const, value: { kernelIndex: 0, field: "out" } } };
  return [
    { kernel: { case: "krnFullyConnectedFx8w16d", value: layer } },
    { kernel: { case: "krnTanhFx16", value: { in: sums, out: inline(room()) } } },
  ];
}

/** Runs a layer of two neurons over three values, and returns its outputs. */
export async function layer(session: Session, values: readonly number[]): Promise<number[]> {
  const data = Int16Array.from(values, (value) => Math.round(value * 2 ** IN_BITS));
  const request = { kernels: kernels(data) };
  const { results } = await session.transport.unary(MliService.method.runKernel, request);
  const last = results.at(-1);
  const out = last?.outputs[0]?.tensor;
  if (last?.mliStatus !== MliStatus.OK || out?.memory.case !== "data" || out.elParams.case !== "fx") {
    throw new Error(last?.refusal?.text ?? "no answer");
  }
  const scale = 2 ** -out.elParams.value.fracBits;
  const elements = new Int16Array(out.memory.value.slice().buffer, 0, 2);
  return Array.from(elements, (element) => element * scale);
}

if (process.argv[1] === import.meta.filename) {
  await using session = await connect(process.argv[2]);
  console.log(await layer(session, [0.5, -0.25, 1]));
}
