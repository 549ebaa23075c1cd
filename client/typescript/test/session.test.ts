// SPDX-License-Identifier: Apache-2.0

/** Connections and sessions, against servers of their own. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import {
  type handleUnaryCall,
  Metadata,
  Server,
  ServerCredentials,
  status,
} from "@grpc/grpc-js";
import { connect, listMachines, type Session, TransportError, ZdnnError, zdnn } from "nnpa";

import { endpoint, waitLimit } from "../src/config.js";
import { ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../src/gen/google/rpc/status_pb.js";
import { type Served, serving } from "./server.js";

let folder: string;
let served: Served;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "nnpa-test-"));
  served = await serving(["127.0.0.1:0", `unix:${folder}/n.sock`]);
});
after(async () => {
  await served[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

/** Sends small and large data and compares what comes back. */
async function roundTrip(session: Session): Promise<void> {
  for (const rows of [1, 600]) {
    const a = await session.ztensor(new Float32Array(rows * 1024).fill(1), [rows, 1024]);
    const sum = await (await zdnn.add(a, a)).data();
    assert.deepEqual(sum, new Float32Array(rows * 1024).fill(2));
  }
}

void describe("reaching a server", () => {
  test("TCP and Unix socket of one server serve the same machines", async () => {
    for (const target of served.targets) {
      await using session = await connect(target);
      await roundTrip(session);
      const machines = await listMachines(target);
      assert.equal(machines[0]?.name, "machines/telum1");
    }
  });

  test("without a target a private server serves the session and ends with it", async () => {
    const session = await connect();
    assert.match(session.target, /^unix:/);
    await roundTrip(session);
    await session.close();
    await assert.rejects(connect(session.target), { code: "UNAVAILABLE" });
  });

  test("mutual TLS lets in who has a certificate, and nobody else", async () => {
    const { ca, server, client } = certificates();
    const tls = ["--tls-cert", server.cert, "--tls-key", server.key, "--tls-client-ca", ca.cert];
    await using secured = await serving(["127.0.0.1:0"], ...tls);
    const target = secured.targets[0]?.replace("127.0.0.1", "localhost");
    const files = { tlsCa: ca.cert, tlsCert: client.cert, tlsKey: client.key };
    await using session = await connect(target, files);
    await roundTrip(session);
    await assert.rejects(connect(target, { tlsCa: ca.cert }), TransportError);
    await assert.rejects(connect(target), / speaks TLS\. Give tlsCa, or set ZDNN_TLS_CA: /);
    await assert.rejects(connect(target), TransportError);
  });

  test("a token travels with every call, and what refuses it is explained", async () => {
    const asked: unknown[] = [];
    const gate = await guarding((token) => asked.push(token));
    try {
      await assert.rejects(connect(gate.target, { token: "secret" }), {
        code: "UNAUTHENTICATED",
        reason: "TOKEN_INVALID",
        advice: "Set ZDNN_TOKEN or connect(target, { token }).",
      });
      assert.deepEqual(asked, ["Bearer secret"]);
    } finally {
      gate.server.forceShutdown();
    }
  });

  test("an address without a server is an error with the address and what to do", async () => {
    await assert.rejects(connect("127.0.0.1:1"), (error: TransportError) => {
      assert.equal(error.code, "UNAVAILABLE");
      assert.match(error.message, /127\.0\.0\.1:1: .*nnpa-server --listen/);
      return true;
    });
  });
});

