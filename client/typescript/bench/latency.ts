// SPDX-License-Identifier: Apache-2.0

/**
 * What the SDK costs: node latency.js SERVER ECHO prints the median microseconds of one small add and
 * of a list of a hundred, over the session's stream and as unary calls, each with those of a bare
 * echo of as many bytes on the same kind of connection, as one JSON object. ECHO is a server of nnpa.bench.Echo.
 */

import process from "node:process";
import { promisify } from "node:util";

import { create, toBinary } from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";
import { connect, type Session, zdnn } from "nnpa";
import { ExecuteRequestSchema } from "nnpa/zdnn/v1";

const SHAPE = [32, 64];
const LISTED = 100;
const REPETITIONS = 400;

type Work = () => Promise<unknown>;

/** Returns a request of as many bytes as one with `count` adds. */
function payload(session: Session, count: number): Buffer {
  const ref = { tensor: { case: "id" as const, value: 1n } };
  const value = { inputA: ref, inputB: ref, output: ref };
  const operations = Array.from({ length: count }, () => ({
    operation: { case: "add" as const, value },
  }));
  const request = create(ExecuteRequestSchema, { session: session.name, operations });
  return Buffer.alloc(toBinary(ExecuteRequestSchema, request).byteLength);
}

/** Returns the median microseconds of pieces of work, by name, that are done in turns. */
async function medians(works: Readonly<Record<string, Work>>): Promise<Record<string, number>> {
  const times = new Map<string, number[]>(Object.keys(works).map((name) => [name, []]));
  const warm = REPETITIONS / 10;
  for (let repetition = 0; repetition < REPETITIONS + warm; repetition += 1) {
    for (const [name, work] of Object.entries(works)) {
      const began = process.hrtime.bigint();
      await work();
      if (repetition >= warm) {
        times.get(name)?.push(Number(process.hrtime.bigint() - began) / 1e3);
      }
    }
  }
  const median = (all: number[]): number => all.sort((a, b) => a - b)[REPETITIONS / 2] ?? NaN;
  return Object.fromEntries([...times].map(([name, all]) => [name, median(all)]));
}

/** Returns what adds two ztensors into a third, and what does so in a list of a hundred. */
async function adding(session: Session): Promise<[add: Work, list: Work]> {
  const zeros = (): ReturnType<Session["ztensor"]> =>
    session.ztensor(new Float32Array(32 * 64), SHAPE);
  const [a, b, out] = [await zeros(), await zeros(), await zeros()];
  const add = (): Promise<unknown> => zdnn.add(a, b, out);
  const list = (): Promise<unknown> =>
    session.pipeline(async () => {
      for (let i = 0; i < LISTED; i += 1) {
        await add();
      }
    });
  return [add, list];
}

const [server = "", echo = ""] = process.argv.slice(2);
await using streamed = await connect(server);
await using called = await connect(server, { plain: true });
const [add, list] = await adding(streamed);
const [addUnary, listUnary] = await adding(called);

const bare = new Client(echo, credentials.createInsecure());
const same = (raw: Buffer): Buffer => raw;
const call = promisify((raw: Buffer, done: (error: Error | null, answer?: Buffer) => void) => {
  bare.makeUnaryRequest("/nnpa.bench.Echo/Raw", same, same, raw, done);
});
const back = (count: number): Work => {
  const raw = payload(streamed, count);
  return () => call(raw);
};

const adds = { add_us: add, add_unary_us: addUnary, add_echo_us: back(1) };
const lists = {
  pipeline_us: list,
  pipeline_unary_us: listUnary,
  pipeline_echo_us: back(LISTED),
};
console.log(JSON.stringify({ ...(await medians(adds)), ...(await medians(lists)) }));
bare.close();
