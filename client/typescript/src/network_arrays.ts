// SPDX-License-Identifier: Apache-2.0

/**
 * Arrays of hosted networks: which JavaScript array holds which of the model's types, and their bytes.
 *
 * JavaScript has no 16-bit floats everywhere, so float16 and bfloat16 are their bits in a Uint16Array.
 */

import type { MessageInitShape } from "@bufbuild/protobuf";

import { type ArrayClass, elementsOf, littleEndian } from "./elements.js";
import type { NamedArray, NamedArraySchema } from "./gen/nnpa/network/v1/network_pb.js";
import type { Port as PortMessage } from "./gen/nnpa/network/v1/program_pb.js";

/** Elements of an array, row-major; booleans are 0 and 1 in a Uint8Array, texts strings. */
export type NetworkData =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | readonly string[];

/** An array of a network: its elements, and its sizes, outermost first. */
export interface NetworkArray {
  readonly data: NetworkData;
  readonly shape: readonly number[];
}

/** An input or output in the model's terms; -1 in `shape` is a free dim. */
export interface Port {
  readonly name: string;
  /** NumPy's name of the type: "float32", "int64", "bool", ...; "object" is text. */
  readonly dtype: string;
  readonly shape: readonly number[];
}

const CLASSES = new Map<string, ArrayClass<Exclude<NetworkData, readonly string[]>>>([
  ["float32", Float32Array],
  ["float64", Float64Array],
  ["float16", Uint16Array],
  ["bfloat16", Uint16Array],
  ["int8", Int8Array],
  ["int16", Int16Array],
  ["int32", Int32Array],
  ["int64", BigInt64Array],
  ["uint8", Uint8Array],
  ["uint16", Uint16Array],
  ["uint32", Uint32Array],
  ["uint64", BigUint64Array],
  ["bool", Uint8Array],
]);
const TEXT = "object";
/** Bytes of the length before each text. */
const LENGTH_BYTES = 4;

/** Returns a port of the wire's. */
export function portOf({ name, dtype, shape }: PortMessage): Port {
  return { name, dtype, shape: shape.map(Number) };
}

/** Returns "x float32[1, 4]". */
export function describePort({ name, dtype, shape }: Port): string {
  return `${name} ${dtype}[${shape.join(", ")}]`;
}

/** Returns an input as a message; throws TypeError for an array of another type or shape. */
export function encoded(
  port: Port,
  value: NetworkData | NetworkArray,
): MessageInitShape<typeof NamedArraySchema> {
  const hasShape = value instanceof Object && !isArray(value);
  const { data, shape } = hasShape ? value : { data: value, shape: undefined };
  const { name, dtype } = port;
  const expected = CLASSES.get(dtype) ?? (dtype === TEXT ? Array : Uint8Array);
  if (!(data instanceof expected)) {
    const kind = data instanceof Object ? data.constructor.name : String(data);
    const wants = dtype === TEXT ? "an array of strings" : expected.name;
    throw new TypeError(`input ${name}: got ${kind}, expected ${dtype} (${wants})`);
  }
  const sizes = shape === undefined ? inferred(port, data.length) : checked(port, data.length, shape);
  const bytes = ArrayBuffer.isView(data)
    ? littleEndian(data)
    : Buffer.concat(data.flatMap((text) => textBytes(name, text)));
  return { name, dtype, shape: sizes.map(BigInt), data: bytes };
}

function isArray(value: object): value is NetworkData {
  return ArrayBuffer.isView(value) || Array.isArray(value);
}

/** Returns the shape of `count` elements: the port's, with a free dim filled. */
function inferred({ name, shape }: Port, count: number): number[] {
  const free = shape.filter((size) => size < 0).length;
  const fixed = shape.filter((size) => size >= 0).reduce((product, size) => product * size, 1);
  const size = free ? count / fixed : count === fixed ? 1 : NaN;
  const expected = `[${shape.join(", ")}]`;
  if (free > 1) {
    throw new TypeError(`input ${name}: ${expected} has ${free} free dims, give { data, shape }`);
  }
  if (!Number.isInteger(size)) {
    throw new TypeError(`input ${name}: got ${count} elements, expected ${expected}`);
  }
  return shape.map((extent) => (extent < 0 ? size : extent));
}

/** Returns the shape; throws TypeError unless the port can have it and `count` elements fill it. */
function checked(port: Port, count: number, shape: readonly number[]): readonly number[] {
  const fits =
    shape.length === port.shape.length &&
    port.shape.every((size, index) => size < 0 || size === shape[index]) &&
    shape.every((size) => Number.isInteger(size) && size >= 0);
  if (!fits) {
    const got = `${port.dtype} [${shape.join(", ")}]`;
    const expected = `${port.dtype} [${port.shape.join(", ")}]`;
    throw new TypeError(`input ${port.name}: got ${got}, expected ${expected}`);
  }
  if (shape.reduce((product, size) => product * size, 1) !== count) {
    const text = `${count} elements do not fill shape [${shape.join(", ")}]`;
    throw new TypeError(`input ${port.name}: ${text}`);
  }
  return shape;
}

function textBytes(name: string, text: unknown): Buffer[] {
  if (typeof text !== "string") {
    throw new TypeError(`input ${name}: an element of text is ${typeof text}, expected string`);
  }
  const characters = Buffer.from(text);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32LE(characters.byteLength);
  return [length, characters];
}

/** Returns the array of a message; its bytes if JavaScript has no array of the type. */
export function decoded({ dtype, shape, data }: NamedArray): NetworkArray {
  const sizes = shape.map(Number);
  if (dtype === TEXT) {
    return { data: texts(Buffer.from(data)), shape: sizes };
  }
  return { data: elementsOf(data.slice(), CLASSES.get(dtype) ?? Uint8Array), shape: sizes };
}

function texts(bytes: Buffer): string[] {
  const strings: string[] = [];
  for (let start = 0; start < bytes.byteLength; ) {
    const end = start + LENGTH_BYTES + bytes.readUInt32LE(start);
    strings.push(bytes.toString("utf8", start + LENGTH_BYTES, end));
    start = end;
  }
  return strings;
}
