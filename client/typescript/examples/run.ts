// SPDX-License-Identifier: Apache-2.0

/**
 * Runs the zDNN API Reference's ten example programs: node run.js [target].
 *
 * Prints a line of JSON each: its name, and its results as FP32 bits, hexadecimal.
 */

import process from "node:process";

import { connect, type Session, zdnn } from "nnpa";

import { add } from "./add.js";
import { quantizedMatmul, quantizedZtensor } from "./quantized.js";
import { gruForward, lstm, lstmMultiLayerBidirectional } from "./recurrent.js";

const EXAMPLES: Record<string, (session: Session) => Promise<Float32Array[]>> = {
  add,
  quantized_ztensor: quantizedZtensor,
  quantized_matmul: quantizedMatmul({ onTheFly: false, preComputed: false }),
  quantized_matmul_on_the_fly: quantizedMatmul({ onTheFly: true, preComputed: false }),
  quantized_matmul_pre_computed: quantizedMatmul({ onTheFly: false, preComputed: true }),
  quantized_matmul_pre_computed_on_the_fly: quantizedMatmul({ onTheFly: true, preComputed: true }),
  lstm_forward: lstm(zdnn.FWD),
  lstm_bidirectional: lstm(zdnn.BIDIR),
  lstm_multi_layer_bidirectional: lstmMultiLayerBidirectional,
  gru_forward: gruForward,
};

function bits(array: Float32Array): string[] {
  return Array.from(new Uint32Array(array.buffer), (word) =>
    word.toString(16).toUpperCase().padStart(8, "0"),
  );
}

await using session = await connect(process.argv[2]);
for (const [name, example] of Object.entries(EXAMPLES)) {
  const results = await example(session);
  console.log(JSON.stringify({ name, results: results.map(bits) }));
}
