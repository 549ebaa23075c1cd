// SPDX-License-Identifier: Apache-2.0

/**
 * Quantise numbers to a fixed-point tensor, and back.
 *
 * Source: embARC MLI documentation, "Data Formats": value = x / 2^frac_bits.
 */

import { ElType } from "../gen/nnpa/mli/v1/mli_pb.js";
import { type Tensor, tensor } from "./tensor.js";

/** How numbers become fixed-point elements. */
export interface QuantiseOptions {
  /** MLI_EL_FX_8 or MLI_EL_FX_16. */
  elType: ElType;
  /** Default: the most, up to all bits but the sign, with which no value saturates. */
  fracBits?: number;
  /** Sizes, outermost first. Default: one dim. */
  shape?: readonly number[];
}

const BITS = new Map<number, number>([
  [ElType.MLI_EL_FX_8, 8],
  [ElType.MLI_EL_FX_16, 16],
]);

/** Returns the nearest integer, ties to even. */
function rounded(value: number): number {
  const floor = Math.floor(value);
  const tie = value - floor === 0.5;
  return tie ? floor + (floor % 2 === 0 ? 0 : 1) : Math.round(value);
}

/** Returns the most fractional bits with which no value saturates; else 0. */
function fitted(values: readonly number[], bits: number): number {
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  for (let fracBits = bits - 1; fracBits > 0; fracBits -= 1) {
    if (rounded(largest * 2 ** fracBits) < 2 ** (bits - 1)) {
      return fracBits;
    }
  }
  return 0;
}

/** Returns numbers as a fixed-point tensor: nearest (ties to even), saturated. */
export function quantise(values: Iterable<number>, options: QuantiseOptions): Tensor {
  const { elType, shape } = options;
  const numbers = [...values];
  const bits = BITS.get(elType);
  if (bits === undefined) {
    throw new TypeError(`elType: ${elType}, expected MLI_EL_FX_8 or MLI_EL_FX_16`);
  }
  const infinite = numbers.find((number) => !Number.isFinite(number));
  if (infinite !== undefined) {
    throw new RangeError(`values: ${infinite}, expected finite numbers`);
  }
  const fracBits = options.fracBits ?? fitted(numbers, bits);
  const limit = 2 ** (bits - 1);
  const integers = numbers.map((number) =>
    Math.min(Math.max(rounded(number * 2 ** fracBits), -limit), limit - 1),
  );
  const array = bits === 8 ? Int8Array.from(integers) : Int16Array.from(integers);
  return tensor(array, { fracBits, shape: shape ?? [numbers.length] });
}

/** Returns the values that the elements of a fixed-point or FP32 tensor stand for. */
export function dequantise(source: Tensor): Float64Array {
  const { array, fracBits, elType } = source;
  if (fracBits === undefined && elType !== ElType.MLI_EL_FP_32) {
    throw new TypeError(`source: ${String(source)}, expected fixed point or FP32`);
  }
  return Float64Array.from(array, (element) => element / 2 ** (fracBits ?? 0));
}
