/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: of a program's data, and of the sticks that they become. */
#include "library.h"

void zdnn_init_pre_transformed_desc(zdnn_data_layouts layout, zdnn_data_types type,
                                    zdnn_tensor_desc *desc, ...) {
  if (desc == NULL) return;
  uint32_t *const fields[] = {&desc->dim4, &desc->dim3, &desc->dim2, &desc->dim1};
  unsigned count = dims_of_layout(layout);
  va_list dims;
  desc->layout = layout;
  desc->type = type;
  va_start(dims, desc);
  for (unsigned i = 4 - count; i < 4; i++) *fields[i] = va_arg(dims, uint32_t);
  va_end(dims);
}

static void set(zdnn_tensor_desc *desc, uint32_t dim4, uint32_t dim3, uint32_t dim2,
                uint32_t dim1) {
  desc->dim4 = dim4;
  desc->dim3 = dim3;
  desc->dim2 = dim2;
  desc->dim1 = dim1;
}

/* Sets the dimensions that sticks of a layout have. Returns false for other layouts. */
static bool transform_dims(const zdnn_tensor_desc *pre, zdnn_tensor_desc *desc) {
  switch (pre->layout) {
    case ZDNN_1D:
      return set(desc, 1, 1, 1, pre->dim1), true;
    case ZDNN_2D:
      return set(desc, 1, 1, pre->dim2, pre->dim1), true;
    case ZDNN_2DS:
      return set(desc, pre->dim2, 1, 1, pre->dim1), true;
    case ZDNN_3D:
      return set(desc, 1, pre->dim3, pre->dim2, pre->dim1), true;
    case ZDNN_3DS:
      return set(desc, pre->dim3, 1, pre->dim2, pre->dim1), true;
    case ZDNN_4D:
    case ZDNN_NHWC:
    case ZDNN_HWCK:
      return set(desc, pre->dim4, pre->dim3, pre->dim2, pre->dim1), true;
    case ZDNN_4DS:
      set(desc, pre->dim4, 1, pre->dim2, pre->dim1);
      if (pre->dim3 != 1) desc->dim1 = pre->dim3 * (uint32_t)padded(pre->dim1);
      return true;
    case ZDNN_NCHW:
      return set(desc, pre->dim4, pre->dim2, pre->dim1, pre->dim3), true;
    default:
      return false;
  }
}

zdnn_status zdnn_generate_transformed_desc(const zdnn_tensor_desc *pre, zdnn_tensor_desc *desc) {
  if (!transform_dims(pre, desc)) return ZDNN_INVALID_LAYOUT;
  bool kernel = pre->layout == ZDNN_HWCK;
  desc->layout = kernel ? ZDNN_HWCK : ZDNN_NHWC;
  desc->format = kernel ? ZDNN_FORMAT_4DKERNEL : ZDNN_FORMAT_4DFEATURE;
  if (one_of(pre->type, 3, FP32, FP16, BFLOAT))
    desc->type = ZDNN_DLFLOAT16;
  else if (pre->type == INT32)
    desc->type = ZDNN_BINARY_INT32;
  else
    return ZDNN_INVALID_TYPE;
  return ZDNN_OK;
}

zdnn_status zdnn_generate_quantized_transformed_desc(const zdnn_tensor_desc *pre,
                                                     zdnn_quantized_transform_types kind,
                                                     zdnn_tensor_desc *desc) {
  if (one_of(pre->layout, 3, ZDNN_4DS, ZDNN_NCHW, ZDNN_HWCK) || !transform_dims(pre, desc))
    return ZDNN_INVALID_LAYOUT;
  if (!one_of(pre->type, 4, FP32, FP16, BFLOAT, INT8)) return ZDNN_INVALID_TYPE;
  if (kind > QUANTIZED_WEIGHTS_INT8) return ZDNN_INVALID_TRANSFORM_TYPE;
  desc->layout = ZDNN_NHWC;
  desc->format = kind == QUANTIZED_WEIGHTS_INT8 ? ZDNN_FORMAT_4DWEIGHTS : ZDNN_FORMAT_4DFEATURE;
  desc->type = kind == QUANTIZED_DLFLOAT16 ? ZDNN_DLFLOAT16 : ZDNN_BINARY_INT8;
  return ZDNN_OK;
}

zdnn_status zdnn_generate_transformed_desc_concatenated(const zdnn_tensor_desc *pre,
                                                        zdnn_concat_info info,
                                                        zdnn_tensor_desc *desc) {
  bool bidirectional = CONCAT_USAGE(info) == USAGE_WEIGHTS &&
                       CONCAT_PREV_LAYER(info) == PREV_LAYER_BIDIR;
  bool lstm = CONCAT_RNN_TYPE(info) == RNN_TYPE_LSTM;
  uint32_t columns = (uint32_t)padded(pre->dim1);
  if (!one_of(pre->type, 3, FP32, FP16, BFLOAT)) return ZDNN_INVALID_TYPE;
  if (bidirectional && pre->dim2 % 2 != 0) return ZDNN_INVALID_SHAPE;
  switch (CONCAT_USAGE(info)) {
    case USAGE_BIASES:
    case USAGE_HIDDEN_BIASES:
      if (pre->layout != ZDNN_2DS) return ZDNN_INVALID_LAYOUT;
      set(desc, pre->dim2, 1, 1, columns);
      break;
    case USAGE_WEIGHTS:
    case USAGE_HIDDEN_WEIGHTS:
      if (pre->layout != ZDNN_3DS) return ZDNN_INVALID_LAYOUT;
      set(desc, pre->dim3, 1, pre->dim2, columns);
      if (bidirectional) desc->dim2 = 2 * (uint32_t)padded(pre->dim2 / 2);
      break;
    default:
      return ZDNN_INVALID_CONCAT_INFO;
  }
  if (!lstm && CONCAT_RNN_TYPE(info) != RNN_TYPE_GRU) return ZDNN_INVALID_CONCAT_INFO;
  desc->dim1 *= lstm ? 4 : 3;
  if (bidirectional)
    desc->layout = lstm ? ZDNN_BIDIR_FICO : ZDNN_BIDIR_ZRH;
  else
    desc->layout = lstm ? ZDNN_FICO : ZDNN_ZRH;
  desc->format = ZDNN_FORMAT_4DFEATURE;
  desc->type = ZDNN_DLFLOAT16;
  return ZDNN_OK;
}
