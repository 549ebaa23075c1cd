// SPDX-License-Identifier: Apache-2.0

/** Verbs and data, against plain arithmetic. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { connect, FpFlags, type Session, zdnn, ZdnnError, type Ztensor } from "nnpa";

import { swapped } from "../src/elements.js";
import { OperationSchema } from "../src/gen/nnpa/zdnn/v1/operation_pb.js";

let session: Session;

before(async () => {
  session = await connect();
});
after(() => session.close());

/** Returns halves of small integers, which every float type of zDNN holds exactly. */
function exact(count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => ((i % 64) - 32) / 2);
}

async function allocated(type: number, ...sizes: number[]): Promise<Ztensor> {
  const layout = [zdnn.ZDNN_1D, zdnn.ZDNN_2D, zdnn.ZDNN_3D, zdnn.ZDNN_4D][sizes.length - 1] ?? 0;
  const pre = zdnn.initPreTransformedDesc(layout, type, ...sizes);
  return zdnn.initZtensorWithMalloc(session, pre, zdnn.generateTransformedDesc(pre));
}

function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

void describe("the face of zdnn", () => {
  test("every operation of the contract is a function", () => {
    const functions = zdnn as unknown as Record<string, unknown>;
    const arms = OperationSchema.oneofs.flatMap((oneof) => oneof.fields);
    assert.ok(arms.length > 50);
    const missing = arms.filter((arm) => typeof functions[camel(arm.name)] !== "function");
    assert.deepEqual(missing.map((arm) => arm.name), []);
  });

  test("masks count their bits from the left", () => {
    assert.equal(zdnn.MSB_BITMASK(32, zdnn.NNPA_LAYOUTFMT_4DFEATURE), zdnn.QUERY_LAYOUTFMT_4DFEATURE);
    assert.equal(zdnn.MSB_BITMASK(32, zdnn.NNPA_LAYOUTFMT_4DGENERIC), zdnn.QUERY_LAYOUTFMT_4DGENERIC);
    assert.equal(zdnn.MSB_BITMASK(16, zdnn.NNPA_8_BIT_BINARY_INT), zdnn.QUERY_DATATYPE_BINARY_INT8);
    assert.equal(zdnn.MSB_BITMASK(16, zdnn.NNPA_BFPFMT_TINY), zdnn.QUERY_BFPFMT_TINY);
  });
});

