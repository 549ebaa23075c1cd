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
  type ClientDuplexStream,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";

import { type Endpoint, isPlain, traceTicket } from "./config.js";
import { type NnpaError, ProgramCheck, SessionLostError, TransportError } from "./errors.js";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { AcceleratorService, type ExecuteResponse } from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";
import { ListStream } from "./list_stream.js";

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
  /** The server's address, for people. */
  readonly target: string;
  /** The ticket by which a proxy leads calls to the session's server; "" without a proxy. */
  readonly ticket?: string;
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

/** The metadata by which a proxy routes the calls of a session to its server. */
export const TICKET = "nnpa-session-ticket";

/** Codes that, without a reason of the server, mean that the server is gone. */
const LOST = new Set(["UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"]);

/** Returns the error for a failed gRPC call; the message names `target` for an unreachable server. */
export function errorFromRpc(
  error: ServiceError,
  target: string,
  cause?: unknown,
  inSession = false,
): NnpaError {
  const code = status[error.code];
  let reason = "";
  let metadata: Record<string, string> = {};
  let retryDelay: number | undefined;
  for (const packed of error.metadata.get("grpc-status-details-bin")) {
    const details = fromBinary(StatusSchema, Buffer.from(packed)).details;
    const info = details.map((any) => anyUnpack(any, ErrorInfoSchema)).find(Boolean);
    const retry = details.map((any) => anyUnpack(any, RetryInfoSchema)).find(Boolean)?.retryDelay;
    retryDelay = retry ? Number(retry.seconds) * 1000 + retry.nanos / 1e6 : retryDelay;
    reason = info?.reason ?? reason;
    metadata = info?.metadata ?? metadata;
  }
  if (reason === "PROGRAM_CHECK") {
    return new ProgramCheck(error.details, metadata);
  }
  if (inSession && cause === undefined && !reason && LOST.has(code)) {
    return new SessionLostError(code, `${target}: ${error.details}`);
  }
  const where = code === "UNAVAILABLE" && !reason ? `${target}: ` : "";
  const options = cause === undefined ? undefined : { cause };
  const failure = new TransportError(code, `${where}${error.details}`, reason, metadata, options);
  failure.retryDelay = retryDelay;
  return failure;
}

function codec<M extends DescMessage>(schema: M) {
  return {
    serialize: (message: MessageInitShape<M>): Buffer => {
      const bytes = toBinary(schema, create(schema, message));
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    // A plain Uint8Array, so that `slice` of bytes in messages copies, as a Buffer's does not.
    deserialize: (bytes: Buffer): MessageShape<M> =>
      fromBinary(schema, new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)),
  };
}

const CREATE_SESSION = path(AcceleratorService.method.createSession);
const DELETE_SESSION = path(AcceleratorService.method.deleteSession);
const EXECUTE = path(AcceleratorService.method.execute);

