// SPDX-License-Identifier: Apache-2.0

/** Runs a layer of embARC MLI and its tanh in one request: node mli.js [target]. */

import process from "node:process";

import { connect, mli, type Session } from "nnpa";

const { MLI_EL_FX_8, MLI_EL_FX_16 } = mli.ElType;
const WEIGHTS = [0.5, -0.5, 0.25, 1, 0, -0.25];
const BIAS = [0.125, -0.125];

/** Runs a layer of two neurons over three values, 16-bit data with 8-bit weights. */
export async function layer(session: Session, values: readonly number[]): Promise<Float64Array> {
  const x = mli.quantise(values, { elType: MLI_EL_FX_16, fracBits: 14 });
  const weights = mli.quantise(WEIGHTS, { elType: MLI_EL_FX_8, fracBits: 6, shape: [2, 3] });
  const bias = mli.quantise(BIAS, { elType: MLI_EL_FX_8, fracBits: 6 });
  const out = await mli.batch(session, async (batch) => {
    const sums = await mli.krnFullyConnectedFx8w16d(batch, x, weights, bias, { fracBits: 12 });
    return mli.krnTanhFx16(batch, sums);
  });
  return mli.dequantise(out);
}

if (process.argv[1] === import.meta.filename) {
  await using session = await connect(process.argv[2]);
  console.log(await layer(session, [0.5, -0.25, 1]));
}
