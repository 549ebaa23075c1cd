// SPDX-License-Identifier: Apache-2.0

/**
 * User arrays: the typed array of each of zDNN's types, and their bytes on the wire.
 *
 * JavaScript has no 16-bit floats everywhere, so FP16 and BFLOAT are their bits in a Uint16Array.
 */

import { endianness } from "node:os";

import { DataLayouts, DataTypes, type TensorDesc } from "./gen/nnpa/zdnn/v1/tensor_pb.js";

/** An array of elements of a pre-transformed type. */
export type UserArray = Float32Array | Uint16Array | Int8Array | Int32Array;

/** The data of a transform: elements, or their little-endian bytes. */
export type UserData = UserArray | Uint8Array;

/** The class of a typed array. */
export interface ArrayClass<A> {
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
  new (buffer: ArrayBuffer): A;
}

const CLASSES = new Map<number, ArrayClass<UserArray>>([
  [DataTypes.FP32, Float32Array],
  [DataTypes.FP16, Uint16Array],
  [DataTypes.BFLOAT, Uint16Array],
  [DataTypes.INT8, Int8Array],
  [DataTypes.INT32, Int32Array],
]);

/**
 * The layouts that a user array can have: for each dim of the transformed form, outermost first, the
 * number of the user's dim that it is, 0 for a size of 1.
 */
export const AXES = new Map<number, readonly number[]>([
  [DataLayouts.ZDNN_1D, [0, 0, 0, 1]],
  [DataLayouts.ZDNN_2D, [0, 0, 2, 1]],
  [DataLayouts.ZDNN_2DS, [2, 0, 0, 1]],
  [DataLayouts.ZDNN_3D, [0, 3, 2, 1]],
  [DataLayouts.ZDNN_3DS, [3, 0, 2, 1]],
  [DataLayouts.ZDNN_4D, [4, 3, 2, 1]],
  [DataLayouts.ZDNN_4DS, [4, 0, 2, 1]], // its directions are side by side in dim 1
  [DataLayouts.ZDNN_NHWC, [4, 3, 2, 1]],
  [DataLayouts.ZDNN_NCHW, [4, 2, 1, 3]],
  [DataLayouts.ZDNN_HWCK, [4, 3, 2, 1]],
]);

/** Returns the four dims of a descriptor, outermost first. */
export function dims(desc: TensorDesc): number[] {
  return [desc.dim4, desc.dim3, desc.dim2, desc.dim1];
}

/** Returns the number of dims of a layout, its highest axis; 0 for a concatenated or unknown one. */
export function rank(layout: number | undefined): number {
  return Math.max(0, ...(AXES.get(layout ?? -1) ?? []));
}

/** Returns the dims that the descriptor's layout has, outermost first. */
export function layoutShape(desc: TensorDesc): number[] {
  return dims(desc).slice(4 - rank(desc.layout));
}

/** Returns layout, sizes and type: "ZDNN_2D 2x3 FP32". */
export function describe(desc: TensorDesc): string {
  const { layout = 0, type = 0 } = desc;
  const sizes = layoutShape(desc);
  const shape = (sizes.length ? sizes : dims(desc)).join("x");
  return `${DataLayouts[layout] ?? layout} ${shape} ${DataTypes[type] ?? type}`;
}

/** Returns the bytes of one element of a pre-transformed type; 4, the most, for unknown ones. */
export function elementBytes(type: number | undefined): number {
  return CLASSES.get(type ?? -1)?.BYTES_PER_ELEMENT ?? 4;
}

/** Returns the zDNN type of an array for `session.ztensor`; throws TypeError if no type fits. */
export function typeOf(array: UserArray, type: number | undefined): number {
  if (array instanceof Float32Array && (type ?? DataTypes.FP32) === DataTypes.FP32) {
    return DataTypes.FP32;
  }
  if (array instanceof Uint16Array && (type === DataTypes.FP16 || type === DataTypes.BFLOAT)) {
    return type;
  }
  throw new TypeError(
    `array: ${array.constructor.name}, expected Float32Array, or Uint16Array with type FP16 or BFLOAT`,
  );
}

/** Returns the little-endian bytes of a user array; the array's own memory where it can. */
export function bytesOf(data: UserData, type: number | undefined): Uint8Array {
  const arrayClass = CLASSES.get(type ?? -1);
  if (!(data instanceof Uint8Array) && arrayClass && !(data instanceof arrayClass)) {
    const name = DataTypes[type ?? -1] ?? String(type);
    throw new TypeError(
      `data: ${data.constructor.name}, the descriptor says ${name} (${arrayClass.name})`,
    );
  }
  return littleEndian(data);
}

/** Returns elements of a pre-transformed type over their little-endian bytes. */
export function arrayOf(bytes: Uint8Array<ArrayBuffer>, type: number | undefined): UserData {
  const arrayClass = CLASSES.get(type ?? -1);
  const isWhole = arrayClass !== undefined && bytes.byteLength % arrayClass.BYTES_PER_ELEMENT === 0;
  return isWhole ? elementsOf(bytes, arrayClass) : bytes;
}

/** Returns the little-endian bytes of a typed array; its own memory where the host has that order. */
export function littleEndian(array: ArrayBufferView & { BYTES_PER_ELEMENT: number }): Uint8Array {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  return endianness() === "LE" ? bytes : swapped(bytes, array.BYTES_PER_ELEMENT);
}

/** Returns elements over all of a buffer of little-endian bytes. */
export function elementsOf<A>(bytes: Uint8Array<ArrayBuffer>, arrayClass: ArrayClass<A>): A {
  const width = arrayClass.BYTES_PER_ELEMENT;
  return new arrayClass((endianness() === "LE" ? bytes : swapped(bytes, width)).buffer);
}

/** Returns a copy with the bytes of each element in reverse order. */
export function swapped(bytes: Uint8Array, width: number): Uint8Array<ArrayBuffer> {
  const copy = Buffer.from(new Uint8Array(bytes).buffer);
  if (width === 2) {
    copy.swap16();
  } else if (width === 4) {
    copy.swap32();
  } else if (width === 8) {
    copy.swap64();
  }
  return new Uint8Array(copy.buffer, copy.byteOffset, copy.byteLength);
}
