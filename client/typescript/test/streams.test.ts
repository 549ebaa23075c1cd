// SPDX-License-Identifier: Apache-2.0

/** Lists over a stream: as many ways as there are, the same answers, and servers that go away. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import process from "node:process";
import { describe, test } from "node:test";
import { promisify } from "node:util";

import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import {
  Metadata,
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import { connect, type NnpaError, type Session, SessionLostError, TransportError, zdnn } from "nnpa";
import { AcceleratorService } from "nnpa/zdnn/v1";

import { ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../src/gen/google/rpc/status_pb.js";

type Call = ServerDuplexStream<object, object>;
/** What a server does with a list on a stream. */
type Serve = (call: Call) => void;

const answers: Serve = (call) => { call.write({}); };

function definition(method: { name: string; input: DescMessage; output: DescMessage }): MethodDefinition<object, object> {
  const streams = method.name === "ExecuteStream";
  return {
    path: `/nnpa.zdnn.v1.AcceleratorService/${method.name}`,
    requestStream: streams,
    responseStream: streams,
    requestSerialize: () => Buffer.alloc(0),
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: (answer) =>
      Buffer.from(toBinary(method.output, create(method.output, answer as MessageInitShape<DescMessage>))),
    responseDeserialize: (bytes) => fromBinary(method.output, bytes),
  };
}

/** A server that counts streams, their tickets, and calls; lists are served, or refused. */
class Counting {
  streams = 0;
  calls = 0;
  readonly tickets: string[] = [];
  readonly #server = new Server();

  constructor(serve: Serve, refused: object | null = null) {
    const { createSession, deleteSession, execute, executeStream, listTensors } = AcceleratorService.method;
    const methods = { createSession, deleteSession, execute, executeStream, listTensors };
    const definitions = Object.entries(methods).map(([name, method]) => [name, definition(method)]);
    const unary = (answer: object) =>
      (call: ServerUnaryCall<object, object>, done: sendUnaryData<object>): void => {
        const ticket = new Metadata();
        ticket.set("nnpa-session-ticket", "dGlja2V0");
        call.sendMetadata(ticket);
        done(null, answer);
      };
    this.#server.addService(Object.fromEntries(definitions) as Record<string, MethodDefinition<object, object>>, {
      createSession: unary({ name: "sessions/s" }),
      deleteSession: unary({}),
      listTensors: unary({}),
      execute: (call: ServerUnaryCall<object, object>, done: sendUnaryData<object>) => {
        this.calls += 1;
        if (refused) {
          done(refused);
        } else {
          unary({})(call, done);
        }
      },
      executeStream: (call: Call) => {
        this.streams += 1;
        this.tickets.push(...call.metadata.get("nnpa-session-ticket").map(String));
        call.on("data", () => { serve(call); });
        call.on("end", () => { call.end(); });
      },
    });
  }

  async session(options: { plain?: boolean; timeout?: number } = {}): Promise<Session> {
    const bind = promisify(this.#server.bindAsync.bind(this.#server));
    const port = await bind("127.0.0.1:0", ServerCredentials.createInsecure());
    return connect(`127.0.0.1:${port}`, options);
  }

  [Symbol.dispose](): void {
    this.#server.forceShutdown();
  }
}

async function counts(serve: Serve, lists: number, options = {}): Promise<[number, number]> {
  using server = new Counting(serve);
  await using session = await server.session(options);
  for (let i = 0; i < lists; i += 1) {
    await session.execute([]);
  }
  return [server.streams, server.calls];
}

function refusal(code: status, reason?: string, field = ""): object {
  const metadata = new Metadata();
  if (reason !== undefined) {
    const info = create(ErrorInfoSchema, { reason, domain: "nnpa", metadata: { field } });
    const details = [anyPack(ErrorInfoSchema, info)];
    const packed = toBinary(StatusSchema, create(StatusSchema, { code, details }));
    metadata.set("grpc-status-details-bin", Buffer.from(packed));
  }
  return { code, details: "upstream connect error", metadata };
}

