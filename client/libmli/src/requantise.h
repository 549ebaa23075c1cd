/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of the data conversion group of MLI 2.0: x_dst =
 * Sat(Round((x_src - z_src) * s_src / 2^n_src * 2^n_dst / s_dst) + z_dst). The zero point is added
 * after rounding, as the library does. */
#ifndef REQUANTISE_H
#define REQUANTISE_H

#include <stdint.h>

/* Zero point, scale and fractional bits of an element, and the bits of its container. */
typedef struct {
  int64_t zero, scale, frac_bits;
  int bits;
} quantisation;

/* An integer of one quantisation as one of another, by the arithmetic of CONVERSION. */
int64_t requantise(int64_t x, const quantisation *src, const quantisation *dst);

/* FP_32 in single precision: nearest, ties away from zero in either rounding mode. NaN becomes
 * the zero point; a value beyond the container, also an infinity, saturates by its sign. */
int64_t from_float(float x, const quantisation *dst);

/* An integer as FP_32: one single-precision product of the difference and the scale. */
float to_float(int64_t x, const quantisation *src);

#endif
