// SPDX-License-Identifier: Apache-2.0

/** Hosted networks: loaded, run over arrays by name, refused in the words of who made a mistake. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

import { connect, type NetworkInput, type Session, type ZdnnWarning } from "nnpa";

import { DIGITS, DOUBLE, printedByPython } from "./python.js";

const X = Float32Array.of(1, 2, 3, 4, 5, 6);

let session: Session;
const warnings: ZdnnWarning[] = [];

before(async () => {
  session = await connect(undefined, { onWarning: (warning) => warnings.push(warning) });
});
after(() => session.close());

/** Returns the words of an FP32 array, hexadecimal. */
function words(data: unknown): string[] {
  assert.ok(data instanceof Float32Array);
  return Array.from(new Uint32Array(data.buffer), (word) =>
    word.toString(16).toUpperCase().padStart(8, "0"),
  );
}

for (const machine of ["telum1", "telum2"]) {
  test(`outputs on ${machine} are those of the Python client, bit for bit`, async () => {
    await using own = await connect(session.target, { machine });
    await using net = await own.load(DIGITS);
    const image = Float32Array.from({ length: 128 }, (_, i) => (((i * 7) % 23) - 11) / 32);
    const { logits } = await net.run({ image });
    const got = { logits: { shape: logits?.shape, words: words(logits?.data) } };
    const { target } = session;
    assert.deepEqual(got, await printedByPython("hosted_outputs.py", target, DIGITS, machine));
  });
}

test("a model comes by path, URL, bytes, or as one that is published", async () => {
  const bytes = new Uint8Array(await readFile(DOUBLE));
  for (const model of [DOUBLE, pathToFileURL(DOUBLE), bytes]) {
    await using net = await session.load(model);
    assert.deepEqual((await net.run({ x: X })).y?.data, X.map((value) => 2 * value));
  }
  await using first = await session.load(bytes, { cName: "first", publishAs: "double" });
  await using second = await connect(session.target);
  await using net = await second.load({ published: "double" });
  assert.equal(net.modelSignature, first.modelSignature);
  assert.deepEqual((await net.run({ x: X })).y, { data: X.map((value) => 2 * value), shape: [2, 3] });
});

test("a network and its report show themselves in one line, without the session's name", async () => {
  await using net = await session.load(DOUBLE, { cName: "double" });
  assert.equal(inspect(net), "Network(double on telum2: x float32[2, 3] -> y float32[2, 3])");
  assert.equal(String(net), inspect(net));
  const report = await net.report();
  const places = "1 nodes on the accelerator, 0 on the host, 0 folded";
  assert.equal(inspect(report), `NetworkReport(double on telum2: ${places})`);
  assert.deepEqual(report.nodes.map(({ device, functions }) => [device, functions]), [
    ["accelerator", ["add"]],
  ]);
  assert.ok(!inspect(net, { depth: 9, customInspect: false }).includes(session.name));
});

test("infer counts the calls of zDNN and warns of nothing, run warns once of a violation", async () => {
  await using net = await session.load(DOUBLE, { overflow: "ninf" });
  const { outputs, calls, nans, violations } = await net.infer({ x: X });
  assert.deepEqual(Object.keys(outputs), ["y"]);
  assert.equal(calls.add, 1n);
  assert.deepEqual([nans.y, violations.length, warnings.length], [0n, 0, 0]);
  await net.run({ x: X.map(() => 8e9) });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]?.message ?? "", /^zdnn_add \(node .*\): ZDNN_ELEMENT_RANGE_VIOLATION: /);
});

void describe("mistakes", () => {
  test("a wrong name, type or shape is refused before the wire, with what is expected", async () => {
    await using net = await session.load(DOUBLE);
    const mistakes: [Record<string, unknown>, string][] = [
      [{ x: X, z: X }, "inputs: got z, expected x"],
      [{}, "input x is missing, expected x float32[2, 3]"],
      [{ x: Float64Array.from(X) }, "input x: got Float64Array, expected float32 (Float32Array)"],
      [{ x: [1, 2] }, "input x: got Array, expected float32 (Float32Array)"],
      [{ x: null }, "input x: got null, expected float32 (Float32Array)"],
      [{ x: X.subarray(1) }, "input x: got 5 elements, expected [2, 3]"],
      [{ x: { data: X, shape: [3, 2] } }, "input x: got float32 [3, 2], expected float32 [2, 3]"],
      [
        { x: { data: X.subarray(1), shape: [2, 3] } },
        "input x: 5 elements do not fill shape [2, 3]",
      ],
    ];
    for (const [inputs, message] of mistakes) {
      const running = net.run(inputs as Record<string, NetworkInput>);
      await assert.rejects(running, { name: "TypeError", message });
    }
  });

  test("elements that do not fill the one free dim of an input are refused before the wire", async () => {
    await using net = await session.load(DIGITS);
    const message = "input image: got 65 elements, expected [-1, 1, 8, 8]";
    await assert.rejects(net.run({ image: new Float32Array(65) }), { name: "TypeError", message });
  });

  test("a network that is closed says so, and close may be repeated", async () => {
    const net = await session.load(DOUBLE, { cName: "gone" });
    await net.close();
    await net.close();
    const message = "network gone: is closed, session.load loads it again";
    await assert.rejects(net.run({ x: X }), { name: "NnpaError", message });
    await assert.rejects(net.report(), { name: "NnpaError", message });
  });

  test("a network may be closed after its session", async () => {
    const own = await connect(session.target);
    const net = await own.load(DOUBLE);
    await own.close();
    await net.close();
  });

  test("what is no model is refused by the server, a missing file by the file system", async () => {
    const { length } = X;
    await assert.rejects(session.load(new Uint8Array(length)), { reason: "MODEL_INVALID" });
    await assert.rejects(session.load("/no/model.onnx"), { code: "ENOENT" });
    const placement = "some" as "all";
    await assert.rejects(session.load(DOUBLE, { placement }), /expected one of compiler, all/);
  });

  test("a refusal of the client API has ST's names and numbers", async () => {
    await using first = await session.load(DOUBLE, { cName: "twice" });
    await assert.rejects(session.load(DOUBLE, { cName: first.cName }), {
      name: "NetworkError",
      message: /^AI_ERROR_CREATE_FAILED \/ AI_ERROR_CODE_IN_USE \(0x33, 0x40\): /,
    });
  });
});