void describe("outputs", () => {
  test("an output that is given is the one returned", async () => {
    const a = await session.ztensor(exact(6), [2, 3]);
    const out = await allocated(zdnn.FP32, 2, 3);
    assert.equal(await zdnn.add(a, a, out), out);
    assert.deepEqual(await out.data(), exact(6).map((x) => 2 * x));
  });

  test("outputs that are left out are made, both of two", async () => {
    const a = await session.ztensor(Float32Array.of(1, 2, 3, 4), [1, 1, 2, 2], {
      layout: zdnn.ZDNN_NHWC,
    });
    const [mean, variance] = await zdnn.moments(a, zdnn.MOMENTS_BESSEL_POPULATION);
    assert.deepEqual(await mean.data(), Float32Array.of(2.5));
    assert.notEqual(mean.id, variance.id);
  });

  test("an operand of another session is refused by name", async () => {
    const ours = await session.ztensor(exact(3));
    await using second = await connect(session.target);
    const theirs = await second.ztensor(exact(3));
    await assert.rejects(zdnn.add(ours, theirs), /input_b: of another session, expected a ztensor of the first operand's session/);
  });

  test("a number that C's type cannot hold is refused by name, value and limit", async () => {
    const a = await session.ztensor(exact(4), [1, 2, 2, 1]);
    const pool = zdnn.avgpool2d(a, zdnn.VALID_PADDING, -1, 1, 1, 1);
    await assert.rejects(pool, /kernel_height: -1, expected 0 to 4294967295/);
  });
});

void describe("user arrays", () => {
  test("the short face has layouts for 1 to 4 dims, and takes another", async () => {
    const layouts = [zdnn.ZDNN_1D, zdnn.ZDNN_2D, zdnn.ZDNN_3D, zdnn.ZDNN_NHWC];
    for (const [index, layout] of layouts.entries()) {
      const shape = new Array<number>(index + 1).fill(2);
      const ztensor = await session.ztensor(exact(2 ** (index + 1)), shape);
      assert.equal(ztensor.preTransformedDesc.layout, layout);
      assert.deepEqual(ztensor.shape, shape);
    }
    const stack = await session.ztensor(exact(30), [5, 2, 3], { layout: zdnn.ZDNN_3DS });
    assert.equal(stack.transformedDesc.dim4, 5);
    await assert.rejects(session.ztensor(exact(2), [1, 1, 1, 1, 2]), /5 dims, expected 1 to 4/);
  });

  test("FP16 and BFLOAT travel as their bits, and come back as they were", async () => {
    for (const [type, bits] of [[zdnn.FP16, 0x3c00], [zdnn.BFLOAT, 0x3f80]] as const) {
      const a = await session.ztensor(Uint16Array.of(bits, bits), [2], { type });
      assert.deepEqual(await zdnn.getrangeZtensor(a), [-0, 1]);
      assert.deepEqual(await a.data(), Uint16Array.of(bits, bits));
    }
  });

  test("arrays of a type that the descriptor does not say are refused", async () => {
    await assert.rejects(session.ztensor(Int32Array.of(1)), /Int32Array, expected Float32Array/);
    await assert.rejects(session.ztensor(Uint16Array.of(1)), /with type FP16 or BFLOAT/);
    const half = await allocated(zdnn.FP16, 3);
    await assert.rejects(
      zdnn.transformZtensor(half, exact(3)),
      /Float32Array, the descriptor says FP16 \(Uint16Array\)/,
    );
  });

  test("bytes are taken as they are", async () => {
    const a = await allocated(zdnn.FP32, 6);
    await zdnn.transformZtensor(a, new Uint8Array(exact(6).buffer));
    assert.deepEqual(await a.data(), exact(6));
  });

  test("a part of a larger array is its own elements only, on both ways", async () => {
    const a = await session.ztensor(exact(8).subarray(2, 5));
    const out = new Float32Array(8).fill(7);
    await zdnn.transformOrigtensor(a, out.subarray(1, 4));
    assert.deepEqual(out, Float32Array.of(7, ...exact(8).slice(2, 5), 7, 7, 7, 7));
  });

  test("an array may change as soon as the verb has been called", async () => {
    const data = exact(4);
    const pending = session.ztensor(data.slice());
    const a = await pending;
    await zdnn.resetZtensor(a);
    const transforming = zdnn.transformZtensor(a, data);
    data.fill(9);
    await transforming;
    assert.deepEqual(await a.data(), exact(4));
  });

  test("data above a message goes up and down in chunks, unchanged", async () => {
    const data = exact(600 * 1024);
    const a = await session.ztensor(data, [600, 1024]);
    const out = new Float32Array(data.length);
    await zdnn.transformOrigtensor(a, out);
    assert.deepEqual(out, data);
    assert.deepEqual(await a.data(), data);
  });

  test("an out of another size is named with both sizes, and not written", async () => {
    for (const rows of [2, 600]) {
      const a = await session.ztensor(exact(rows * 1024), [rows, 1024]);
      const out = new Float32Array(rows * 1023).fill(7);
      const expected = new RegExp(`out: ${out.byteLength} bytes, expected ${rows * 4096}`);
      await assert.rejects(zdnn.transformOrigtensor(a, out), expected);
      assert.ok(out.every((x) => x === 7));
    }
  });

  test("gates of weights lie side by side, in C's order", async () => {
    const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_2DS, zdnn.FP32, 1, 5);
    const info = zdnn.RNN_TYPE_LSTM | zdnn.PREV_LAYER_UNI | zdnn.USAGE_BIASES;
    const tfrmd = zdnn.generateTransformedDescConcatenated(pre, info);
    const weights = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);
    await zdnn.transformZtensor(weights, [0, 1, 2, 3].map((gate) => new Float32Array(5).fill(gate)));
    const firsts = [...new Uint16Array((await weights.readSticks()).buffer)];
    const cells = [0, 1, 2, 3].map((gate) => firsts[(gate * 4096) / 2]);
    assert.deepEqual(cells, [0, 0x3e00, 0x4000, 0x4100]);
  });

  test("bytes of elements are swapped for hosts of the other order", () => {
    assert.deepEqual([...swapped(Uint8Array.of(1, 2, 3, 4), 2)], [2, 1, 4, 3]);
    assert.deepEqual([...swapped(Uint8Array.of(1, 2, 3, 4), 4)], [4, 3, 2, 1]);
    assert.deepEqual([...swapped(Uint8Array.of(1, 2), 1)], [1, 2]);
  });
});

