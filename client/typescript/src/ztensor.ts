// SPDX-License-Identifier: Apache-2.0

/** Ztensors: zDNN's structure, in the client. */

import { inspect } from "node:util";

import { clone, create } from "@bufbuild/protobuf";

import type { Ref } from "./call.js";
import { shownDesc } from "./display.js";
import { describe, layoutShape, type UserData } from "./elements.js";
import { NnpaError } from "./errors.js";
import type { Guest } from "./guest.js";
import {
  type TensorDesc,
  TensorDescSchema,
  type Ztensor as Structure,
  ZtensorSchema,
} from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import {
  type ByteOrderName,
  readSticks,
  type TransferTensor,
  transformOrigtensor,
  writeSticks,
} from "./transfer.js";
import type { CallOptions } from "./transport.js";

/**
 * A ztensor of a session: of `session.ztensor`, an init function, or an operation.
 *
 * The fields are C's, read-only, and `flags`, the IEEE flags that the last transform raised (a sum
 * of `FpFlags`). When the object is dropped, the session forgets the tensor with one of its next
 * calls. A ztensor that an open pipeline is to create has no fields yet.
 */
export class Ztensor implements TransferTensor {
  /** IEEE flags of the last transform, a sum of `FpFlags`. */
  flags = 0;
  readonly #guest: Guest;
  #id: bigint;
  #structure: Structure | undefined;
  #missing = "not made yet, its pipeline has not run";

  /** @internal */
  constructor(
    guest: Guest,
    structure: Structure | undefined,
    id: bigint,
    /** The scale and offset of a quantized ztensor. @internal */
    readonly quantization?: readonly [scale: number, offset: number],
  ) {
    this.#guest = guest;
    this.#structure = structure;
    this.#id = id;
  }

  /** Returns a ztensor without a buffer; descriptors are copied. @internal */
  static unallocated(
    guest: Guest,
    preTransformedDesc: TensorDesc,
    transformedDesc: TensorDesc,
    quantization?: readonly [scale: number, offset: number],
  ): Ztensor {
    const [scale, offset] = quantization ?? [0, 0];
    const structure = create(ZtensorSchema, {
      preTransformedDesc: clone(TensorDescSchema, preTransformedDesc),
      transformedDesc: clone(TensorDescSchema, transformedDesc),
      bufferSize: 0n,
      nullBuffer: true,
      recScale: scale === 0 ? scale : Math.fround(1 / scale),
      offset,
    });
    return new Ztensor(guest, structure, 0n, quantization);
  }

  /** The session's state. @internal */
  get guest(): Guest {
    return this.#guest;
  }

  /** The id in the session, 0 for a ztensor without a buffer. */
  get id(): bigint {
    return this.#id;
  }

  /** Whether an operation that has not run is to create it. @internal */
  get pending(): boolean {
    return this.#structure === undefined && this.#id !== 0n;
  }

  /** The structure as the wire carries it, without contents. Throws NnpaError if it does not exist. */
  get structure(): Structure {
    if (this.#structure === undefined) {
      throw new NnpaError(`ztensor: does not exist, ${this.#missing}`);
    }
    return this.#structure;
  }

  /** The user's view of the tensor. */
  get preTransformedDesc(): TensorDesc {
    return shownDesc(this.structure.preTransformedDesc ?? create(TensorDescSchema));
  }

  /** The accelerator's view of the tensor. */
  get transformedDesc(): TensorDesc {
    return shownDesc(this.structure.transformedDesc ?? create(TensorDescSchema));
  }

  /** The dims of the user's array, outermost first. */
  get shape(): number[] {
    return layoutShape(this.preTransformedDesc);
  }

  /** The size of the sticks, bytes; 0 before they are allocated. */
  get bufferSize(): bigint {
    return this.structure.bufferSize ?? 0n;
  }

  /** Whether the sticks hold data. */
  get isTransformed(): boolean {
    return this.structure.isTransformed;
  }

  /** The reciprocal of the quantization scale, FP32; 0 means not quantized. */
  get recScale(): number {
    return this.structure.recScale;
  }

  /** The quantization offset, FP32. */
  get offset(): number {
    return this.structure.offset;
  }

  /** Returns layout, sizes, type and state, in one line. */
  toString(): string {
    if (this.#structure === undefined) {
      return `Ztensor(${this.#missing})`;
    }
    const { recScale, offset } = this;
    const text = `${describe(this.preTransformedDesc)} as ${describe(this.transformedDesc)}`;
    const quantized = recScale ? `, rec_scale ${recScale}, offset ${offset}` : "";
    return `Ztensor(${text}, ${this.#state()}${quantized})`;
  }

  /** Shows the same in a REPL and in console.log. */
  [inspect.custom](): string {
    return this.toString();
  }

  /** Returns the same text for JSON; `data` fetches the numbers. */
  toJSON(): string {
    return this.toString();
  }

  /** Describes the buffer: "4096 bytes, transformed", "freed" or "no buffer". */
  #state(): string {
    if (this.structure.nullBuffer) {
      return this.bufferSize ? "freed" : "no buffer";
    }
    return `${this.bufferSize} bytes, ${this.isTransformed ? "" : "not "}transformed`;
  }

  /** Fetches the data as a dense array of the pre-transformed type: zdnn_transform_origtensor. */
  data(options?: CallOptions): Promise<UserData> {
    return transformOrigtensor(this, undefined, options);
  }

  /** Fetches the sticks; "big" gives the bytes that an IBM Z machine has. */
  readSticks(byteOrder: ByteOrderName = "little", options?: CallOptions): Promise<Uint8Array> {
    return readSticks(this, byteOrder, options);
  }

  /** Replaces the sticks, `bufferSize` bytes. */
  writeSticks(
    sticks: Uint8Array,
    byteOrder: ByteOrderName = "little",
    isTransformed = true,
    options?: CallOptions,
  ): Promise<void> {
    return writeSticks(this, sticks, byteOrder, isTransformed, options);
  }

  /**
   * Returns the reference by which an operation names this ztensor; without a buffer the structure
   * travels with the operation. @internal
   */
  ref(): Ref {
    return this.#id
      ? { tensor: { case: "id", value: this.#id } }
      : { tensor: { case: "inlineZtensor", value: this.structure } };
  }

  /** Gives the ztensor its id in the session. @internal */
  claim(id: bigint): void {
    this.#id = id;
  }

  /** Replaces the structure; the user's own descriptor stays as it is. @internal */
  update(structure: Structure): void {
    const own = this.#structure?.preTransformedDesc ?? structure.preTransformedDesc;
    this.#structure = { ...structure, contents: { case: undefined } };
    if (own !== undefined) {
      this.#structure.preTransformedDesc = own;
    }
  }

  /** Records that the session does not hold this ztensor, and why. @internal */
  invalidate(reason: string): void {
    this.#id = 0n;
    this.#missing = reason;
  }

  /** Records that the buffer is gone; the structure stays. @internal */
  release(): void {
    this.#id = 0n;
    this.structure.nullBuffer = true;
  }
}
