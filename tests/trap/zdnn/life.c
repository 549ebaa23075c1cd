/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a ztensor. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

void zdnn_init_ztensor(zdnn_tensor_desc *pre, zdnn_tensor_desc *transformed,
                       zdnn_ztensor *output) {
  output->pre_transformed_desc = pre;
  output->transformed_desc = transformed;
  output->is_transformed = false;
  memset(output->reserved, 0, sizeof output->reserved);
  output->rec_scale = 0;
  output->offset = 0;
  memset(output->reserved2, 0, sizeof output->reserved2);
}

void zdnn_init_quantized_ztensor(zdnn_tensor_desc *pre, zdnn_tensor_desc *transformed,
                                 float scale, float offset, zdnn_ztensor *output) {
  zdnn_init_ztensor(pre, transformed, output);
  output->rec_scale = scale != 0 ? 1 / scale : scale;
  output->offset = offset;
}

zdnn_status zdnn_allochelper_ztensor(zdnn_ztensor *ztensor) {
  zdnn_status status = verify_for_allocation(ztensor->transformed_desc);
  if (status != ZDNN_OK) return status;
  uint64_t size = zdnn_getsize_ztensor(ztensor->transformed_desc);
  ztensor->buffer = aligned_pages(size);
  if (ztensor->buffer == NULL) return ZDNN_ALLOCATION_FAILURE;
  ztensor->buffer_size = size;
  return ZDNN_OK;
}

zdnn_status zdnn_init_ztensor_with_malloc(zdnn_tensor_desc *pre, zdnn_tensor_desc *transformed,
                                          zdnn_ztensor *output) {
  zdnn_init_ztensor(pre, transformed, output);
  return zdnn_allochelper_ztensor(output);
}

zdnn_status zdnn_init_quantized_ztensor_with_malloc(zdnn_tensor_desc *pre,
                                                    zdnn_tensor_desc *transformed, float scale,
                                                    float offset, zdnn_ztensor *output) {
  zdnn_init_quantized_ztensor(pre, transformed, scale, offset, output);
  return zdnn_allochelper_ztensor(output);
}

zdnn_status zdnn_free_ztensor_buffer(const zdnn_ztensor *ztensor) {
  if (ztensor->buffer == NULL) return ZDNN_INVALID_BUFFER;
  free(ztensor->buffer);
  return ZDNN_OK;
}

bool zdnn_is_quantized_ztensor(zdnn_ztensor *ztensor) { return ztensor->rec_scale != 0; }

void zdnn_reset_ztensor(zdnn_ztensor *ztensor) { ztensor->is_transformed = false; }

zdnn_status zdnn_getrange_ztensor(const zdnn_ztensor *ztensor, float *min, float *max) {
  const zdnn_tensor_desc *desc = ztensor->transformed_desc;
  uint16_t least = 0x8000;
  int16_t greatest = 0;
  if (!ztensor->is_transformed) return ZDNN_INVALID_STATE;
  if (desc->layout != ZDNN_NHWC) return ZDNN_INVALID_LAYOUT;
  if (desc->format != ZDNN_FORMAT_4DFEATURE) return ZDNN_INVALID_FORMAT;
  if (desc->type != ZDNN_DLFLOAT16) return ZDNN_INVALID_TYPE;
  place at;
  for (at.e4 = 0; at.e4 < desc->dim4; at.e4++)
    for (at.e3 = 0; at.e3 < desc->dim3; at.e3++)
      for (at.e2 = 0; at.e2 < desc->dim2; at.e2++)
        for (at.e1 = 0; at.e1 < desc->dim1; at.e1++) {
          uint16_t code;
          memcpy(&code, (uint8_t *)ztensor->buffer + cell_offset(desc, at), sizeof code);
          if (code > least) least = code;
          if ((int16_t)code > greatest) greatest = (int16_t)code;
        }
  *min = float_of_dlfloat(least);
  *max = float_of_dlfloat((uint16_t)greatest);
  return ZDNN_OK;
}
