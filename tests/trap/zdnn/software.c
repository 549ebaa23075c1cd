/* SPDX-License-Identifier: Apache-2.0 */
/* Stickification and its inverse by the vector conversions, with IEEE flags as statuses. */
#include <fenv.h>
#include <string.h>

#include "library.h"

/* Returns the place in the program's array of an element, and the distance to the next e1. */
static uint64_t element(const array *which, place at, size_t *step) {
  const zdnn_tensor_desc *d = which->transformed;
  if (which->pre->layout == ZDNN_NCHW) {
    *step = (size_t)d->dim3 * d->dim2;
    return ((at.e4 * d->dim1 + at.e1) * d->dim3 + at.e3) * d->dim2 + at.e2;
  }
  *step = 1;
  return ((at.e4 * d->dim3 + at.e3) * d->dim2 + at.e2) * d->dim1 + at.e1;
}

static zdnn_status status_of_flags(zdnn_data_types type, bool saturate) {
  if (!fetestexcept(FE_INVALID | FE_OVERFLOW))
    return fetestexcept(FE_INEXACT) ? ZDNN_CONVERT_FAILURE : ZDNN_OK;
  return saturate && type != FP16 ? ZDNN_ELEMENT_RANGE_VIOLATION : ZDNN_CONVERT_FAILURE;
}

/* Calls for each run of at most eight cells in one stick. */
typedef void run(const array *which, uint8_t *data, place at, unsigned count, bool saturate);

static void each_run(const array *which, uint8_t *data, run *convert, bool saturate) {
  const zdnn_tensor_desc *d = which->transformed;
  place at;
  for (at.e4 = 0; at.e4 < d->dim4; at.e4++)
    for (at.e3 = 0; at.e3 < d->dim3; at.e3++)
      for (at.e2 = 0; at.e2 < d->dim2; at.e2++)
        for (at.e1 = 0; at.e1 < d->dim1; at.e1 += 8) {
          uint64_t left = d->dim1 - at.e1;
          convert(which, data, at, left < 8 ? (unsigned)left : 8, saturate);
        }
}

static void run_to_sticks(const array *which, uint8_t *data, place at, unsigned count,
                          bool saturate) {
  size_t step;
  zdnn_data_types type = which->pre->type;
  const uint8_t *from = data + element(which, at, &step) * bytes_of_type(type);
  uint16_t codes[8];
  to_dlfloat(codes, type, from, step, count, saturate);
  memcpy(which->sticks + cell_offset(which->transformed, at), codes, count * sizeof *codes);
}

static void run_to_array(const array *which, uint8_t *data, place at, unsigned count,
                         bool saturate) {
  size_t step;
  zdnn_data_types type = which->pre->type;
  uint8_t *to = data + element(which, at, &step) * bytes_of_type(type);
  uint16_t codes[8];
  (void)saturate;
  memcpy(codes, which->sticks + cell_offset(which->transformed, at), count * sizeof *codes);
  from_dlfloat(to, type, step, codes, count);
}

zdnn_status sticks_by_software(const array *target, const void *data, bool saturate) {
  feclearexcept(FE_ALL_EXCEPT);
  each_run(target, (uint8_t *)(uintptr_t)data, run_to_sticks, saturate);
  return status_of_flags(target->pre->type, saturate);
}

zdnn_status array_by_software(const array *source, void *data) {
  feclearexcept(FE_ALL_EXCEPT);
  each_run(source, data, run_to_array, false);
  return status_of_flags(source->pre->type, false);
}
