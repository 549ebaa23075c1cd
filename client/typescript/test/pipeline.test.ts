// SPDX-License-Identifier: Apache-2.0

/** Lists of operations, lost answers and dropped ztensors, with the calls counted at the seam. */

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import {
  type CallOptions,
  connect,
  GrpcTransport,
  Session,
  type Transport,
  TransportError,
  ZdnnError,
  zdnn,
  type Ztensor,
} from "nnpa";

import { endpoint } from "../src/config.js";

/** A transport that counts calls by method, and may lose the answer of the next Execute. */
class Counting implements Transport {
  readonly counts = new Map<string, number>();
  loseNext = false;
  readonly #inner: Transport;

  constructor(readonly target: string) {
    this.#inner = new GrpcTransport(endpoint(target, {}));
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): Promise<MessageShape<O>> {
    this.counts.set(method.name, (this.counts.get(method.name) ?? 0) + 1);
    const answer = await this.#inner.unary(method, request, options);
    if (this.loseNext && method.name === "Execute") {
      this.loseNext = false;
      throw new TransportError("UNAVAILABLE", "lost.");
    }
    return answer;
  }

  clientStream: Transport["clientStream"] = (method, requests, options) =>
    this.#inner.clientStream(method, requests, options);

  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>> {
    return this.#inner.serverStream(method, request, options);
  }

  close(): void {
    this.#inner.close();
  }
}

let host: Session;
let transport: Counting;
let session: Session;
let a: Ztensor;

before(async () => {
  host = await connect();
});
beforeEach(async () => {
  transport = new Counting(host.target);
  session = await Session.open(transport);
  a = await session.ztensor(Float32Array.of(1, 2, 3, 4));
  transport.counts.clear();
});
after(() => host.close());

function executes(): number {
  return transport.counts.get("Execute") ?? 0;
}

void describe("a pipeline", () => {
  test("is one call, and its ztensors may be used before it has run", async () => {
    const out = new Float32Array(4);
    await session.pipeline(async (results) => {
      const squared = await zdnn.mul(a, a);
      assert.throws(() => squared.transformedDesc, /its pipeline has not run/);
      await zdnn.transformOrigtensor(a, out);
      await zdnn.add(squared, a);
      assert.equal(results.length, 0);
    });
    assert.equal(executes(), 1);
    assert.deepEqual(out, Float32Array.of(1, 2, 3, 4));
  });

  test("returns what its body returns, and tells the answers as the wire has them", async () => {
    let received: readonly unknown[] = [];
    const sum = await session.pipeline((results) => {
      received = results;
      return zdnn.add(a, a);
    });
    assert.equal(received.length, 1);
    assert.deepEqual(await sum.data(), Float32Array.of(2, 4, 6, 8));
  });

  test("sends what is queued when a value is needed", async () => {
    const values = await session.pipeline(async () => {
      const squared = await zdnn.mul(a, a);
      return squared.data();
    });
    assert.deepEqual(values, Float32Array.of(1, 4, 9, 16));
    const least = await session.pipeline(async () => zdnn.getrangeZtensor(await zdnn.mul(a, a)));
    assert.deepEqual(least, [-0, 16]);
  });

  test("ends at the first error, which tells its place; what follows has not run", async () => {
    let late: Ztensor | undefined;
    const running = session.pipeline(async () => {
      await zdnn.mul(a, a);
      await zdnn.transformZtensor(a, Float32Array.of(1, 2, 3, 4));
      late = await zdnn.add(a, a);
    });
    await assert.rejects(running, (error: ZdnnError) => {
      assert.equal(error.operationIndex, 1);
      assert.match(error.message, /^operation 1, zdnn_transform_ztensor: ZDNN_INVALID_STATE/);
      return true;
    });
    assert.throws(() => late?.isTransformed, /the list of operations ended before/);
  });

  test("left by an error sends nothing", async () => {
    let never: Ztensor | undefined;
    const running = session.pipeline(async () => {
      never = await zdnn.mul(a, a);
      throw new Error("mine");
    });
    await assert.rejects(running, /mine/);
    assert.equal(executes(), 0);
    assert.throws(() => never?.bufferSize, /its pipeline was left by an error/);
  });

  test("inside another one joins it", async () => {
    await session.pipeline(async () => {
      await zdnn.mul(a, a);
      await session.pipeline(() => zdnn.add(a, a));
      await zdnn.sub(a, a);
    });
    assert.equal(executes(), 1);
  });

  test("that has ended takes no calls any more, while it still runs", async () => {
    const running = session.pipeline(() => zdnn.mul(a, a));
    await new Promise((resolve) => setImmediate(resolve));
    const sum = await zdnn.add(a, a);
    assert.deepEqual(await sum.data(), Float32Array.of(2, 4, 6, 8));
    assert.deepEqual(await (await running).data(), Float32Array.of(1, 4, 9, 16));
  });

  test("that outgrows a message becomes several", async () => {
    const data = new Float32Array(100_000);
    await session.pipeline(async () => {
      for (let i = 0; i < 100; i += 1) {
        await session.ztensor(data);
      }
    });
    assert.ok(executes() > 1 && executes() < 10, `${executes()} calls`);
  });
});

void describe("calls that are not awaited", () => {
  test("run in the order in which they were made", async () => {
    const out = await session.ztensor(new Float32Array(4));
    const running = [zdnn.add(a, a, out), zdnn.mul(out, out, out), zdnn.sub(out, a, out)];
    await Promise.all(running);
    assert.deepEqual(await out.data(), Float32Array.of(3, 14, 33, 60));
  });
});

void describe("a lost answer", () => {
  test("has the client ask what has run, so that ztensors tell the truth", async () => {
    transport.loseNext = true;
    await assert.rejects(zdnn.resetZtensor(a), { code: "UNAVAILABLE" });
    assert.equal(transport.counts.get("ListTensors"), 1);
    assert.equal(a.isTransformed, false);
  });
});

void describe("a dropped ztensor", () => {
  test("is freed at the head of a later list, at no call of its own", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    await zdnn.mul(a, a);
    for (let i = 0; i < 500 && (await session.listTensors()).length > 1; i += 1) {
      collect();
      await new Promise((resolve) => setTimeout(resolve, 10));
      transport.counts.clear();
      await zdnn.add(a, a, a);
      assert.equal(executes(), 1);
    }
    assert.equal((await session.listTensors()).length, 1);
  });
});
