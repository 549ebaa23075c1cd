/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of the fixed-point kernels, and the dot products that they share. */
#ifndef DENSE_H
#define DENSE_H

#include "checks.h"

/* A data type of the kernels: io is the type of input, state, cell and output. The accumulator
 * has 32 bits, or 40 where 16-bit weights meet 16-bit input. */
typedef struct {
  mli_element_type io, weights;
  int accumulator_bits;
} variant;

extern const variant FX8, FX16, FX8W16D;

static inline int io_bits(const variant *kind) { return 8 * (int)element_size(kind->io); }

/* Fractional bits of values before an activation: 4 or 12. */
static inline int gate_bits(const variant *kind) { return io_bits(kind) - 4; }

static inline int frac_bits(const mli_tensor *tensor) { return tensor->el_params.fx.frac_bits; }

/* The io element at an index. */
static inline void *io_at(const mli_tensor *tensor, const variant *kind, uint64_t index) {
  return (char *)tensor->data.mem.void_p + index * element_size(kind->io);
}

/* x / 2^shift in the accumulator's width: 32 bits round, 40 bits truncate. */
int64_t align(int64_t x, int64_t shift, const variant *kind);

/* A bias value, aligned to the fractional bits of the products of in and weights. */
int64_t aligned_bias(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, uint64_t index,
    const variant *kind);

/* Adds n products of io elements x and weights w to a sum of the accumulator's width. A partial sum
 * beyond it is treated by ACCUMULATOR; a build of level FULL refuses it by this constraint. */
mli_status accumulate(
    int64_t *sum, const void *x, const void *w, uint64_t n, const variant *kind,
    const char *constraint);

/* Sets shape, rank and element type of an output. */
void fill(mli_tensor *out, const uint32_t *shape, uint32_t rank, const variant *kind);

#endif
