/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs share: a matrix as a ztensor, and an end with a word where a status is bad. */
#ifndef ZTENSORS_H
#define ZTENSORS_H

#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

static inline void must(zdnn_status status, const char *what) {
  if (status != ZDNN_OK) {
    fprintf(stderr, "%s: %s\n", what, zdnn_get_status_message(status));
    exit(1);
  }
}

typedef struct {
  zdnn_tensor_desc pre, tfrmd;
  zdnn_ztensor ztensor;
} matrix;

static inline void allocate(matrix *of, uint32_t rows, uint32_t columns) {
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &of->pre, rows, columns);
  must(zdnn_generate_transformed_desc(&of->pre, &of->tfrmd), "describe");
  must(zdnn_init_ztensor_with_malloc(&of->pre, &of->tfrmd, &of->ztensor), "allocate");
}

static inline void release(matrix *of) {
  must(zdnn_free_ztensor_buffer(&of->ztensor), "free");
}

#endif
