/* SPDX-License-Identifier: Apache-2.0 */
#include "requantise.h"

#include <math.h>
#include <stdlib.h>

#include "fixedpoint.h"

/* The formula, rational, rounded once. A numerator that saturates at 2^62 is beyond any container
 * still after the division; the remainder of the division decides ties. */
static int64_t exact(int64_t x, const quantisation *src, const quantisation *dst) {
  const int64_t divisor = llabs(dst->scale), left = dst->frac_bits - src->frac_bits;
  int64_t numerator = (x - src->zero) * src->scale * (dst->scale < 0 ? -1 : 1);
  numerator = shift_left_saturated(numerator, larger(left, 0), 63);
  const int64_t right = clamp(-left, 0, 61), unit = INT64_C(1) << right;
  int64_t quotient = numerator / divisor, rest = numerator % divisor;
  if (rest < 0) {
    quotient--;
    rest += divisor;
  }
  /* The value is floor + (dropped + rest / divisor) / unit; doubled against half of it. */
  const int64_t floor = shift_right(quotient, right), dropped = quotient - floor * unit;
  const int64_t over = right == 0 ? 2 * rest - divisor
                       : dropped != unit / 2 ? dropped - unit / 2 : rest;
  const int64_t up = over > 0 || (over == 0 && (ROUND_MODE == ROUND_MODE_UP || (floor & 1)));
  return saturate(floor + up + dst->zero, dst->bits);
}

/* Left shifts that normalise y in `bits` bits; bits - 1 for 0 and -1. */
static int64_t norm(int64_t y, int bits) {
  int64_t shifts = bits - 1;
  for (int64_t magnitude = y < 0 ? ~y : y; magnitude; magnitude >>= 1) shifts--;
  return shifts;
}

/* The library's 16-bit ratio of scales, and the shift that belongs to it. */
static void scale_pair(
    const quantisation *src, const quantisation *dst, int64_t *scale, int64_t *shift) {
  const int64_t k = norm(src->scale, 32) - norm(dst->scale, 16);
  const int64_t ratio = src->scale * (INT64_C(1) << k) / dst->scale;
  const int64_t excess = 16 - norm(ratio, 32);
  *scale = scale_rounded(ratio, excess, 16);
  *shift = k + src->frac_bits - dst->frac_bits - excess;
}

/* MLI 2.0 EA: sat(sat(x * scale) + offset), the offset kept in the container's width. */
static int64_t early_access(int64_t x, const quantisation *src, const quantisation *dst) {
  int64_t scale, shift;
  scale_pair(src, dst, &scale, &shift);
  int64_t offset = saturate(dst->zero - scale_rounded(scale * src->zero, shift, 16), 16);
  if (dst->bits == 8) offset = wrap(offset, 8);
  return saturate(scale_rounded(x * scale, shift, dst->bits) + offset, dst->bits);
}

/* MLI 2.0.2: a 16-bit product; with SA_32 on a side normalised operands, and the high 32 bits of
 * their product. */
static int64_t library(int64_t x, const quantisation *src, const quantisation *dst) {
  int64_t scale, shift, rounded;
  scale_pair(src, dst, &scale, &shift);
  if (src->bits != 32 && dst->bits != 32) {
    rounded = scale_rounded(saturate(x - src->zero, 16) * scale, smaller(shift, 31), 32);
  } else {
    const int64_t d = saturate(x - src->zero, 32), d_norm = norm(d, 32), s_norm = norm(scale, 32);
    const int64_t product = d * (INT64_C(1) << d_norm) * (scale * (INT64_C(1) << s_norm));
    const int64_t high = shift_right(product, 32);
    const int64_t right = smaller(shift, 63) + s_norm + d_norm - 32;
    rounded = right > 31 ? 0 : scale_rounded(high, right, 32);
  }
  return saturate(saturate(rounded + dst->zero, 32), dst->bits);
}

int64_t requantise(int64_t x, const quantisation *src, const quantisation *dst) {
  if (CONVERSION == CONVERSION_LIBRARY_2_0_2) return library(x, src, dst);
  if (CONVERSION == CONVERSION_LIBRARY_2_0_EA) return early_access(x, src, dst);
  return exact(x, src, dst);
}

int64_t from_float(float x, const quantisation *dst) {
  const double far = (double)(INT64_C(1) << 40); /* no zero point brings that back */
  const float inverse = 1.0f / (float)dst->scale;
  const float factor = (float)(ldexp(1.0, (int)dst->frac_bits) * inverse);
  const float scaled = x * factor;
  const double whole = trunc(scaled + (x > 0 ? 0.5f : -0.5f));
  if (isnan(whole)) return saturate(dst->zero, dst->bits);
  return saturate((int64_t)fmin(fmax(whole, -far), far) + dst->zero, dst->bits);
}

float to_float(int64_t x, const quantisation *src) {
  const float factor = (float)ldexp((double)src->scale, -(int)src->frac_bits);
  return (float)saturate(x - src->zero, 32) * factor;
}
