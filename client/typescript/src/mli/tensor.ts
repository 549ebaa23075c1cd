// SPDX-License-Identifier: Apache-2.0

/**
 * `mli_tensor` in JavaScript: typed elements in memory of their own.
 *
 * Source: embARC MLI documentation, "mli_tensor Structure" and "Element Parameters".
 */

import { inspect } from "node:util";

import type { MessageInitShape } from "@bufbuild/protobuf";

import { type ArrayClass, elementsOf, littleEndian } from "../elements.js";
import { enumName } from "../errors.js";
import {
  ElType,
  ElTypeSchema,
  type SaParamsSchema,
  type Tensor as TensorMessage,
  type TensorSchema,
} from "../gen/nnpa/mli/v1/mli_pb.js";

/** Elements of a tensor, row-major. */
export type Elements = Int8Array | Int16Array | Int32Array | Float32Array;

/** Signed asymmetric: value = (x - zeroPoint) * scale / 2^scaleFracBits; one entry, or one per slice. */
export type SaParams = Omit<MessageInitShape<typeof SaParamsSchema>, "$typeName">;

/** The values that the elements of a tensor stand for. */
export interface TensorOptions {
  /** Sizes, outermost first. Default: one dim. */
  shape?: readonly number[];
  /** Fixed point: value = x / 2^fracBits. */
  fracBits?: number;
  /** Signed asymmetric. */
  sa?: SaParams;
}

const CLASSES = new Map<number, ArrayClass<Elements>>([
  [ElType.MLI_EL_FX_8, Int8Array],
  [ElType.MLI_EL_FX_16, Int16Array],
  [ElType.MLI_EL_SA_8, Int8Array],
  [ElType.MLI_EL_SA_32, Int32Array],
  [ElType.MLI_EL_FP_32, Float32Array],
]);

function bytesPerElement(elType: number): number {
  return CLASSES.get(elType)?.BYTES_PER_ELEMENT ?? 1;
}

/** An `mli_tensor`, of `tensor`, `empty` or `quantise`; a kernel fills the fields of its outputs. */
export class Tensor {
  /** Little-endian elements. */
  #memory: Uint8Array<ArrayBuffer>;
  #shape: readonly number[];
  #elType: ElType;
  #elParams: TensorMessage["elParams"] | MessageInitShape<typeof TensorSchema>["elParams"];

  /** @internal */
  constructor(
    memory: Uint8Array<ArrayBuffer>,
    shape: readonly number[],
    elType: ElType,
    { fracBits, sa }: TensorOptions,
  ) {
    this.#memory = memory;
    this.#shape = shape;
    this.#elType = elType;
    this.#elParams =
      fracBits !== undefined
        ? { case: "fx", value: { fracBits } }
        : sa && { case: "sa", value: sa };
  }

  /** Sizes, outermost first; of an output that no kernel has filled, none. */
  get shape(): readonly number[] {
    return this.#shape;
  }

  /** The type of the elements. */
  get elType(): ElType {
    return this.#elType;
  }

  /** Fractional bits; undefined unless the type is fixed point. */
  get fracBits(): number | undefined {
    return this.#elParams?.case === "fx" ? this.#elParams.value.fracBits : undefined;
  }

  /** Scales and zero points; undefined unless the type is signed asymmetric. */
  get sa(): SaParams | undefined {
    return this.#elParams?.case === "sa" ? this.#elParams.value : undefined;
  }

  /** The size of the memory, bytes. */
  get capacity(): number {
    return this.#memory.byteLength;
  }

