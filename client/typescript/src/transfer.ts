// SPDX-License-Identifier: Apache-2.0

/** Transfers of user arrays and sticks: inline when small, streamed in chunks when large. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import {
  type Call,
  type CallTensor,
  type OperationInit,
  type Pointers,
  type Ref,
  requireZtensors,
} from "./call.js";
import { arrayOf, bytesOf, dims, elementBytes, type UserArray, type UserData } from "./elements.js";
import { NnpaError } from "./errors.js";
import {
  AcceleratorService,
  type ReadTensorRequestSchema,
  type WriteTensorHeaderSchema,
} from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import { type OperationResult, OperationResultSchema } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import { ByteOrder, type TensorDesc, type ZtensorSchema } from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import type { Guest } from "./guest.js";
import { word } from "./options.js";
import type { CallOptions } from "./transport.js";

/** Bytes of a chunk; the contract calls 256 KiB to 1 MiB fastest. */
export const CHUNK_BYTES = 1 << 20;
/** Above this, bytes, arrays travel in chunks, as in every SDK. */
export const MAX_INLINE_BYTES = 1 << 19;

/** Byte orders of sticks: of this client's arrays, and of an IBM Z machine's memory. */
export type ByteOrderName = "little" | "big";

const ORDERS = { LITTLE: ByteOrder.LITTLE_ENDIAN, BIG: ByteOrder.BIG_ENDIAN };

type Header = MessageInitShape<typeof WriteTensorHeaderSchema>;
type ReadRequest = MessageInitShape<typeof ReadTensorRequestSchema>;
/** Builds the operation of a transform around its `data`. */
type MakeOperation = (data: Uint8Array[]) => OperationInit;

/** A ztensor as a transfer sees it. */
export interface TransferTensor extends CallTensor {
  readonly guest: Guest;
  /** Whether an operation that has not run is to create it. */
  readonly pending: boolean;
  readonly preTransformedDesc: TensorDesc;
  readonly transformedDesc: TensorDesc;
  /** IEEE flags of the last transform. */
  flags: number;
  /** Returns how an operation names this ztensor. */
  ref(): Ref;
}

/** Sends user arrays to a transform; `make` puts them, or nothing, into its operation. */
export async function transform<T extends TransferTensor>(
  ztensor: T,
  name: string,
  arrays: readonly UserData[],
  make: MakeOperation,
  options?: CallOptions,
): Promise<T> {
  const { guest } = ztensor;
  if (ztensor.pending) {
    await guest.flush();
  }
  const { type } = ztensor.preTransformedDesc;
  const views = arrays.map((array) => bytesOf(array, type));
  const bytes = views.reduce((sum, view) => sum + view.byteLength, 0);
  const call: Call = { name, operation: make([]), tensors: { ztensor }, read: reader(ztensor) };
  if (!ztensor.id) {
    await guest.submit([call], options);
  } else if (bytes <= Math.min(MAX_INLINE_BYTES, guest.maxInlineBytes)) {
    const operation = make(views.map((view) => view.slice()));
    await guest.submit([{ ...call, operation, bytes }], options);
  } else {
    const arrayBytes = views.map((view) => BigInt(view.byteLength));
    const value = { operation: call.operation, arrayBytes };
    await write(guest, call, { target: { case: "arrays", value } }, views, options);
  }
  return ztensor;
}

/** A message of an upload. */
export interface Part<H> {
  message: { case: "header"; value: H } | { case: "chunk"; value: Uint8Array };
}

/** Yields the messages of an upload: a header, then arrays in chunks. */
export function* parts<H>(header: H, views: readonly Uint8Array[]): Generator<Part<H>> {
  yield { message: { case: "header", value: header } };
  for (const view of views) {
    for (let start = 0; start < view.byteLength; start += CHUNK_BYTES) {
      yield { message: { case: "chunk", value: view.subarray(start, start + CHUNK_BYTES) } };
    }
  }
}

async function write(
  guest: Guest,
  call: Call,
  header: Header,
  views: readonly Uint8Array[],
  options?: CallOptions,
): Promise<void> {
  await guest.flush();
  await guest.exclusive(async () => {
    const requests = parts({ ...header, session: guest.name }, views);
    const method = AcceleratorService.method.writeTensor;
    const sent = guest.transport.clientStream(method, requests, options);
    const answer = await sent.catch(async (error: unknown) => {
      if (error instanceof NnpaError) {
        await guest.markUncertain();
      }
      throw error;
    });
    const result = answer.result ?? create(OperationResultSchema);
    guest.applyResult(call, result);
    guest.throwForStatus(call, result);
  });
}

/**
 * Fetches the user's array; into `out` if given, and then a pipeline may defer it. Throws RangeError
 * for an `out` of another size.
 */
