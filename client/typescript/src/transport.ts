// SPDX-License-Identifier: Apache-2.0

/** The seam between this client and a server: gRPC calls, whose errors become this package's. */

import { readFileSync } from "node:fs";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";

import {
  create,
  type DescMessage,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import {
  type CallOptions as GrpcOptions,
  type ChannelCredentials,
  Client,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";

import type { Endpoint } from "./config.js";
import { type NnpaError, ProgramCheck, TransportError } from "./errors.js";
import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";

/** The limits of a call: an AbortSignal, and a timeout in milliseconds. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  timeout?: number | undefined;
}

/**
 * The methods of the wire's services, by their kinds. Each throws `TransportError`, or
 * `ProgramCheck` where the machine would end the program.
 *
 * `nnpa.mli.v1` and other services of a server are called through it as well:
 * `transport.unary(MliService.method.runKernel, { ... })`.
 */
export interface Transport {
  /** Where the server is, for people. */
  readonly target: string;
  /** Makes a call of one request and one answer. */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): Promise<MessageShape<O>>;
  /** Makes a call of a stream of requests and one answer. */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    requests: Iterable<MessageInitShape<I>> | AsyncIterable<MessageInitShape<I>>,
    options?: CallOptions,
  ): Promise<MessageShape<O>>;
  /** Makes a call of one request and a stream of answers. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>>;
  /** Closes the connection. */
  close(): void;
}

/** Returns the error for a failed gRPC call; the message names `target` for an unreachable server. */
export function errorFromRpc(error: ServiceError, target: string, cause?: unknown): NnpaError {
  const code = status[error.code];
  let reason = "";
  let metadata: Record<string, string> = {};
  for (const packed of error.metadata.get("grpc-status-details-bin")) {
    const details = fromBinary(StatusSchema, Buffer.from(packed)).details;
    const info = details.map((any) => anyUnpack(any, ErrorInfoSchema)).find(Boolean);
    reason = info?.reason ?? reason;
    metadata = info?.metadata ?? metadata;
  }
  if (reason === "PROGRAM_CHECK") {
    return new ProgramCheck(error.details, metadata);
  }
  const where = code === "UNAVAILABLE" && !reason ? `${target}: ` : "";
  const options = cause === undefined ? undefined : { cause };
  return new TransportError(code, `${where}${error.details}`, reason, metadata, options);
}

interface Codec<M extends DescMessage> {
  serialize: (message: MessageInitShape<M>) => Buffer;
  deserialize: (bytes: Buffer) => MessageShape<M>;
}

function codec<M extends DescMessage>(schema: M): Codec<M> {
  return {
    serialize: (message) => {
      const bytes = toBinary(schema, create(schema, message));
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    // A plain Uint8Array, so that `slice` of bytes in messages copies, as a Buffer's does not.
    deserialize: (bytes) =>
      fromBinary(schema, new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)),
  };
}

function path(method: { name: string; parent: { typeName: string } }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** A connection over gRPC: TCP, TLS or a Unix socket. `timeout` bounds each call, milliseconds. */
export class GrpcTransport implements Transport {
  readonly target: string;
  readonly #client: Client;
  readonly #metadata = new Metadata();
  readonly #timeout: number | undefined;
  #closed = false;

  constructor(endpoint: Endpoint, timeout?: number) {
    this.target = endpoint.target;
    this.#timeout = timeout;
    if (endpoint.token) {
      this.#metadata.set("authorization", `Bearer ${endpoint.token}`);
    }
    this.#client = new Client(endpoint.target, channelCredentials(endpoint), {
      "grpc.max_receive_message_length": -1,
      "grpc.max_send_message_length": -1,
      "grpc.use_local_subchannel_pool": 1,
      "grpc.enable_http_proxy": endpoint.isLoopback ? 0 : 1,
    });
  }

  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const { deserialize } = codec(method.output);
    return this.#answer(options, (grpc, done) => {
      const bytes = codec(method.input).serialize(request); // here, so that its errors are thrown
      return this.#client.makeUnaryRequest(
        path(method), (same: Buffer) => same, deserialize, bytes, this.#metadata, grpc, done,
      );
    });
  }

  clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    requests: Iterable<MessageInitShape<I>> | AsyncIterable<MessageInitShape<I>>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const { serialize } = codec(method.input);
    const { deserialize } = codec(method.output);
    return this.#answer(options, (grpc, done) => {
      const call = this.#client.makeClientStreamRequest(
        path(method), serialize, deserialize, this.#metadata, grpc, done,
      );
      // The status of the call reports every error, a broken source included.
      pipeline(Readable.from(requests), call as unknown as Writable).catch(() => { call.cancel(); });
      return call;
    });
  }

  async *serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): AsyncIterable<MessageShape<O>> {
    const { serialize } = codec(method.input);
    const { deserialize } = codec(method.output);
    this.#refuse(options.signal);
    const call = this.#client.makeServerStreamRequest(
      path(method), serialize, deserialize, request, this.#metadata, this.#grpc(options),
    );
    const stop = onAbort(options.signal, call);
    try {
      for await (const message of call) {
        yield message as MessageShape<O>;
      }
    } catch (error) {
      throw errorFromRpc(error as ServiceError, this.target, abortReason(options.signal));
    } finally {
      stop();
      call.cancel();
    }
  }

  close(): void {
    this.#closed = true;
    this.#client.close();
  }

  #answer<T>(
    options: CallOptions,
    start: (grpc: GrpcOptions, done: (error: ServiceError | null, value?: T) => void) => Cancellable,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#refuse(options.signal);
      const call = start(this.#grpc(options), (error, value) => {
        stop();
        if (error === null) {
          resolve(value as T);
        } else {
          reject(errorFromRpc(error, this.target, abortReason(options.signal)));
        }
      });
      const stop = onAbort(options.signal, call);
    });
  }

  /** Throws for calls after `close`, and for aborted signals. */
  #refuse(signal: AbortSignal | undefined): void {
    if (this.#closed) {
      throw new TransportError("CANCELLED", `${this.target}: the connection is closed.`);
    }
    if (signal?.aborted) {
      throw new TransportError("CANCELLED", "aborted before the call.", "", {}, { cause: signal.reason });
    }
  }

  #grpc(options: CallOptions): GrpcOptions {
    const timeout = options.timeout ?? this.#timeout;
    return timeout === undefined ? {} : { deadline: Date.now() + timeout };
  }
}

interface Cancellable {
  cancel(): void;
}

function onAbort(signal: AbortSignal | undefined, call: Cancellable): () => void {
  const cancel = (): void => { call.cancel(); };
  signal?.addEventListener("abort", cancel, { once: true });
  return () => { signal?.removeEventListener("abort", cancel); };
}

function abortReason(signal: AbortSignal | undefined): unknown {
  return signal?.aborted ? signal.reason : undefined;
}

function channelCredentials(endpoint: Endpoint): ChannelCredentials {
  if (endpoint.tlsCa === undefined) {
    return credentials.createInsecure();
  }
  const read = (file: string | undefined): Buffer | null =>
    file === undefined ? null : readFileSync(file);
  return credentials.createSsl(read(endpoint.tlsCa), read(endpoint.tlsKey), read(endpoint.tlsCert));
}