/** Starts a server that tells of the token of each session to be made, and lets nobody in. */
async function guarding(tell: (token: unknown) => void): Promise<{ server: Server; target: string }> {
  const server = new Server();
  const method = {
    path: "/nnpa.zdnn.v1.AcceleratorService/CreateSession",
    requestStream: false,
    responseStream: false,
    requestSerialize: (raw: Buffer) => raw,
    requestDeserialize: (raw: Buffer) => raw,
    responseSerialize: (raw: Buffer) => raw,
    responseDeserialize: (raw: Buffer) => raw,
  };
  const createSession: handleUnaryCall<Buffer, Buffer> = (call, done) => {
    tell(call.metadata.get("authorization")[0]);
    const info = create(ErrorInfoSchema, { domain: "nnpa", reason: "TOKEN_INVALID" });
    const details = create(StatusSchema, { details: [anyPack(ErrorInfoSchema, info)] });
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", Buffer.from(toBinary(StatusSchema, details)));
    done({ code: status.UNAUTHENTICATED, details: "no", metadata });
  };
  server.addService({ createSession: method }, { createSession });
  const bind = promisify(server.bindAsync.bind(server));
  const port = await bind("127.0.0.1:0", ServerCredentials.createInsecure());
  return { server, target: `127.0.0.1:${port}` };
}

interface Pair {
  cert: string;
  key: string;
}

/** Makes a certificate authority, and a server and a client that it vouches for. */
function certificates(): Record<"ca" | "server" | "client", Pair> {
  const pair = (name: string): Pair => ({
    cert: join(folder, `${name}.crt`),
    key: join(folder, `${name}.key`),
  });
  const run = (name: string, ...options: string[]): Pair => {
    const { cert, key } = pair(name);
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const made = ["-x509", "-days", "1", "-keyout", key, "-out", cert, "-subj", `/CN=${name}`];
    execFileSync("openssl", ["req", ...curve, ...made, ...options], { stdio: "ignore" });
    return { cert, key };
  };
  const ca = run("ca");
  const signed = ["-CA", ca.cert, "-CAkey", ca.key, "-addext", "basicConstraints=CA:FALSE"];
  const server = run("server", ...signed, "-addext", "subjectAltName=DNS:localhost");
  return { ca, server, client: run("client", ...signed) };
}

void describe("what a target and its options may be", () => {
  test("an address is host:port or unix:/path", () => {
    for (const target of ["localhost", "unix:", "", "localhost:port"]) {
      assert.throws(() => endpoint(target, {}, {}), /expected host:port or unix:\/path/);
    }
  });

  test("options win over the environment, which fills what they leave out", () => {
    const environ = { ZDNN_TOKEN: "there", ZDNN_TLS_CA: "ca.pem" };
    assert.equal(endpoint("a:1", {}, environ).token, "there");
    assert.equal(endpoint("a:1", { token: "here" }, environ).token, "here");
    assert.equal(endpoint("a:1", {}, environ).tlsCa, "ca.pem");
    assert.equal(endpoint("unix:/a", {}, environ).tlsCa, undefined);
  });

  test("half a client certificate is refused by name", () => {
    assert.throws(() => endpoint("a:1", { tlsCert: "c" }, {}), /tlsCert: given alone/);
    assert.throws(() => endpoint("a:1", { tlsCert: "c", tlsKey: "k" }, {}), /tlsCa: not given/);
  });

  test("an invalid waiting time is refused with its unit", () => {
    assert.throws(() => waitLimit(-1), /^TypeError: wait: -1, expected milliseconds, 0 or more$/);
    const environ = { ZDNN_WAIT: "long" };
    const expected = /^TypeError: ZDNN_WAIT: long, expected seconds, 0 or more$/;
    assert.throws(() => waitLimit(undefined, environ), expected);
  });

  test("hosts of this machine are known as such", () => {
    const loopback = (target: string): boolean => endpoint(target, {}, {}).isLoopback;
    assert.deepEqual(["[::1]:1", "127.0.0.9:1", "localhost:1"].map(loopback), [true, true, true]);
    assert.equal(loopback("example.org:1"), false);
  });
});

