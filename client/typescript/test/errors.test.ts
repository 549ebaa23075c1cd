// SPDX-License-Identifier: Apache-2.0

/** What goes wrong, and how the SDK reports it. */

import assert from "node:assert/strict";
import { once } from "node:events";
import process from "node:process";
import { after, before, describe, test } from "node:test";

import { connect, ProgramCheck, type Session, TransportError, zdnn, ZdnnError, ZdnnWarning } from "nnpa";

import { ADVICE } from "../src/texts.gen.js";
import { renumbered } from "../src/errors.js";
import { ErrorReason, ZdnnStatus } from "../src/gen/nnpa/zdnn/v1/status_pb.js";
import { isWarning, statusName } from "../src/status.js";

let session: Session;

before(async () => {
  session = await connect();
});
after(() => session.close());

void describe("statuses", () => {
  test("all have a text that begins with their name, and unknown ones say so", () => {
    const numbers = Object.values(ZdnnStatus).filter((code) => typeof code === "number");
    assert.ok(numbers.length > 40);
    for (const number of numbers) {
      const message = zdnn.getStatusMessage(number);
      assert.ok(message.startsWith(`${statusName(number)}: `), message);
    }
    assert.equal(zdnn.getStatusMessage(0x000cf00a), "(Status string is not defined.)");
    assert.equal(statusName(0x000cf00a), "0x000CF00A");
  });

  test("only those of the warning class are warnings", () => {
    assert.equal(isWarning(zdnn.ZDNN_ELEMENT_RANGE_VIOLATION), true);
    assert.equal(isWarning(zdnn.ZDNN_OK), false);
    assert.equal(isWarning(zdnn.ZDNN_EXCEEDS_MDIS), false);
  });
});

void describe("an error status", () => {
  test("is thrown with name, op, and the refusal's field, value, limit and constraint", async () => {
    const a = await session.ztensor(Float32Array.of(1));
    await assert.rejects(zdnn.transformZtensor(a, Float32Array.of(1)), (error: ZdnnError) => {
      assert.equal(error.status, zdnn.ZDNN_INVALID_STATE);
      assert.equal(error.statusName, "ZDNN_INVALID_STATE");
      assert.equal(error.op, "transform_ztensor");
      assert.equal(error.refusal?.field, "ztensor.is_transformed");
      assert.equal(error.operationIndex, undefined);
      assert.match(error.message, /zdnn_transform_ztensor: .*is_transformed/);
      return true;
    });
  });

  test("has the caller in its stack", async () => {
    const a = await session.ztensor(Float32Array.of(1));
    const error: unknown = await zdnn.transformZtensor(a, Float32Array.of(1)).catch((e: unknown) => e);
    assert.match(String((error as Error).stack), /errors\.test\.js/);
  });

  test("of a local function carries the same explanation, from nobody asked", () => {
    const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_FICO, zdnn.FP32);
    assert.throws(() => zdnn.generateTransformedDesc(pre), (error: ZdnnError) => {
      assert.equal(error.statusName, "ZDNN_INVALID_LAYOUT");
      assert.match(error.message, /pre_tfrmd_desc\.layout is 10, allowed: a plain one/);
      return true;
    });
  });
});

void describe("a warning", () => {
  test("goes to the process, and the output is valid", async () => {
    const [dividend, zero] = [await session.ztensor(Float32Array.of(1)), await session.ztensor(Float32Array.of(0))];
    const emitted = once(process, "warning");
    const quotient = await zdnn.div(dividend, zero);
    const [warning] = (await emitted) as [ZdnnWarning];
    assert.ok(warning instanceof ZdnnWarning);
    assert.equal(warning.code, "ZDNN_ELEMENT_RANGE_VIOLATION");
    assert.match(warning.message, /output: 1 not numbers, first at \[0, 0, 0, 0\]: 0x7FFF from 1, 0\./);
    assert.equal(quotient.isTransformed, true);
  });

  test("goes to the session's own listener instead, where there is one", async () => {
    const warnings: ZdnnWarning[] = [];
    await using mine = await connect(session.target, { onWarning: (warning) => { warnings.push(warning); } });
    await zdnn.log(await mine.ztensor(Float32Array.of(-1)));
    assert.deepEqual(warnings.map((warning) => warning.op), ["log"]);
  });

  test("what the library prints goes to the listener of diagnostics", async () => {
    const lines: string[] = [];
    await using mine = await connect(session.target, {
      onDiagnostic: (line) => { lines.push(line.text); },
    });
    const a = await mine.ztensor(Float32Array.of(1));
    await zdnn.freeZtensorBuffer(a);
    await assert.rejects(zdnn.freeZtensorBuffer(a), ZdnnError);
    assert.match(lines.join("\n"), /INVALID_BUFFER|Buffer/i);
  });
});

void describe("a program check", () => {
  test("says what contradicts, and what precheck would have answered", async () => {
    const [a, b] = [await session.ztensor(new Float32Array(3)), await session.ztensor(new Float32Array(4))];
    await assert.rejects(zdnn.add(a, b), (error: ProgramCheck) => {
      assert.ok(error instanceof ProgramCheck);
      assert.deepEqual([error.kind, error.op], ["data", "add"]);
      assert.equal(error.precheckStatus, zdnn.ZDNN_INVALID_SHAPE);
      assert.equal(error.operationIndex, 0);
      assert.match(error.message, /With precheck the status would have been ZDNN_INVALID_SHAPE/);
      return true;
    });
  });
});

void describe("errors of the transport", () => {
  test("every reason of the contract has advice", () => {
    const reasons = Object.keys(ErrorReason).filter((name) => Number.isNaN(Number(name)));
    assert.deepEqual(Object.keys(ADVICE).sort(), reasons.filter((name) => name !== "UNSPECIFIED").sort());
  });

  test("count the caller's operations only, not those that free ztensors", () => {
    const metadata = { operation_index: "3", field: "operations[3].add.input_b" };
    const failure = new TransportError("NOT_FOUND", "operations[3]: gone", "TENSOR_NOT_FOUND", metadata);
    const shifted = renumbered(failure, 2);
    assert.ok(shifted instanceof TransportError);
    assert.deepEqual(shifted.metadata, { operation_index: "1", field: "operations[1].add.input_b" });
    assert.equal(shifted.text, "operations[1]: gone");
    assert.equal(renumbered(failure, 0), failure);
  });
});
