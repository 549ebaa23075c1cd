// SPDX-License-Identifier: Apache-2.0

/** Macros of `zdnn.h` that take arguments. */

import { BITSHIFT_PREV_LAYER, BITSHIFT_RNN_TYPE, BITSHIFT_USAGE } from "./constants.gen.js";

/** Returns the bit at position `pos`, counted from the most significant of `fieldSize` bits. */
export function MSB_BITMASK(fieldSize: number, pos: number): number {
  return ((1 << (fieldSize - 1)) >>> pos) >>> 0;
}

/** Returns the RNN_TYPE byte of a concatenation info, in place. */
export function CONCAT_RNN_TYPE(info: number): number {
  return info & (0xff << BITSHIFT_RNN_TYPE);
}

/** Returns the PREV_LAYER byte of a concatenation info, in place. */
export function CONCAT_PREV_LAYER(info: number): number {
  return info & (0xff << BITSHIFT_PREV_LAYER);
}

/** Returns the USAGE byte of a concatenation info, in place. */
export function CONCAT_USAGE(info: number): number {
  return info & (0xff << BITSHIFT_USAGE);
}