function path(method: { name: string; parent: { typeName: string } }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Returns whether the server has no stream left, or is too old to have streams. */
function hasNoStream(failure: NnpaError): boolean {
  return failure instanceof TransportError && (
    failure.metadata.field === "max_conversations" ||
    (failure.code === "UNIMPLEMENTED" && !failure.reason)
  );
}

/**
 * A connection over gRPC: TCP, TLS or a Unix socket. `timeout` bounds each call, milliseconds.
 *
 * Lists of operations go over one stream, which cannot time out a single list. A list with a
 * timeout, a list beside another in flight, and every list of a `plain` transport is a separate
 * call.
 */
export class GrpcTransport implements Transport {
  readonly target: string;
  readonly #client: Client;
  readonly #metadata = new Metadata();
  readonly #timeout: number | undefined;
  #closed = false;
  #ticket = "";
  #inSession = false;
  #lists: ListStream | undefined;

  constructor(endpoint: Endpoint, timeout?: number, plain?: boolean) {
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
    if (!isPlain(plain)) {
      this.#lists = new ListStream(() => this.#beginStream());
    }
  }

  #beginStream(): ClientDuplexStream<Buffer, ExecuteResponse> {
    const { executeStream } = AcceleratorService.method;
    const { deserialize } = codec(executeStream.output);
    const same = (bytes: Buffer): Buffer => bytes;
    const metadata = this.#with(this.#ticket);
    return this.#client.makeBidiStreamRequest(path(executeStream), same, deserialize, metadata);
  }

  /** Sends a list over the stream; returns undefined, with nothing run, if no stream is free. */
  async #ask(request: Buffer, options: CallOptions): Promise<ExecuteResponse | undefined> {
    const lists = this.#lists;
    const timeout = options.timeout ?? this.#timeout;
    if (lists === undefined || lists.isBusy || timeout !== undefined) {
      return undefined;
    }
    this.#refuse(options.signal);
    const stop = onAbort(options.signal, lists);
    try {
      return await lists.ask(request);
    } catch (error) {
      const failure = this.#error(error as ServiceError, options);
      if (!hasNoStream(failure)) {
        throw failure;
      }
      this.#lists = undefined;
      return undefined;
    } finally {
      stop();
    }
  }

  get ticket(): string {
    return this.#ticket;
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const bytes = codec(method.input).serialize(request);
    if (path(method) === EXECUTE) {
      const streamed = await this.#ask(bytes, options);
      if (streamed !== undefined) {
        return streamed as unknown as MessageShape<O>;
      }
    } else if (path(method) === DELETE_SESSION) {
      this.#lists?.close();
    }
    return this.#call(method, bytes, options);
  }

  async #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    bytes: Buffer,
    options: CallOptions,
  ): Promise<MessageShape<O>> {
    const { deserialize } = codec(method.output);
    const creates = path(method) === CREATE_SESSION;
    let ticket = creates ? traceTicket() : this.#ticket;
    const answer = await this.#answer<MessageShape<O>>(options, (grpc, done) => {
      return this.#client
        .makeUnaryRequest(
          path(method), (same: Buffer) => same, deserialize, bytes, this.#with(ticket), grpc, done,
        )
        .on("metadata", (headers: Metadata) => {
          ticket = headers.get(TICKET)[0]?.toString() ?? ticket;
        });
    });
    if (creates) {
      this.#ticket = ticket;
      this.#inSession = true;
    }
    return answer;
  }

  /** Returns the metadata of a call with a ticket, or "" for none. */
  #with(ticket: string): Metadata {
    if (!ticket) {
      return this.#metadata;
    }
    const metadata = this.#metadata.clone();
    metadata.set(TICKET, ticket);
    return metadata;
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
        path(method), serialize, deserialize, this.#with(this.#ticket), grpc, done,
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
      path(method), serialize, deserialize, request, this.#with(this.#ticket), this.#grpc(options),
    );
    const stop = onAbort(options.signal, call);
    try {
      for await (const message of call) {
        yield message as MessageShape<O>;
      }
    } catch (error) {
      throw this.#error(error as ServiceError, options);
    } finally {
      stop();
      call.cancel();
    }
  }

  close(): void {
    this.#closed = true;
    this.#lists?.close();
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
          reject(this.#error(error, options));
        }
      });
      const stop = onAbort(options.signal, call);
    });
  }

  #error(error: ServiceError, options: CallOptions): NnpaError {
    const inSession = this.#inSession && !this.#closed;
    const reason: unknown = options.signal?.aborted ? options.signal.reason : undefined;
    return errorFromRpc(error, this.target, reason, inSession);
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

function channelCredentials(endpoint: Endpoint): ChannelCredentials {
  if (endpoint.tlsCa === undefined) {
    return credentials.createInsecure();
  }
  const read = (file: string | undefined): Buffer | null =>
    file === undefined ? null : readFileSync(file);
  return credentials.createSsl(read(endpoint.tlsCa), read(endpoint.tlsKey), read(endpoint.tlsCert));
}
