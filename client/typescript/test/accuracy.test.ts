// SPDX-License-Identifier: Apache-2.0

/** How far a hosted network is from FP32, and where it fails: as the Python client says. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { type AccuracyOptions, connect, type NetworkInput, type Session } from "nnpa";

import { DIGITS, DOUBLE, printedByPython } from "./python.js";

const ROWS = 20;
let session: Session;

before(async () => {
  session = await connect();
});
after(() => session.close());

test("figures, the report, and what a probe finds are those of the Python client", async () => {
  const python = await printedByPython("hosted_accuracy.py", session.target, DIGITS);
  await using net = await session.load(DIGITS);
  const image = Float32Array.from({ length: ROWS * 64 }, (_, i) => (((i * 7) % 23) - 11) / 32);
  const labels = Array.from({ length: ROWS }, (_, row) => row % 10);
  const options = { labels, batchRows: 8, nodeRows: 4, int8: true, maxDrop: 0.5, html: true };
  const accuracy = await net.measureAccuracy({ image }, { ...options, about: { data: "made up" } });
  const { verdict, drop, table, report } = accuracy;
  assert.deepEqual(report.about, { data: "made up" });
  const probe = await net.probe({ sizes: [1, 2], machines: ["telum1"] });
  assert.deepEqual({ verdict, drop, table, report: { ...report, about: {} }, probe }, python);
  assert.ok(accuracy.text.startsWith(verdict), accuracy.text);
  assert.ok(accuracy.html.startsWith("<!DOCTYPE html>"), accuracy.html);
});

test("rows without labels may have one axis more; batches change no figure", async () => {
  await using net = await session.load(DOUBLE);
  const data = Float32Array.from({ length: 5 * 2 * 3 }, (_, i) => i / 3);
  const options = { machines: ["z16"] };
  const whole = await net.measureAccuracy({ x: data }, options);
  const shaped = { x: { data, shape: [5, 2, 3] } };
  const batches = await net.measureAccuracy(shaped, { ...options, batchRows: 2 });
  assert.deepEqual(batches.table, whole.table);
  const [run, ...more] = whole.table;
  assert.deepEqual([run?.run, run?.accuracy, more.length], ["telum1", null, 0]);
  assert.ok((run?.l2r ?? 0) > 0);
  assert.match(whole.verdict, /over 5 rows, on Telum I/);
  assert.deepEqual([whole.drop, whole.html], [0, ""]);
});

test("what does not fit is refused before the wire, by its name", async () => {
  const net = await session.load(DOUBLE, { cName: "double" });
  const rows = (count: number): Record<string, NetworkInput> => ({ x: new Float32Array(count) });
  const flat = { x: { data: new Float32Array(6), shape: [2, 3] } };
  const mistakes: [Record<string, NetworkInput>, AccuracyOptions, string][] = [
    [{}, {}, "input x is missing, expected x float32[2, 3]"],
    [rows(0), {}, "rows: got none, expected at least 1"],
    [rows(7), {}, "input x: got 7 elements, expected [-1, 2, 3]"],
    [flat, {}, "input x: got float32 [2, 3], expected float32 [-1, 2, 3]"],
    [{ x: new Float64Array(6) }, {}, "input x: got Float64Array, expected float32 (Float32Array)"],
    [rows(12), { labels: [1, 2, 3] }, "labels: got 3 for 2 rows, expected as many for each"],
    [rows(12), { batchRows: 5000 }, "batchRows: got 5000, expected 1 to 4096"],
  ];
  for (const [inputs, options, message] of mistakes) {
    await assert.rejects(net.measureAccuracy(inputs, options), { message });
  }
  await assert.rejects(net.probe({ machines: ["z15"] }), { reason: "FIELD_INVALID" });
  await net.close();
  const message = "network double: is closed, session.load loads it again";
  await assert.rejects(net.measureAccuracy(rows(6)), { name: "NnpaError", message });
  await assert.rejects(net.probe(), { name: "NnpaError", message });
});
