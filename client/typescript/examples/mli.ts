// SPDX-License-Identifier: Apache-2.0

/**
 * Runs two embARC MLI kernels in one call: node mli.js [target].
 *
 * The generated messages are the API; the session's connection carries them.
 */

import process from "node:process";

import { connect, type Session } from "nnpa";
import { ElType, MliService, MliStatus } from "nnpa/mli/v1";

/** Fractional bits of what goes in, of the weights, and of the layer's sums. */
const [IN_BITS, WEIGHT_BITS, SUM_BITS] = [14, 7, 12];

function bytes(array: Int16Array | Int8Array): Uint8Array {
  return new Uint8Array(array.buffer);
}

/** Returns tanh(weights * in + bias) of a layer of 2 neurons in 16-bit data with 8-bit weights. */
export async function layer(session: Session, values: readonly number[]): Promise<number[]> {
  const data = Int16Array.from(values, (value) => Math.round(value * 2 ** IN_BITS));
  const fixed = (elType: ElType, memory: Int16Array | Int8Array, shape: number[], bits: number) => ({
    case: "inline" as const,
    value: {
      memory: { case: "data" as const, value: bytes(memory) },
      shape,
      elType,
      elParams: { case: "fx" as const, value: { fracBits: bits } },
    },
  });
  const room = { case: "zeroBytes" as const, value: 4 };
  const fx = { case: "fx" as const, value: { fracBits: SUM_BITS } };
  const weights = Int8Array.from([64, -64, 32, 127, 0, -32]);
  const { results } = await session.transport.unary(MliService.method.runKernel, {
    kernels: [
      {
        kernel: {
          case: "krnFullyConnectedFx8w16d",
          value: {
            in: { tensor: fixed(ElType.MLI_EL_FX_16, data, [3], IN_BITS) },
            weights: { tensor: fixed(ElType.MLI_EL_FX_8, weights, [2, 3], WEIGHT_BITS) },
            bias: { tensor: fixed(ElType.MLI_EL_FX_8, Int8Array.of(16, -16), [2], WEIGHT_BITS) },
            out: { tensor: { case: "inline", value: { memory: room, elParams: fx } } },
          },
        },
      },
      {
        kernel: {
          case: "krnTanhFx16",
          value: {
            in: { tensor: { case: "outputOf", value: { kernelIndex: 0, field: "out" } } },
            out: { tensor: { case: "inline", value: { memory: room } } },
          },
        },
      },
    ],
  });
  const last = results.at(-1);
  const out = last?.outputs[0]?.tensor;
  if (last?.mliStatus !== MliStatus.OK || out?.memory.case !== "data" || out.elParams.case !== "fx") {
    throw new Error(last?.refusal?.text ?? "no answer");
  }
  const scale = 2 ** -out.elParams.value.fracBits;
  const { value } = out.memory;
  const elements = new Int16Array(value.slice().buffer, 0, 2);
  return Array.from(elements, (element) => element * scale);
}

if (process.argv[1] === import.meta.filename) {
  await using session = await connect(process.argv[2]);
  console.log(await layer(session, [0.5, -0.25, 1]));
}
