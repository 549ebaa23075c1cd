/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-point arithmetic of the ARC DSP extensions. Right shifts are exact: every dropped bit takes
 * part in the tie; a value saturates once, after rounding. Magnitudes stay below 2^62. */
#ifndef FIXEDPOINT_H
#define FIXEDPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "build.h"

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return larger(low, smaller(x, high));
}

/* x in the signed range of `bits` bits, at most 63. */
static inline int64_t saturate(int64_t x, int bits) {
  const int64_t limit = INT64_C(1) << (bits - 1);
  return clamp(x, -limit, limit - 1);
}

/* x modulo 2^bits, in two's complement. */
static inline int64_t wrap(int64_t x, int bits) {
  const int64_t half = INT64_C(1) << (bits - 1);
  return ((x + half) & (2 * half - 1)) - half;
}

/* x / 2^n toward minus infinity, n >= 0. */
static inline int64_t shift_right(int64_t x, int64_t n) {
  const int count = (int)smaller(n, 63);
  return x < 0 ? ~(~x >> count) : x >> count;
}

/* x / 2^n to the nearest integer, n >= 0, ties by ROUND_MODE. */
static inline int64_t round_shift(int64_t x, int64_t n) {
  const int64_t count = smaller(n, 62); /* beyond it every x rounds to 0 */
  const int64_t unit = INT64_C(1) << count, quotient = shift_right(x, count);
  const int64_t half = unit / 2, dropped = x - quotient * unit;
  if (count == 0) return x;
  if (ROUND_MODE == ROUND_MODE_UP) return quotient + (dropped >= half);
  return quotient + (dropped > half || (dropped == half && (quotient & 1)));
}

/* x * 2^n clamped to `bits` bits, at most 63, n >= 0. */
static inline int64_t shift_left_saturated(int64_t x, int64_t n, int bits) {
  const int count = (int)smaller(n, bits);
  const int64_t limit = INT64_C(1) << (bits - 1);
  if (x > (limit - 1) >> count) return limit - 1;
  if (x < -(limit >> count)) return -limit;
  return x == 0 ? 0 : x * (INT64_C(1) << count);
}

/* x / 2^n rounded, then clamped to `bits` bits; a negative n multiplies. */
static inline int64_t scale_rounded(int64_t x, int64_t n, int bits) {
  return n < 0 ? shift_left_saturated(x, -n, bits) : saturate(round_shift(x, n), bits);
}

/* x / 2^n toward minus infinity, then clamped to `bits` bits; a negative n multiplies. */
static inline int64_t scale_floored(int64_t x, int64_t n, int bits) {
  return n < 0 ? shift_left_saturated(x, -n, bits) : saturate(shift_right(x, n), bits);
}

/* The integer of `size` bytes, 1, 2 or 4, at an index; memory need not be aligned. */
static inline int64_t load(const void *memory, uint32_t size, uint64_t index) {
  const char *place = (const char *)memory + index * size;
  int16_t x16;
  int32_t x32;
  switch (size) {
    case 1:
      return *(const int8_t *)place;
    case 2:
      memcpy(&x16, place, sizeof x16);
      return x16;
    default:
      memcpy(&x32, place, sizeof x32);
      return x32;
  }
}

/* Stores an integer that its `size` bytes, 1, 2 or 4, hold. */
static inline void store(void *memory, uint32_t size, uint64_t index, int64_t value) {
  char *place = (char *)memory + index * size;
  const int8_t x8 = (int8_t)value;
  const int16_t x16 = (int16_t)value;
  const int32_t x32 = (int32_t)value;
  memcpy(place, size == 1 ? (const void *)&x8 : size == 2 ? (const void *)&x16 : &x32, size);
}

#endif
