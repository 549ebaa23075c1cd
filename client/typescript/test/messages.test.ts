// SPDX-License-Identifier: Apache-2.0

/** Mistakes are answered in the words of who made them, and nothing prints a session's name. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inspect } from "node:util";

import { connect, listMachines, type ProgramCheck, type Session, type TransportError, zdnn, type Ztensor } from "nnpa";

let session: Session;
let a: Ztensor;

before(async () => {
  session = await connect(undefined, { machine: "z16" });
  a = await session.ztensor(Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
});
after(() => session.close());

test("an operand that is no ztensor is refused by its C name, before the wire", async () => {
  const none = undefined as unknown as Ztensor;
  const array = Float32Array.of(1) as unknown as Ztensor;
  const mistakes: [() => Promise<unknown>, string][] = [
    [() => zdnn.add(none, a), "input_a: undefined, expected a ztensor"],
    [() => zdnn.add(a, null as unknown as Ztensor), "input_b: null, expected a ztensor"],
    [
      () => zdnn.add(a, array),
      "input_b: Float32Array, expected a ztensor; session.ztensor(array) makes one of an array",
    ],
    [() => zdnn.add(a, a, 1 as unknown as Ztensor), "output: 1, expected a ztensor"],
    [() => zdnn.matmulOp(a, a, none, zdnn.MATMUL_OP_ADDITION), "input_c: undefined, expected a ztensor"],
    [() => zdnn.reshapeZtensor(a, none), "dest: undefined, expected a ztensor"],
    [() => zdnn.transformZtensor(none, Float32Array.of(1)), "ztensor: undefined, expected a ztensor"],
    [() => zdnn.transformOrigtensor(none), "ztensor: undefined, expected a ztensor"],
    [() => zdnn.freeZtensorBuffer(none), "ztensor: undefined, expected a ztensor"],
    [() => zdnn.allochelperZtensor(none), "ztensor: undefined, expected a ztensor"],
  ];
  for (const [call, message] of mistakes) {
    await assert.rejects(call(), { name: "TypeError", message });
  }
});

test("a freed operand is a program check that says freed, and no ZDNN_OK", async () => {
  const freed = await session.ztensor(new Float32Array(6), [2, 3]);
  await zdnn.freeZtensorBuffer(freed);
  await assert.rejects(zdnn.add(a, freed), (error: ProgramCheck) => {
    assert.match(error.message, /The ztensor has no buffer: it was freed, or never allocated\.$/);
    assert.doesNotMatch(error.message, /ZDNN_OK/);
    return error.name === "ProgramCheck";
  });
});

test("a wrong count of sizes names the layout", () => {
  for (const sizes of [[1, 2], [1, 2, 3, 4, 5]]) {
    const message = `sizes: ${sizes.join(", ")}, layout ZDNN_NHWC has 4, not ${sizes.length}`;
    const describing = (): unknown => zdnn.initPreTransformedDesc(zdnn.ZDNN_NHWC, zdnn.FP32, ...sizes);
    assert.throws(describing, { name: "TypeError", message });
  }
});

test("an array of another size than its shape is refused, before the wire", async () => {
  const three = Float32Array.of(1, 2, 3);
  const message = "array: 3 elements, shape [2, 3] has 6";
  await assert.rejects(session.ztensor(three, [2, 3]), { name: "RangeError", message });
});

test("values that are no numbers are told with how to read the others", async () => {
  const tensor = await session.ztensor(Float32Array.of(1e10, 1), [2]);
  const says = /writes NaN for them to out before it throws\.$/;
  await assert.rejects(tensor.data(), says);
  const out = new Float32Array(2);
  await assert.rejects(zdnn.transformOrigtensor(tensor, out), says);
  assert.deepEqual(out, Float32Array.of(NaN, 1));
});

test("a URL is no target, and the error shows what to write", async () => {
  for (const scheme of ["http", "https", "grpc"]) {
    const says = /is a URL, expected host:port; give "localhost:50051", and tlsCa/;
    await assert.rejects(connect(`${scheme}://localhost:50051/`), says);
  }
});

test("text and advice are two sentences", async () => {
  await assert.rejects(connect(session.target, { machine: "z18" }), (error: TransportError) => {
    assert.ok(error.message.endsWith(`. ${error.advice}`), error.message);
    assert.doesNotMatch(error.message, /\.\./);
    return true;
  });
});

test("a session shows where it is and what it runs on, and nothing shows its name", async () => {
  assert.equal(inspect(session), `Session(open at ${session.target}, telum1, zDNN 1.2.0)`);
  assert.match(inspect(await session.status()), /^Session\(of telum1, zDNN 1\.2\.0: \d+ tensors, \d+ bytes\)$/);
  await using second = await connect(session.target);
  const theirs = await second.ztensor(new Float32Array(6), [2, 3]);
  const mixed = await zdnn.add(a, theirs).catch((error: unknown) => error);
  const shown = [session, session.guest, a, session.transport, await session.status(), mixed];
  for (const text of shown.map((value) => inspect(value, { depth: 9, getters: false }))) {
    assert.ok(!text.includes(session.name) && !text.includes(second.name), text);
  }
  assert.deepEqual(JSON.parse(JSON.stringify([session, a])), [String(session), String(a)]);
});

test("a ztensor shows layout, sizes, type and what its buffer is", async () => {
  const tensor = await session.ztensor(new Float32Array(6), [2, 3]);
  const shows = (state: string): void => {
    const shape = "ZDNN_2D 2x3 FP32 as ZDNN_NHWC 1x1x2x3 ZDNN_DLFLOAT16";
    assert.equal(inspect(tensor), `Ztensor(${shape}, ${state})`);
    assert.equal(String(tensor), inspect(tensor));
  };
  shows("4096 bytes, transformed");
  await zdnn.resetZtensor(tensor);
  shows("4096 bytes, not transformed");
  await zdnn.freeZtensorBuffer(tensor);
  shows("freed");
  const { preTransformedDesc: pre, transformedDesc: tfrmd } = tensor;
  assert.match(inspect(zdnn.initZtensor(session, pre, tfrmd)), /, no buffer\)$/);
  const quantized = zdnn.initQuantizedZtensor(session, pre, tfrmd, 2, 3);
  assert.match(inspect(quantized), /, no buffer, rec_scale 0.5, offset 3\)$/);
});

test("machines and descriptors show what they are, in one line", async () => {
  const machines = await listMachines(session.target);
  const telum1 = machines.find(({ name }) => name === "machines/telum1");
  assert.match(inspect(telum1), /^Machine\(telum1, z16.*: .+, \d+ functions\)$/);
  assert.equal(inspect(session.machine), inspect(telum1));
  await using custom = await connect(session.target, { machine: { maxDim1: 64 } });
  assert.match(inspect(custom.machine), /^Machine\(custom: /);
  const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_2D, zdnn.FP32, 2, 3);
  assert.equal(inspect(pre), "TensorDesc(ZDNN_2D 2x3 FP32)");
  pre.dim1 = 4;
  assert.equal(inspect(pre), "TensorDesc(ZDNN_2D 2x4 FP32)");
  const tfrmd = "TensorDesc(ZDNN_NHWC 1x1x2x3 ZDNN_DLFLOAT16)";
  assert.equal(inspect(a.transformedDesc), tfrmd);
  assert.equal(inspect(zdnn.generateTransformedDesc(a.preTransformedDesc)), tfrmd);
});
