// SPDX-License-Identifier: Apache-2.0

/** What the examples put into buffers that the manual's programs leave unfilled. */

/** Returns count integers: element i is (i + start) * 5 modulo 13, less 6. */
export function integers(count: number, start: number): Int8Array {
  return Int8Array.from({ length: count }, (_, i) => (((i + start) * 5) % 13) - 6);
}

/** Returns count numbers: element i is ((i + start) * 7 modulo 23, less 11) / 32. */
export function fractions(count: number, start: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => ((((i + start) * 7) % 23) - 11) / 32);
}

/** Returns count numbers from 0 to 127, again and again. */
export function counting(count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => i & 0x7f);
}
