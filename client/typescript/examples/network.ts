// SPDX-License-Identifier: Apache-2.0

/** Hosts an ONNX model of FP32 inputs and runs it over zeros: node network.js MODEL.onnx [target]. */

import process from "node:process";

import { connect } from "nnpa";

await using session = await connect(process.argv[3]);
await using net = await session.load(process.argv[2] ?? "model.onnx");
const zeros = net.inputs.map(({ name, shape }) => {
  const sizes = shape.map((size) => Math.max(1, size)); // free dims are 1
  const data = new Float32Array(sizes.reduce((product, size) => product * size, 1));
  return [name, { data, shape: sizes }] as const;
});
console.log(net);
console.log(await net.report());
console.log(await net.run(Object.fromEntries(zeros)));
