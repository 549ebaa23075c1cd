// SPDX-License-Identifier: Apache-2.0

/**
 * Hosts an ONNX model of one FP32 input and runs it over zeros: node network.js MODEL.onnx [target].
 *
 * The generated messages are the API; the session's connection carries them.
 */

import { readFile } from "node:fs/promises";
import process from "node:process";

import { connect, type Session } from "nnpa";
import { type CreateNetworkRequestSchema, NetworkService } from "nnpa/network/v1";
import type { MessageInitShape } from "@bufbuild/protobuf";

const CHUNK_BYTES = 1 << 20;

type Request = MessageInitShape<typeof CreateNetworkRequestSchema>;

function* upload(session: string, model: Uint8Array): Generator<Request> {
  const source = { case: "onnxBytes" as const, value: BigInt(model.byteLength) };
  yield { message: { case: "header", value: { session, source } } };
  for (let start = 0; start < model.byteLength; start += CHUNK_BYTES) {
    yield { message: { case: "chunk", value: model.subarray(start, start + CHUNK_BYTES) } };
  }
}

/** Creates and initialises a network of an ONNX file; returns its handle. */
export async function host(session: Session, model: Uint8Array): Promise<string> {
  const { transport, name } = session;
  const { createNetwork, getNetworkInfo, initNetwork } = NetworkService.method;
  const { error, network } = await transport.clientStream(createNetwork, upload(name, model));
  if (network === undefined) {
    throw new Error(`create: type ${error?.type ?? 0}, code ${error?.code ?? 0}`);
  }
  const about = { session: name, network: network.name };
  const { report } = await transport.unary(getNetworkInfo, about);
  const activations = { channels: report?.activations?.channels ?? 0, data: new Uint8Array() };
  const { ok } = await transport.unary(initNetwork, {
    ...about,
    params: { params: {}, activations },
  });
  if (!ok) {
    const { error: why } = await transport.unary(NetworkService.method.getNetworkError, about);
    throw new Error(`init: type ${why?.type ?? 0}, code ${why?.code ?? 0}`);
  }
  return network.name;
}

/** Runs a hosted network once over its one FP32 input, and returns its first output. */
export async function infer(
  session: Session,
  network: string,
  input: { name: string; shape: readonly number[]; data: Float32Array },
): Promise<Float32Array> {
  const { outputs } = await session.transport.unary(NetworkService.method.inferNetwork, {
    session: session.name,
    network,
    inputs: [
      {
        name: input.name,
        dtype: "float32",
        shape: input.shape.map(BigInt),
        data: new Uint8Array(input.data.buffer),
      },
    ],
  });
  return new Float32Array(outputs[0]?.data.slice().buffer ?? new ArrayBuffer(0));
}

if (process.argv[1] === import.meta.filename) {
  await using session = await connect(process.argv[3]);
  const network = await host(session, await readFile(process.argv[2] ?? "model.onnx"));
  const { networks } = await session.transport.unary(NetworkService.method.listNetworks, {
    session: session.name,
  });
  const port = networks[0]?.inputs[0];
  const shape = (port?.shape ?? []).map((dim) => Math.max(1, Number(dim)));
  const data = new Float32Array(shape.reduce((product, dim) => product * dim, 1));
  console.log(await infer(session, network, { name: port?.name ?? "", shape, data }));
}
