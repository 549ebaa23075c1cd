/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperbolic tangent and sigmoid of MLI 1.x: one int16 table each, interpolated. */
#ifndef ACTIVATION_H
#define ACTIVATION_H

#include "checks.h"

/* A function in Q.15 at x = (i - zero) / 2^frac_bits for each entry i. */
typedef struct {
  const int16_t *entries;
  int length, zero, frac_bits;
} table;

extern const table TANH, SIGM;

/* The function of an RNN_ACT_TANH or RNN_ACT_SIGM; NULL of RNN_ACT_NONE. */
const table *table_of(mli_rnn_out_activation act);

/* The function at x with in_bits fractional bits, in 7 of 8 or 15 of 16 bits. */
int64_t evaluate(const table *function, int64_t x, int in_bits, int io_bits);

#endif