void describe("a session", () => {
  test("tells its machine, library and limits", async () => {
    await using session = await connect(served.targets[1], { machine: "z16", library: "1.1.0" });
    assert.equal(session.machine?.name, "machines/telum1");
    assert.equal(session.library, "1.1.0");
    assert.equal(zdnn.getLibraryVersion(session), 0x010100);
    assert.ok((session.limits?.maxInlineBytes ?? 0n) > 0n);
  });

  test("a custom machine has the limits asked for, and breaches are explained", async () => {
    await using session = await connect(served.targets[1], { machine: { maxDim1: 64 } });
    assert.equal(await zdnn.getMaxForDim(session, 1), 64);
    await assert.rejects(session.ztensor(new Float32Array(65)), (error: ZdnnError) => {
      assert.equal(error.statusName, "ZDNN_INVALID_SHAPE");
      assert.ok(error.refusal?.limit);
      return true;
    });
  });

  test("moves to another machine, and asks it anew after refresh", async () => {
    await using session = await connect(served.targets[1], { machine: "telum2" });
    const sqrt = (): Promise<boolean> =>
      zdnn.isNnpaFunctionInstalled(session, [zdnn.NNPA_SQRT]);
    assert.equal(await sqrt(), true);
    await session.update({ machine: "telum1", precheck: true });
    assert.equal((await session.status()).precheck, true);
    await zdnn.refreshNnpaQueryResult(session);
    assert.equal(await sqrt(), false);
  });

  test("words that an option does not have are refused with those it has", async () => {
    const options = { numerics: "fast" as "exact" };
    await assert.rejects(connect(served.targets[1], options), /"fast", expected one of exact, jitter/);
  });

  test("counts tensors, and close frees them all, more than once too", async () => {
    const session = await connect(served.targets[1]);
    await session.ztensor(Float32Array.of(1));
    assert.equal((await session.status()).tensorCount, 1n);
    assert.equal((await session.listTensors()).length, 1);
    await session.close();
    await session.close();
    await assert.rejects(session.status(), TransportError);
  });

  test("an unknown machine is refused with advice", async () => {
    await assert.rejects(connect(served.targets[1], { machine: "z99" }), {
      reason: "MACHINE_NOT_FOUND",
    });
  });
});

void describe("deadlines and signals", () => {
  test("a call that takes longer than its timeout fails as DEADLINE_EXCEEDED", async () => {
    await using session = await connect(served.targets[1]);
    const a = await session.ztensor(new Float32Array(1 << 20), [1024, 1024]);
    const slow = session.pipeline(
      async () => {
        for (let i = 0; i < 100; i += 1) {
          await zdnn.exp(a);
        }
      },
      { timeout: 50 },
    );
    await assert.rejects(slow, { code: "DEADLINE_EXCEEDED" });
    await roundTrip(session);
  });

  test("an aborted signal cancels the call and is the error's cause", async () => {
    await using session = await connect(served.targets[1]);
    const a = await session.ztensor(new Float32Array(1 << 20), [1024, 1024]);
    const controller = new AbortController();
    const reason = new Error("enough");
    const running = zdnn.matmulOp(a, a, a, zdnn.MATMUL_OP_ADDITION, undefined, {
      signal: controller.signal,
    });
    controller.abort(reason);
    await assert.rejects(running, { code: "CANCELLED", cause: reason });
    const late = zdnn.exp(a, undefined, { signal: controller.signal });
    await assert.rejects(late, { code: "CANCELLED", cause: reason });
    await roundTrip(session);
  });
});

test("a program that is no server is an error with what it said, and none with what to install", async () => {
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "nnpa-server"), "#!/bin/sh\necho no license >&2\nexit 3\n", { mode: 0o755 });
  const path = process.env.PATH;
  process.env.PATH = `${bin}:${path ?? ""}`;
  try {
    await assert.rejects(connect(), /did not start: it ended with code 3 \/ no license\. Or use a server/);
    process.env.PATH = join(folder, "empty");
    const missing = /did not start: nnpa-server is not on the PATH: `pip install '\.\[server\]'` in a clone of nnpa/;
    await assert.rejects(connect(), missing);
  } finally {
    process.env.PATH = path;
  }
});
