/* SPDX-License-Identifier: Apache-2.0 */
/* Sticks: where a cell is, and how many bytes a tensor takes.
 * Source: zDNN API Reference 1.2.0, "Stickified tensors". */
#include <stdlib.h>

#include "library.h"

static bool paired(const zdnn_tensor_desc *desc) {
  return desc->format == ZDNN_FORMAT_4DWEIGHTS && desc->type == ZDNN_BINARY_INT8;
}

static unsigned cell_bytes(const zdnn_tensor_desc *desc) {
  return desc->type == ZDNN_BINARY_INT8 ? 1 : desc->type == ZDNN_BINARY_INT32 ? 4 : 2;
}

unsigned cells_of_stick(const zdnn_tensor_desc *desc) {
  return paired(desc) ? STICK / 2 : STICK / cell_bytes(desc);
}

static uint64_t row_blocks(const zdnn_tensor_desc *desc) {
  uint64_t rows = paired(desc) ? ((uint64_t)desc->dim2 + 1) / 2 : desc->dim2;
  return (rows + ROWS - 1) / ROWS;
}

static uint64_t columns(const zdnn_tensor_desc *desc) {
  uint64_t cells = cells_of_stick(desc);
  return (desc->dim1 + cells - 1) / cells;
}

uint64_t cell_offset(const zdnn_tensor_desc *desc, place at) {
  uint64_t cells = cells_of_stick(desc), pair = paired(desc) ? 2 : 1, row = at.e2 / pair;
  uint64_t column = at.e1 / cells;
  uint64_t plane = desc->format == ZDNN_FORMAT_4DKERNEL
                       ? (column * desc->dim4 + at.e4) * desc->dim3 + at.e3
                       : (at.e4 * columns(desc) + column) * desc->dim3 + at.e3;
  uint64_t page = plane * row_blocks(desc) + row / ROWS;
  return page * PAGE + row % ROWS * STICK +
         (at.e1 % cells * pair + at.e2 % pair) * cell_bytes(desc);
}

uint64_t zdnn_getsize_ztensor(const zdnn_tensor_desc *desc) {
  return (uint64_t)desc->dim4 * desc->dim3 * row_blocks(desc) * columns(desc) * PAGE;
}

unsigned dims_of_layout(zdnn_data_layouts layout) {
  static const unsigned dims[] = {1, 2, 2, 3, 3, 0, 4, 4, 4, 4, 0, 4, 0, 0};
  return layout < sizeof dims / sizeof *dims ? dims[layout] : 0;
}

unsigned bytes_of_type(zdnn_data_types type) {
  return type == INT8 ? 1 : type == FP16 || type == BFLOAT ? 2 : 4;
}

uint64_t padded(uint64_t columns) { return (columns + 63) / 64 * 64; }

void *aligned_pages(uint64_t bytes) {
  void *memory = NULL;
  if (bytes == 0 || posix_memalign(&memory, PAGE, bytes) != 0) return NULL;
  return memory;
}