export async function transformOrigtensor(
  ztensor: TransferTensor,
  out?: UserArray,
  options?: CallOptions,
  pointers: Pointers = {},
): Promise<UserData> {
  requireZtensors({ ztensor });
  const { guest } = ztensor;
  if (ztensor.pending) {
    await guest.flush();
  }
  const { type } = ztensor.preTransformedDesc;
  const sink = new Sink(out === undefined ? undefined : bytesOf(out, type), out);
  const value = { ztensor: ztensor.ref() };
  const operation: OperationInit = { ...pointers, operation: { case: "transformOrigtensor", value } };
  const tensors = { ztensor };
  const call: Call = { name: "transform_origtensor", operation, tensors, read: reader(ztensor, sink) };
  if (ztensor.id && denseBytes(ztensor) > Math.min(MAX_INLINE_BYTES, guest.maxInlineBytes)) {
    const source = { case: "operation" as const, value: operation };
    await read(guest, call, { source }, sink, options);
  } else {
    await guest.submit([call], options);
    if (out === undefined) {
      await guest.flush(options);
    }
  }
  return out ?? arrayOf(sink.filled, type);
}

/** Returns the reader of an answer: it keeps the flags, and the data that it has. */
function reader(ztensor: TransferTensor, sink?: Sink): (result: OperationResult) => void {
  return (result) => {
    ztensor.flags = result.fpFlags;
    if (sink !== undefined && result.value.case === "data") {
      sink.expect(result.value.value.byteLength);
      sink.append(result.value.value);
    }
  };
}

/** Returns an upper bound for the bytes of the dense array. */
function denseBytes(ztensor: TransferTensor): number {
  const elements = dims(ztensor.transformedDesc).reduce((product, size) => product * size, 1);
  return elements * elementBytes(ztensor.preTransformedDesc.type);
}

/** Collects chunks in a buffer of the announced size, and fills the caller's array from it. */
class Sink {
  #buffer: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #position = 0;

  constructor(
    readonly targetBytes?: Uint8Array,
    readonly target?: UserArray,
  ) {}

  get filled(): Uint8Array<ArrayBuffer> {
    return this.#buffer;
  }

  /** Allocates room for `total` bytes. */
  expect(total: number): void {
    if (this.targetBytes !== undefined && this.targetBytes.byteLength !== total) {
      throw new RangeError(`out: ${this.targetBytes.byteLength} bytes, expected ${total}`);
    }
    this.#buffer = new Uint8Array(total);
    this.#position = 0;
  }

  /** Appends a chunk; the last chunk fills the caller's array. */
  append(chunk: Uint8Array): void {
    this.#buffer.set(chunk, this.#position);
    this.#position += chunk.byteLength;
    if (this.target !== undefined && this.#position === this.#buffer.byteLength) {
      const elements = bytesOf(
        new (this.target.constructor as new (buffer: ArrayBuffer) => UserArray)(this.#buffer.buffer),
        undefined,
      );
      new Uint8Array(this.target.buffer, this.target.byteOffset).set(elements);
    }
  }
}

/** Reads a stream into the sink, then throws for the status that came first. */
async function read(
  guest: Guest,
  call: Call,
  request: ReadRequest,
  sink: Sink,
  options?: CallOptions,
): Promise<void> {
  await guest.flush();
  await guest.exclusive(async () => {
    let result = create(OperationResultSchema);
    const method = AcceleratorService.method.readTensor;
    const named = { ...request, session: guest.name };
    for await (const { message } of guest.transport.serverStream(method, named, options)) {
      if (message.case === "chunk") {
        sink.append(message.value);
      } else if (message.case === "header") {
        result = message.value.result ?? result;
        sink.expect(Number(message.value.totalBytes));
      }
    }
    guest.applyResult(call, result);
    guest.throwForStatus(call, result);
  });
}

/** Fetches the sticks of a buffer as bytes. */
export async function readSticks(
  ztensor: TransferTensor,
  byteOrder: ByteOrderName,
  options?: CallOptions,
): Promise<Uint8Array> {
  const value = { id: ztensor.id, byteOrder: word("byteOrder", byteOrder, ORDERS) };
  const sink = new Sink();
  const call: Call = { name: "read_sticks", operation: {} };
  await read(ztensor.guest, call, { source: { case: "sticks", value } }, sink, options);
  return sink.filled;
}

/** Replaces the sticks of a buffer. */
export async function writeSticks(
  ztensor: TransferTensor,
  sticks: Uint8Array,
  byteOrder: ByteOrderName,
  isTransformed: boolean,
  options?: CallOptions,
): Promise<void> {
  const value = {
    id: ztensor.id,
    totalBytes: BigInt(sticks.byteLength),
    byteOrder: word("byteOrder", byteOrder, ORDERS),
    isTransformed,
  };
  const call: Call = { name: "write_sticks", operation: {}, tensors: { ztensor } };
  await write(ztensor.guest, call, { target: { case: "sticks", value } }, [sticks], options);
}

/** Creates the tensor in the session from a structure as it stands, and its sticks. */
export async function putZtensor(
  ztensor: TransferTensor,
  structure: MessageInitShape<typeof ZtensorSchema>,
  sticks: Uint8Array | undefined,
  options?: CallOptions,
): Promise<void> {
  const newZtensor = {
    ...structure,
    contents: { case: undefined },
    nullBuffer: sticks === undefined,
  };
  const totalBytes = BigInt(sticks?.byteLength ?? 0);
  const value = { id: ztensor.id, newZtensor, totalBytes };
  const creates = [ztensor];
  const call: Call = { name: "put_ztensor", operation: {}, tensors: { ztensor }, creates };
  const target = { case: "sticks" as const, value };
  await write(ztensor.guest, call, { target }, sticks ? [sticks] : [], options);
}