void describe("the lists of a session", () => {
  test("share one stream, which brings the session's ticket", async () => {
    using server = new Counting(answers);
    await using session = await server.session();
    for (let i = 0; i < 5; i += 1) {
      await session.execute([]);
    }
    assert.deepEqual([server.streams, server.calls, server.tickets], [1, 0, ["dGlja2V0"]]);
  });

  test("are calls of their own with a timeout, and where the stream is left out", async () => {
    assert.deepEqual(await counts(answers, 3, { plain: true }), [0, 3]);
    assert.deepEqual(await counts(answers, 3, { timeout: 60_000 }), [0, 3]);
    for (const names of ["1", "stream", "shared-memory, stream"]) {
      process.env.ZDNN_PLAIN = names;
      assert.deepEqual(await counts(answers, 3), [0, 3], names);
    }
    process.env.ZDNN_PLAIN = "steam";
    const says = /ZDNN_PLAIN: steam, expected 1, or some of stream/;
    await assert.rejects(connect("127.0.0.1:1"), says);
    delete process.env.ZDNN_PLAIN;
  });

  test("are calls of their own where the server has no stream, which is asked for once", async () => {
    for (const answer of [
      refusal(status.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", "max_conversations"),
      refusal(status.UNIMPLEMENTED),
    ]) {
      assert.deepEqual(await counts((call) => { call.emit("error", answer); }, 3), [1, 3]);
    }
  });

  test("begin another stream when the server has ended one between two lists", async () => {
    using server = new Counting((call) => {
      call.write({});
      call.end();
    });
    await using session = await server.session();
    await session.execute([]);
    await session.listTensors(); // its answer comes after the end of the stream
    await session.execute([]);
    assert.deepEqual([server.streams, server.calls], [2, 0]);
  });

  test("begin another stream when one was given up, whose answer nobody gets", async () => {
    const controller = new AbortController();
    let silent = true;
    using server = new Counting((call) => {
      if (silent) {
        silent = false;
        controller.abort(new Error("enough"));
      } else {
        call.write({ results: [{ zdnnStatus: 7 }] });
      }
    });
    await using session = await server.session();
    await assert.rejects(session.execute([], { signal: controller.signal }), (error: TransportError) => {
      assert.ok(!(error instanceof SessionLostError));
      return error.code === "CANCELLED" && (error.cause as Error).message === "enough";
    });
    assert.deepEqual((await session.execute([])).map((result) => result.zdnnStatus), [7]);
    assert.equal(server.streams, 2);
  });

  test("answer as calls do, errors included, and the session goes on", async () => {
    await using host = await connect();
    const seen: unknown[] = [];
    for (const plain of [false, true]) {
      await using session = await connect(host.target, { plain });
      const [a, b] = [await session.ztensor(Float32Array.of(1, 2)), await session.ztensor(new Float32Array(3))];
      const message = (error: unknown): string => (error as NnpaError).message;
      const check = await zdnn.add(a, b).catch(message);
      const unknown = await session.execute([{}]).catch(message);
      seen.push([check, unknown, await (await zdnn.add(a, a)).data()]);
    }
    assert.deepEqual(seen[0], seen[1]);
    assert.match(String(seen[0]), /OPERATION_UNKNOWN/);
  });

  test("keep no program alive that leaves its session open", { timeout: 60_000 }, async () => {
    await using host = await connect();
    const program = `
      import { connect } from "nnpa";
      const session = await connect(${JSON.stringify(host.target)});
      await session.execute([]);`;
    const run = promisify(execFile);
    await run(process.execPath, ["--input-type=module", "-e", program], { cwd: import.meta.dirname });
  });
});

void describe("a server that goes away", () => {
  for (const code of ["UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"] as const) {
    test(`is told as lost when a list, in a stream or a call, ends with ${code} and no reason of ours`, async () => {
      for (const plain of [false, true]) {
        const gone = refusal(status[code]);
        using server = new Counting((call) => { call.emit("error", gone); }, gone);
        await using session = await server.session({ plain });
        const failure: unknown = await session.execute([]).catch((error: unknown) => error);
        assert.ok(failure instanceof SessionLostError, String(failure));
        assert.equal(failure.code, code);
        assert.match(failure.message, /the server of this session is gone: .*\. Connect again/);
      }
    });
  }

  test("is not told as lost when it gives a reason of ours", async () => {
    const internal = refusal(status.INTERNAL, "INTERNAL");
    using server = new Counting((call) => { call.emit("error", internal); });
    await using session = await server.session();
    const failure: unknown = await session.execute([]).catch((error: unknown) => error);
    assert.ok(failure instanceof TransportError && !(failure instanceof SessionLostError));
    assert.equal(failure.reason, "INTERNAL");
  });
});
