/* SPDX-License-Identifier: Apache-2.0 */
/* What descriptors must be, in the order in which the library looks. */
#include "library.h"

bool one_of(unsigned value, unsigned count, ...) {
  bool member = false;
  va_list list;
  va_start(list, count);
  for (unsigned i = 0; i < count; i++) member = va_arg(list, unsigned) == value || member;
  va_end(list);
  return member;
}

static bool feature_layout(zdnn_data_layouts layout) {
  return one_of(layout, 5, ZDNN_NHWC, ZDNN_FICO, ZDNN_ZRH, ZDNN_BIDIR_FICO, ZDNN_BIDIR_ZRH);
}

static bool program_layout(zdnn_data_layouts layout) {
  return one_of(layout, 9, ZDNN_1D, ZDNN_2D, ZDNN_2DS, ZDNN_3D, ZDNN_3DS, ZDNN_4D, ZDNN_4DS,
                ZDNN_NHWC, ZDNN_NCHW);
}

static bool float_type(zdnn_data_types type) { return one_of(type, 3, FP32, FP16, BFLOAT); }

zdnn_status verify_dimensions(const zdnn_tensor_desc *desc) {
  const uint32_t dims[] = {desc->dim4, desc->dim3, desc->dim2, desc->dim1};
  for (uint8_t i = 0; i < 4; i++) {
    uint32_t largest = zdnn_get_max_for_dim((uint8_t)(4 - i));
    if (dims[i] == 0) return ZDNN_INVALID_SHAPE;
    if (dims[i] > largest) return largest == 0 ? ZDNN_UNSUPPORTED_AIU_EXCEPTION : ZDNN_INVALID_SHAPE;
  }
  bool fits = zdnn_getsize_ztensor(desc) <= zdnn_get_nnpa_max_tensor_size();
  return fits ? ZDNN_OK : ZDNN_INVALID_SHAPE;
}

zdnn_status verify_for_allocation(const zdnn_tensor_desc *desc) {
  switch (desc->format) {
    case ZDNN_FORMAT_4DFEATURE:
      if (!feature_layout(desc->layout)) return ZDNN_INVALID_LAYOUT;
      if (!one_of(desc->type, 3, ZDNN_DLFLOAT16, ZDNN_BINARY_INT8, ZDNN_BINARY_INT32))
        return ZDNN_INVALID_TYPE;
      break;
    case ZDNN_FORMAT_4DKERNEL:
      if (desc->type != ZDNN_DLFLOAT16) return ZDNN_INVALID_TYPE;
      if (desc->layout != ZDNN_HWCK) return ZDNN_INVALID_LAYOUT;
      break;
    case ZDNN_FORMAT_4DWEIGHTS:
      if (desc->type != ZDNN_BINARY_INT8) return ZDNN_INVALID_TYPE;
      if (desc->layout != ZDNN_NHWC) return ZDNN_INVALID_LAYOUT;
      break;
    default:
      return ZDNN_INVALID_FORMAT;
  }
  return verify_dimensions(desc);
}

zdnn_status verify_for_sticks(const zdnn_ztensor *ztensor) {
  const zdnn_tensor_desc *pre = ztensor->pre_transformed_desc, *desc = ztensor->transformed_desc;
  switch (desc->format) {
    case ZDNN_FORMAT_4DFEATURE:
      if (!feature_layout(desc->layout)) return ZDNN_INVALID_LAYOUT;
      if (desc->type != ZDNN_DLFLOAT16) return ZDNN_INVALID_TYPE;
      if (!program_layout(pre->layout)) return ZDNN_INVALID_LAYOUT;
      break;
    case ZDNN_FORMAT_4DKERNEL:
      if (desc->type != ZDNN_DLFLOAT16) return ZDNN_INVALID_TYPE;
      if (desc->layout != ZDNN_HWCK || pre->layout != ZDNN_HWCK) return ZDNN_INVALID_LAYOUT;
      break;
    default:
      return ZDNN_INVALID_FORMAT;
  }
  return float_type(pre->type) ? verify_dimensions(desc) : ZDNN_INVALID_TYPE;
}

zdnn_status verify_for_array(const zdnn_ztensor *ztensor) {
  const zdnn_tensor_desc *pre = ztensor->pre_transformed_desc, *desc = ztensor->transformed_desc;
  if (desc->format != ZDNN_FORMAT_4DFEATURE) return ZDNN_INVALID_FORMAT;
  switch (desc->type) {
    case ZDNN_DLFLOAT16:
      if (!one_of(desc->layout, 3, ZDNN_NHWC, ZDNN_BIDIR_FICO, ZDNN_BIDIR_ZRH))
        return ZDNN_INVALID_LAYOUT;
      if (!float_type(pre->type)) return ZDNN_INVALID_TYPE;
      break;
    case ZDNN_BINARY_INT32:
      if (desc->layout != ZDNN_NHWC) return ZDNN_INVALID_LAYOUT;
      if (pre->type != INT32) return ZDNN_INVALID_TYPE;
      break;
    default:
      return ZDNN_INVALID_TYPE;
  }
  return program_layout(pre->layout) ? verify_dimensions(desc) : ZDNN_INVALID_LAYOUT;
}
