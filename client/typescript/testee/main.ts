// SPDX-License-Identifier: Apache-2.0

/** Answers the frames of the conformance suite: deploy/docs/develop/sdk-contract.md. */

import { once } from "node:events";
import process from "node:process";

import { callLocal, type Json } from "./locals.js";
import { runVector } from "./program.js";
import { parse, stringify } from "./words.js";

const HEADER = 4;

interface Request {
  file?: string;
  local?: string;
  vector: Json;
}

async function answer(target: string, request: Request): Promise<Json> {
  const { file, local, vector } = request;
  if (file !== undefined) {
    return { file, name: vector.name, ...(await runVector(target, vector)) };
  }
  const outcome = await callLocal(target, local ?? "", vector.arguments as Json);
  return { local, name: vector.name, ...outcome };
}

async function* frames(): AsyncGenerator<Request> {
  let waiting = Buffer.alloc(0);
  for await (const chunk of process.stdin) {
    waiting = Buffer.concat([waiting, chunk as Buffer]);
    while (waiting.length >= HEADER && waiting.length >= HEADER + waiting.readUInt32LE(0)) {
      const end = HEADER + waiting.readUInt32LE(0);
      yield parse(waiting.toString("utf8", HEADER, end)) as Request;
      waiting = waiting.subarray(end);
    }
  }
}

const target = process.env.ZDNN_SERVER ?? "";
for await (const request of frames()) {
  const body = Buffer.from(stringify(await answer(target, request)));
  const header = Buffer.alloc(HEADER);
  header.writeUInt32LE(body.length);
  if (!process.stdout.write(Buffer.concat([header, body]))) {
    await once(process.stdout, "drain");
  }
}
