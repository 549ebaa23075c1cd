/* SPDX-License-Identifier: Apache-2.0
 * The five vector conversions between DLFLOAT16 and other formats.
 */
#ifndef NNPA_TRAP_CONVERSION_H
#define NNPA_TRAP_CONVERSION_H

#include <stdint.h>

#include "frame.h"

#define CONVERSION_SIZE 6U /* bytes of each */

/* Convert a vector, or two for VCRNF, to another; returns the flags for the FPC. It uses general
 * registers only, so that patched places may call it. */
typedef uint32_t conversion_function(const void *source, void *target);

struct conversion {
  const char *name;
  conversion_function *function;
  unsigned target, source, second; /* vector registers; `second` is of VCRNF */
  int is_specified;                /* whether the machine has these fields of formats */
};

/* Read the instruction at an address; returns 0 if it is none of the five. */
int conversion_at(uint64_t address, struct conversion *conversion);

int is_conversion(uint64_t address);

conversion_function round_fp32, round_fp16, narrow_to_fp16, widen_left, widen_right;

/* Carry out a conversion on the registers of a frame. */
void convert(struct frame *frame, const struct conversion *conversion);

#endif
