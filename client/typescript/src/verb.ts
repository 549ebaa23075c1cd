// SPDX-License-Identifier: Apache-2.0

/** The shared body of verbs: references to ztensors, creation of outputs, checks of numbers. */

import { type Call, type OperationInit, type Pointers, type Ref, requireZtensors } from "./call.js";
import type { UserData } from "./elements.js";
import { NnpaError } from "./errors.js";
import type { OperationResult } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import type { Guest } from "./guest.js";
import type { CallOptions } from "./transport.js";
import { Ztensor } from "./ztensor.js";

/** The limits of a verb's call; inside a pipeline, the pipeline's options hold. */
export interface VerbOptions extends CallOptions, Pointers {}

/**
 * A call of one operation. Its ztensors go by C's parameter names; `operands` must exist; an output
 * that is left out becomes a new ztensor, whose descriptors the server derives. A verb without
 * ztensors runs in `session`.
 */
export class Verb {
  readonly #tensors: Record<string, Ztensor> = {};
  readonly #creates: Ztensor[] = [];
  readonly guest: Guest;

  constructor(
    readonly name: string,
    operands: Readonly<Record<string, Ztensor>>,
    outputs: Readonly<Record<string, Ztensor | null | undefined>> = {},
    session?: { readonly guest: Guest },
  ) {
    requireZtensors(operands);
    const first = session ?? Object.values(operands)[0];
    if (first === undefined) {
      throw new NnpaError(`zdnn_${name}: neither a ztensor nor a session`);
    }
    this.guest = first.guest;
    for (const [operand, argument] of Object.entries({ ...operands, ...outputs })) {
      const ztensor = argument ?? new Ztensor(this.guest, undefined, this.guest.newId());
      requireZtensors({ [operand]: ztensor });
      if (ztensor.guest !== this.guest) {
        throw new TypeError(`${operand}: of another session, expected a ztensor of the first operand's session`);
      }
      if (ztensor !== argument) {
        this.#creates.push(ztensor);
      }
      this.#tensors[operand] = ztensor;
    }
  }

  /** Returns the ztensor of an operand. */
  tensor(operand: string): Ztensor {
    const ztensor = this.#tensors[operand];
    if (ztensor === undefined) {
      throw new NnpaError(`zdnn_${this.name}: no operand ${operand}`);
    }
    return ztensor;
  }

  /** Returns the reference by which the operation names an operand. */
  ref(operand: string): Ref {
    const ztensor = this.tensor(operand);
    return this.#creates.includes(ztensor)
      ? { tensor: { case: "newId", value: ztensor.id } }
      : ztensor.ref();
  }

  #call(operation: OperationInit["operation"], options: VerbOptions): Call {
    return {
      name: this.name,
      operation: { operation, ...misaligned(options) },
      tensors: this.#tensors,
      creates: this.#creates,
      read: (result) => {
        if (this.#tensors.dest !== undefined) {
          this.#tensors.dest.flags = result.fpFlags; // reshape converts, as the transforms do
        }
      },
    };
  }

  /** Submits the operation. */
  async run(operation: OperationInit["operation"], options: VerbOptions = {}): Promise<void> {
    await this.guest.submit([this.#call(operation, options)], options);
  }

  /** Runs the queued calls and this operation, and returns its answer. */
  ask(operation: OperationInit["operation"], options: VerbOptions = {}): Promise<OperationResult> {
    return this.guest.ask(this.#call(operation, options), options);
  }
}

/** Returns the fields of an operation for C's pointers. */
export function misaligned(options: Pointers = {}): Pointers {
  const { bufferMisaligned = false, saveAreaMisaligned = false, workAreaMisaligned = false } = options;
  return { bufferMisaligned, saveAreaMisaligned, workAreaMisaligned };
}

/** Returns one array, or several, as a list. */
export function arrays(data: UserData | readonly UserData[]): readonly UserData[] {
  return ArrayBuffer.isView(data) ? [data] : data;
}

/** Returns the number, or throws RangeError when a uint32_t cannot hold it. */
export function uint32(field: string, value: number): number {
  return within(field, value, 0, 0xffffffff);
}

/** Returns the number, or throws RangeError when an int32_t cannot hold it. */
export function int32(field: string, value: number): number {
  return within(field, value, -0x80000000, 0x7fffffff);
}

function within(field: string, value: number, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new RangeError(`${field}: ${value}, expected ${min} to ${max}`);
  }
  return value;
}

/** Returns the truth value of an answer. */
export function boolean(answer: OperationResult): boolean {
  return answer.value.case === "boolean" && answer.value.value;
}

/** Returns the number of an answer; the machines' numbers are far below 2^53. */
export function number(answer: OperationResult): number {
  return answer.value.case === "number" ? Number(answer.value.value) : 0;
}

/** Returns the least and the greatest element of an answer. */
export function range(answer: OperationResult): [min: number, max: number] {
  const extremes = answer.value.case === "range" ? answer.value.value : undefined;
  return [extremes?.min ?? NaN, extremes?.max ?? NaN];
}
