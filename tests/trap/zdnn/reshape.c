/* SPDX-License-Identifier: Apache-2.0 */
/* Sticks of one shape as sticks of another. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

static uint64_t elements(const zdnn_tensor_desc *pre) {
  const uint32_t dims[] = {pre->dim1, pre->dim2, pre->dim3, pre->dim4};
  uint64_t count = 1;
  for (unsigned i = 0; i < dims_of_layout(pre->layout); i++) count *= dims[i];
  return count;
}

static bool next(const zdnn_tensor_desc *d, place *at) {
  if (++at->e2 < d->dim2) return true;
  at->e2 = 0;
  if (++at->e3 < d->dim3) return true;
  at->e3 = 0;
  return ++at->e4 < d->dim4;
}

/* Copies row by row, in sticks of cells of two bytes. */
static void copy_rows(const zdnn_ztensor *src, const zdnn_ztensor *dest) {
  const zdnn_tensor_desc *from = src->transformed_desc, *to = dest->transformed_desc;
  place read = {0, 0, 0, 0}, write = {0, 0, 0, 0};
  do {
    for (read.e1 = 0; read.e1 < from->dim1; read.e1 += 64) {
      write.e1 = read.e1;
      memcpy((uint8_t *)dest->buffer + cell_offset(to, write),
             (uint8_t *)src->buffer + cell_offset(from, read), STICK);
    }
  } while (next(from, &read) && next(to, &write));
}

static zdnn_status by_floats(const zdnn_ztensor *src, zdnn_ztensor *dest) {
  zdnn_tensor_desc theirs = *src->pre_transformed_desc, ours = *dest->pre_transformed_desc;
  zdnn_ztensor from = *src, to = *dest;
  theirs.type = ours.type = FP32;
  from.pre_transformed_desc = &theirs;
  to.pre_transformed_desc = &ours;
  float *floats = malloc(elements(&theirs) * sizeof *floats);
  if (floats == NULL) return ZDNN_ALLOCATION_FAILURE;
  zdnn_status status = zdnn_transform_origtensor(&from, floats);
  if (status == ZDNN_OK) status = zdnn_transform_ztensor(&to, floats);
  dest->is_transformed = to.is_transformed;
  free(floats);
  return status;
}

zdnn_status zdnn_reshape_ztensor(const zdnn_ztensor *src, zdnn_ztensor *dest) {
  const zdnn_tensor_desc *from = src->transformed_desc, *to = dest->transformed_desc;
  if (elements(src->pre_transformed_desc) != elements(dest->pre_transformed_desc))
    return ZDNN_INVALID_SHAPE;
  if (from->layout != to->layout) return ZDNN_INVALID_LAYOUT;
  if (!one_of(from->layout, 2, ZDNN_NHWC, ZDNN_HWCK)) return ZDNN_INVALID_LAYOUT;
  if (!src->is_transformed || dest->is_transformed) return ZDNN_INVALID_STATE;
  if (from->dim1 != to->dim1) return by_floats(src, dest);
  if (from->dim4 == to->dim4 && from->dim3 == to->dim3 && from->dim2 == to->dim2)
    memcpy(dest->buffer, src->buffer, zdnn_getsize_ztensor(from));
  else
    copy_rows(src, dest);
  dest->is_transformed = true;
  return ZDNN_OK;
}