  /** The number of elements that fit the memory, also before a kernel has filled it. */
  get room(): number {
    return this.capacity / bytesPerElement(this.#elType);
  }

  /** A copy of the elements; throws TypeError for a type that no kernel supports. */
  get array(): Elements {
    const elementClass = CLASSES.get(this.#elType);
    if (elementClass === undefined) {
      throw new TypeError(`elType: ${this.#elType}, no kernel supports it`);
    }
    const count = this.#shape.reduce((product, size) => product * size, 1);
    const bytes = this.#memory.slice(0, count * elementClass.BYTES_PER_ELEMENT);
    return elementsOf(bytes, elementClass);
  }

  /** Returns the tensor as the wire carries it, with its memory. @internal */
  message(withMemory = true): MessageInitShape<typeof TensorSchema> {
    const fields = { shape: [...this.#shape], elType: this.#elType, elParams: this.#elParams };
    if (!withMemory) {
      return { ...fields, capacity: this.capacity };
    }
    return this.#memory.some(Boolean)
      ? { ...fields, memory: { case: "data", value: this.#memory } }
      : { ...fields, memory: { case: "zeroBytes", value: this.capacity } };
  }

  /** Copies the output of a kernel: fields, and contents from the first element on. @internal */
  update({ shape, elType, elParams, memory }: TensorMessage): void {
    this.#shape = shape;
    this.#elType = elType;
    this.#elParams = elParams;
    this.#memory.set(memory.case === "data" ? memory.value : []);
  }

  /** Returns shape, type and parameters, in one line. */
  toString(): string {
    const type = enumName(ElTypeSchema, this.#elType);
    const { fracBits, sa } = this;
    const parameters = fracBits === undefined ? (sa ? ", asymmetric" : "") : `, ${fracBits} frac_bits`;
    return `mli.Tensor(${this.#shape.join("x") || "scalar"} ${type}${parameters})`;
  }

  /** Shows the same in a REPL and in console.log. */
  [inspect.custom](): string {
    return this.toString();
  }
}

/**
 * Returns a tensor with a copy of an array; its class and the parameters determine the element type.
 *
 *     mli.tensor(Int8Array.of(1, 2), { fracBits: 4 })                               // MLI_EL_FX_8
 *     mli.tensor(Int16Array.of(1, 2), { fracBits: 12 })                             // MLI_EL_FX_16
 *     mli.tensor(Int8Array.of(1, 2), { sa: { zeroPoint: [0], scale: [3], scaleFracBits: [5] } })
 *     mli.tensor(Float32Array.of(1, 2))                                             // MLI_EL_FP_32
 *
 * Throws TypeError for an array that does not match the parameters, or does not fill the shape.
 */
export function tensor(array: Elements, options: TensorOptions = {}): Tensor {
  const shape = options.shape ?? [array.length];
  const count = shape.reduce((product, size) => product * size, 1);
  if (count !== array.length) {
    throw new TypeError(`array: ${array.length} elements, shape [${shape.join(", ")}] has ${count}`);
  }
  return new Tensor(littleEndian(array).slice(), shape, elTypeOf(array, options), options);
}

function elTypeOf(array: Elements, { fracBits, sa }: TensorOptions): ElType {
  if (fracBits !== undefined && sa !== undefined) {
    throw new TypeError("fracBits: given together with sa, expected one of them");
  }
  if (fracBits !== undefined && array instanceof Int8Array) {
    return ElType.MLI_EL_FX_8;
  } else if (fracBits !== undefined && array instanceof Int16Array) {
    return ElType.MLI_EL_FX_16;
  } else if (sa !== undefined && array instanceof Int8Array) {
    return ElType.MLI_EL_SA_8;
  } else if (sa !== undefined && array instanceof Int32Array) {
    return ElType.MLI_EL_SA_32;
  } else if (fracBits === undefined && sa === undefined && array instanceof Float32Array) {
    return ElType.MLI_EL_FP_32;
  }
  const kinds = "Int8Array or Int16Array with fracBits, Int8Array or Int32Array with sa, or Float32Array";
  throw new TypeError(`array: ${(array as object).constructor.name}, expected ${kinds}`);
}

/** Returns an output for a kernel to fill: zeroed memory for `count` elements, its shape unset. */
export function empty(count: number, elType: ElType, options: Omit<TensorOptions, "shape"> = {}): Tensor {
  if (!Number.isInteger(count) || count < 0) {
    throw new RangeError(`count: ${count}, expected 0 or more`);
  }
  return new Tensor(new Uint8Array(count * bytesPerElement(elType)), [], elType, options);
}
