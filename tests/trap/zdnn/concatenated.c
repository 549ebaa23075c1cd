/* SPDX-License-Identifier: Apache-2.0 */
/* Gates of recurrent layers, side by side in one tensor. */
#include <string.h>

#include "library.h"

enum { MOST_GATES = 4 };

/* One gate of one direction, as a tensor of its own. */
typedef struct gate {
  zdnn_tensor_desc pre, transformed;
  uint8_t *sticks;
} gate;

/* Converts the upper and the lower half of a gate of a layer that follows a bidirectional one. */
static zdnn_status halves_of_gate(gate *which, const uint8_t *data) {
  uint32_t half = which->pre.dim2 / 2;
  uint64_t rows = padded(half), bytes = bytes_of_type(which->pre.type);
  zdnn_tensor_desc pre = which->pre;
  zdnn_status status = ZDNN_OK;
  for (uint32_t row = 0; row < which->pre.dim2 && status == ZDNN_OK; row++) {
    zdnn_tensor_desc line = which->transformed;
    line.dim2 = 1;
    pre.layout = ZDNN_1D;
    uint64_t to = row < half ? row : rows + row - half;
    for (uint32_t column = 0; column < which->pre.dim1 && status == ZDNN_OK; column += 64) {
      uint32_t left = which->pre.dim1 - column;
      line.dim1 = left < 64 ? left : 64;
      uint64_t at = cell_offset(&which->transformed, (place){0, 0, to, column});
      array part = {&pre, &line, which->sticks + at};
      zdnn_status one = sticks_by_software(
          &part, data + ((uint64_t)row * which->pre.dim1 + column) * bytes, false);
      if (one != ZDNN_OK) status = one;
    }
  }
  return status;
}

static gate gate_of(const zdnn_ztensor *ztensor) {
  gate one = {*ztensor->pre_transformed_desc, *ztensor->transformed_desc, ztensor->buffer};
  one.transformed.layout = ZDNN_NHWC;
  one.transformed.dim4 = one.transformed.dim3 = 1;
  one.transformed.dim1 = one.pre.dim1;
  one.pre.layout = one.pre.layout == ZDNN_2DS ? ZDNN_1D : ZDNN_2D;
  return one;
}

zdnn_status sticks_of_gates(zdnn_ztensor *ztensor, unsigned gates, va_list arrays) {
  const zdnn_tensor_desc *pre = ztensor->pre_transformed_desc;
  const zdnn_tensor_desc *desc = ztensor->transformed_desc;
  bool bidirectional = one_of(desc->layout, 2, ZDNN_BIDIR_FICO, ZDNN_BIDIR_ZRH);
  const uint8_t *data[MOST_GATES];
  if (pre->layout != ZDNN_3DS && pre->layout != ZDNN_2DS) return ZDNN_INVALID_LAYOUT;
  bool weights = pre->layout == ZDNN_3DS;
  if (weights && bidirectional && pre->dim2 % 2 != 0) return ZDNN_INVALID_SHAPE;
  uint32_t slices = weights ? pre->dim3 : pre->dim2;
  if (slices != desc->dim4) return ZDNN_INVALID_SHAPE;
  gate one = gate_of(ztensor);
  uint64_t size = zdnn_getsize_ztensor(&one.transformed);
  uint64_t elements = weights ? (uint64_t)pre->dim2 * pre->dim1 : pre->dim1;
  zdnn_status status = ZDNN_OK;
  memset(ztensor->buffer, 0, slices * gates * size);
  for (unsigned g = 0; g < gates; g++) data[g] = va_arg(arrays, const uint8_t *);
  for (uint32_t slice = 0; slice < slices && status == ZDNN_OK; slice++)
    for (unsigned g = 0; g < gates; g++, one.sticks += size) {
      const uint8_t *from = data[g] + slice * elements * bytes_of_type(pre->type);
      array part = {&one.pre, &one.transformed, one.sticks};
      status = bidirectional && weights ? halves_of_gate(&one, from)
                                        : sticks_of_data(&part, from, false);
      if (status != ZDNN_OK && status != ZDNN_ELEMENT_RANGE_VIOLATION) return status;
    }
  return status;
}