void describe("ztensors", () => {
  test("the structure says what C's would after each call", async () => {
    const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_2D, zdnn.FP32, 33, 65);
    const a = zdnn.initZtensor(session, pre, zdnn.generateTransformedDesc(pre));
    assert.deepEqual([a.id, a.bufferSize, a.isTransformed], [0n, 0n, false]);
    await zdnn.allochelperZtensor(a);
    assert.equal(a.bufferSize, zdnn.getsizeZtensor(a.transformedDesc));
    await zdnn.transformZtensor(a, exact(33 * 65));
    assert.equal(a.isTransformed, true);
    await zdnn.resetZtensor(a);
    assert.equal(a.isTransformed, false);
    await zdnn.freeZtensorBuffer(a);
    assert.equal(a.id, 0n);
    await assert.rejects(zdnn.freeZtensorBuffer(a), { statusName: "ZDNN_INVALID_BUFFER" });
    await zdnn.allochelperZtensor(a);
    assert.ok((await a.readSticks()).every((byte) => byte === 0));
  });

  test("a quantized one keeps 1/scale in FP32 and the offset", async () => {
    const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_2D, zdnn.FP32, 4, 70);
    const tfrmd = zdnn.generateQuantizedTransformedDesc(pre, zdnn.QUANTIZED_INT8);
    const a = await zdnn.initQuantizedZtensorWithMalloc(session, pre, tfrmd, 3, 7);
    assert.deepEqual([a.recScale, a.offset], [Math.fround(1 / 3), 7]);
    assert.equal(zdnn.isQuantizedZtensor(a), true);
    await zdnn.transformQuantizedZtensor(a, false, -128, 127, exact(280));
    assert.equal(a.isTransformed, true);
  });

  test("sticks come in either byte order, and go up in either", async () => {
    const source = await session.ztensor(exact(70));
    const [little, big] = [await source.readSticks(), await source.readSticks("big")];
    assert.deepEqual(swapped(little, 2), big);
    for (const [sticks, order] of [[little, "little"], [big, "big"]] as const) {
      const target = await allocated(zdnn.FP32, 70);
      await target.writeSticks(sticks, order);
      assert.deepEqual(await target.data(), exact(70));
    }
    await assert.rejects(source.readSticks("native" as "big"), /byteOrder: "native", expected one of little, big/);
  });

  test("a ztensor is put as it stands into another session", async () => {
    const here = await session.ztensor(exact(90), [2, 45]);
    await using second = await connect(session.target, { machine: "telum1" });
    const copy = await second.putZtensor(here.structure, await here.readSticks());
    assert.deepEqual(await copy.data(), await here.data());
    const empty = await second.putZtensor(here.structure);
    await assert.rejects(empty.data(), { statusName: "ZDNN_INVALID_BUFFER" });
  });

  test("reshape keeps the elements; saturation clamps; flags tell of the last transform", async () => {
    const dest = await allocated(zdnn.FP32, 3, 8);
    await zdnn.reshapeZtensor(await session.ztensor(exact(24), [4, 6]), dest);
    assert.deepEqual(await dest.data(), exact(24));
    await using telum1 = await connect(session.target, { machine: "telum1" });
    const pre = zdnn.initPreTransformedDesc(zdnn.ZDNN_1D, zdnn.FP32, 3);
    const tfrmd = zdnn.generateTransformedDesc(pre);
    const a = await zdnn.initZtensorWithMalloc(telum1, pre, tfrmd);
    await zdnn.transformZtensorWithSaturation(a, Float32Array.of(1e30, -1e30, 1));
    const limit = zdnn.getMaxLimit(zdnn.ZDNN_DLFLOAT16, zdnn.FP32);
    assert.deepEqual(await a.data(), Float32Array.of(limit, -limit, 1));
    await zdnn.resetZtensor(a);
    await zdnn.transformZtensor(a, Float32Array.of(1e-30, 1, 1));
    assert.equal(a.flags, FpFlags.UNDERFLOW);
  });
});

void describe("queries", () => {
  test("the machine answers bools and numbers", async () => {
    assert.equal(await zdnn.isNnpaInstalled(session), true);
    assert.equal(await zdnn.isNnpaFunctionInstalled(session, [zdnn.NNPA_ADD, zdnn.NNPA_SQRT]), true);
    assert.equal(await zdnn.isNnpaDatatypeInstalled(session, zdnn.QUERY_DATATYPE_INTERNAL1), true);
    assert.equal(await zdnn.getNnpaMaxDimIdxSize(session), session.machine?.maxDimIdxSize);
    assert.equal(BigInt(await zdnn.getNnpaMaxTensorSize(session)), session.machine?.maxTensorSize);
    assert.equal(await zdnn.isVersionRunnable(session, 0x010100), true);
  });

  test("without a session the library is this client's", () => {
    assert.equal(zdnn.getLibraryVersion(), 0x010200);
    assert.equal(zdnn.getLibraryVersionStr(), "1.2.0");
  });

  test("calls of a function that the library lacks say since when it exists", async () => {
    await using old = await connect(session.target, { library: "1.0.0" });
    const a = await old.ztensor(exact(3));
    await assert.rejects(zdnn.sqrt(a), { reason: "FUNCTION_NOT_IN_LIBRARY" });
    assert.ok(!(await zdnn.sqrt(a).catch((error: unknown) => error instanceof ZdnnError)));
  });
});
