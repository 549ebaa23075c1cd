// SPDX-License-Identifier: Apache-2.0

/** Where a hosted network fails: as the Python client says. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { connect, type Session } from "nnpa";

import { DIGITS, DOUBLE, printedByPython } from "./python.js";

let session: Session;

before(async () => {
  session = await connect();
});
after(() => session.close());

test("a probe finds what it finds for the Python client", async () => {
  const python = await printedByPython("hosted_probe.py", session.target, DIGITS);
  await using net = await session.load(DIGITS);
  const runs = await net.probe({ sizes: [1, 2], machines: ["telum1"] });
  assert.deepEqual({ runs }, python);
  assert.equal(runs[0]?.inputs, "zeros");
});

test("a probe of an unknown machine, or of a network that is closed, is refused", async () => {
  const net = await session.load(DOUBLE, { cName: "double" });
  await assert.rejects(net.probe({ machines: ["z15"] }), { reason: "FIELD_INVALID" });
  await net.close();
  const message = "network double: is closed, session.load loads it again";
  await assert.rejects(net.probe(), { name: "NnpaError", message });
});
