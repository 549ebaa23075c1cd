/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over all elements of a shape, row by row, and where a tensor has them. */
#ifndef WALK_H
#define WALK_H

#include "checks.h"

/* The coordinate of the present element. */
typedef struct {
  uint32_t shape[MLI_MAX_RANK], at[MLI_MAX_RANK], rank;
} walk;

/* Memory and strides, in bytes, of a tensor. */
typedef struct {
  char *data;
  uint64_t strides[MLI_MAX_RANK];
  uint32_t size;
} layout;

/* A walk at the first element; no dimension is 0. */
static inline walk walk_over(const uint32_t *shape, uint32_t rank) {
  walk place = {.rank = rank};
  for (uint32_t d = 0; d < rank; d++) place.shape[d] = shape[d];
  return place;
}

/* Goes to the next element; false after the last one. */
static inline bool advance(walk *place) {
  for (uint32_t d = place->rank; d-- > 0;) {
    if (++place->at[d] < place->shape[d]) return true;
    place->at[d] = 0;
  }
  return false;
}

/* Where a tensor has the elements of a walk, by its own strides. */
static inline layout layout_of(const mli_tensor *tensor, const walk *place) {
  layout where = {.data = tensor->data.mem.void_p, .size = element_size(tensor->el_type)};
  derive_strides(place->shape, tensor->mem_stride, place->rank, where.strides);
  for (uint32_t d = 0; d < place->rank; d++) where.strides[d] *= where.size;
  return where;
}

static inline void *element(const layout *where, const walk *place) {
  uint64_t offset = 0;
  for (uint32_t d = 0; d < place->rank; d++) offset += place->at[d] * where->strides[d];
  return where->data + offset;
}

#endif
