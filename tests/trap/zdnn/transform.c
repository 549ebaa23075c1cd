/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms between a program's arrays and sticks: by the machine where it has
 * NNPA-TRANSFORM and the tensor is large, else by the vector conversions. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

enum { SOFTWARE_ELEMENTS = 2048, SMALL_DIM1 = 2 };
enum { TO_DLFLOAT = 2, TO_INT8 = 6, FROM_DLFLOAT = 129 };
#define SATURATE 0x80000000u

/* Issues NNPA-TRANSFORM between an array of FP32 and sticks of the same dimensions. */
static zdnn_status by_machine(const array *which, const void *data, uint32_t operation,
                              const uint32_t more[4], bool *written) {
  zdnn_tensor_desc dense = *which->transformed, sticks = *which->transformed;
  dense.format = ZDNN_FORMAT_4DGENERIC;
  dense.type = ZDNN_BINARY_FP32;
  zdnn_ztensor generic = {.transformed_desc = &dense, .buffer = (void *)(uintptr_t)data};
  zdnn_ztensor stick = {.transformed_desc = &sticks, .buffer = which->sticks};
  bool back = operation == FROM_DLFLOAT;
  void *save_area = back ? aligned_pages(SAVE_AREA) : NULL;
  if (back && save_area == NULL) return ZDNN_ALLOCATION_FAILURE;
  request asked = {.function = NNPA_TRANSFORM,
                   .format = NNPA_PARMBLKFORMAT_1,
                   .inputs = {back ? &stick : &generic},
                   .outputs = {back ? &generic : &stick},
                   .parameters = {operation},
                   .save_area = save_area};
  if (more != NULL) memcpy(asked.parameters + 1, more, 4 * sizeof *more);
  zdnn_status status = perform(&asked);
  free(save_area);
  if (written != NULL) *written = asked.outputs[0]->is_transformed;
  return status;
}

static bool machine_serves(const array *which) {
  const zdnn_tensor_desc *d = which->transformed;
  return d->layout == ZDNN_NHWC && which->pre->layout != ZDNN_NCHW && which->pre->type == FP32 &&
         function_installed(NNPA_TRANSFORM) &&
         (uint64_t)d->dim3 * d->dim2 * d->dim1 > SOFTWARE_ELEMENTS;
}

zdnn_status sticks_of_data(const array *target, const void *data, bool saturate) {
  if (machine_serves(target))
    return by_machine(target, data, TO_DLFLOAT | (saturate ? SATURATE : 0), NULL, NULL);
  return sticks_by_software(target, data, saturate);
}

static bool buffer_fits(const zdnn_ztensor *ztensor) {
  return ztensor->buffer != NULL && (uintptr_t)ztensor->buffer % PAGE == 0 &&
         ztensor->buffer_size >= zdnn_getsize_ztensor(ztensor->transformed_desc);
}

static array array_of(const zdnn_ztensor *ztensor) {
  return (array){ztensor->pre_transformed_desc, ztensor->transformed_desc, ztensor->buffer};
}

/* Notes that sticks are there after a transform of that status. */
static zdnn_status marked(zdnn_ztensor *ztensor, zdnn_status status) {
  if (status == ZDNN_OK || status == ZDNN_ELEMENT_RANGE_VIOLATION) ztensor->is_transformed = true;
  return status;
}

static zdnn_status ready(const zdnn_ztensor *ztensor) {
  zdnn_status status = verify_for_sticks(ztensor);
  if (status != ZDNN_OK) return status;
  if (!buffer_fits(ztensor)) return ZDNN_INVALID_BUFFER;
  return ztensor->is_transformed ? ZDNN_INVALID_STATE : ZDNN_OK;
}

zdnn_status zdnn_transform_ztensor(zdnn_ztensor *ztensor, ...) {
  const zdnn_tensor_desc *desc = ztensor->transformed_desc;
  zdnn_status status = ready(ztensor);
  if (status != ZDNN_OK) return status;
  array target = array_of(ztensor);
  va_list arrays;
  va_start(arrays, ztensor);
  if (one_of(desc->layout, 2, ZDNN_NHWC, ZDNN_HWCK)) {
    const void *data = va_arg(arrays, const void *);
    bool small = target.pre->layout != ZDNN_NCHW && desc->layout == ZDNN_NHWC &&
                 desc->dim1 <= SMALL_DIM1;
    status = small ? sticks_by_software(&target, data, false) : sticks_of_data(&target, data, false);
  } else {
    bool lstm = one_of(desc->layout, 2, ZDNN_FICO, ZDNN_BIDIR_FICO);
    status = sticks_of_gates(ztensor, lstm ? 4 : 3, arrays);
  }
  va_end(arrays);
  return marked(ztensor, status);
}

zdnn_status zdnn_transform_ztensor_with_saturation(zdnn_ztensor *ztensor, ...) {
  const zdnn_tensor_desc *desc = ztensor->transformed_desc;
  zdnn_status status = ready(ztensor);
  if (status != ZDNN_OK) return status;
  if (!one_of(desc->layout, 2, ZDNN_NHWC, ZDNN_HWCK)) return ZDNN_INVALID_LAYOUT;
  array target = array_of(ztensor);
  va_list arrays;
  va_start(arrays, ztensor);
  status = sticks_of_data(&target, va_arg(arrays, const void *), true);
  va_end(arrays);
  return marked(ztensor, status);
}

/* Copies elements of one byte into sticks. */
static void copy_int8(const zdnn_ztensor *ztensor, const uint8_t *from) {
  const zdnn_tensor_desc *d = ztensor->transformed_desc;
  uint8_t *sticks = ztensor->buffer;
  place at;
  for (at.e4 = 0; at.e4 < d->dim4; at.e4++)
    for (at.e3 = 0; at.e3 < d->dim3; at.e3++)
      for (at.e2 = 0; at.e2 < d->dim2; at.e2++)
        for (at.e1 = 0; at.e1 < d->dim1; at.e1++) sticks[cell_offset(d, at)] = *from++;
}

static uint64_t elements(const zdnn_tensor_desc *d) {
  return (uint64_t)d->dim4 * d->dim3 * d->dim2 * d->dim1;
}

/* Returns a copy in FP32 of an array of FP16, by DLFLOAT16, or of BFLOAT. */
static float *widened(zdnn_data_types type, const void *data, uint64_t count) {
  float *copy = malloc(count * sizeof *copy);
  for (uint64_t i = 0; i < count && copy != NULL; i += 8) {
    const uint16_t *from = (const uint16_t *)data + i;
    unsigned here = count - i < 8 ? (unsigned)(count - i) : 8;
    uint16_t codes[8];
    if (type == FP16) {
      to_dlfloat(codes, FP16, from, 1, here, false);
      from_dlfloat(copy + i, FP32, 1, codes, here);
    }
    for (unsigned k = 0; type == BFLOAT && k < here; k++) {
      uint32_t bits = (uint32_t)from[k] << 16;
      memcpy(copy + i + k, &bits, sizeof bits);
    }
  }
  return copy;
}

/* Equal or crossed clips are the library's to refuse: NNPA-TRANSFORM has no response code for them. */
static zdnn_status quantized(zdnn_ztensor *ztensor, uint32_t operation, int8_t clip_min,
                             int8_t clip_max, const void *data) {
  array target = array_of(ztensor);
  const uint32_t more[4] = {scalar_of(ztensor->rec_scale), scalar_of(ztensor->offset),
                            (uint8_t)clip_min, (uint8_t)clip_max};
  zdnn_data_types type = target.pre->type;
  if (!one_of(type, 3, FP32, FP16, BFLOAT)) return ZDNN_INVALID_TYPE;
  if (clip_min >= clip_max) return ZDNN_INVALID_CLIPPING_VALUE;
  if (type == FP32) return by_machine(&target, data, operation, more, &ztensor->is_transformed);
  float *copy = widened(type, data, elements(target.transformed));
  if (copy == NULL) return ZDNN_ALLOCATION_FAILURE;
  zdnn_status status = by_machine(&target, copy, operation, more, &ztensor->is_transformed);
  free(copy);
  return status;
}

static zdnn_status dlfloat(zdnn_ztensor *ztensor, uint32_t saturate, const void *data) {
  array target = array_of(ztensor);
  zdnn_data_types type = target.pre->type;
  if (type == FP32)
    return by_machine(&target, data, TO_DLFLOAT | saturate, NULL, &ztensor->is_transformed);
  if (type != FP16 && type != BFLOAT) return ZDNN_INVALID_TYPE;
  return marked(ztensor, sticks_by_software(&target, data, false));
}

zdnn_status zdnn_transform_quantized_ztensor(zdnn_ztensor *ztensor, bool saturation_control,
                                             int8_t clip_min, int8_t clip_max, const void *data) {
  const zdnn_tensor_desc *desc = ztensor->transformed_desc, *pre = ztensor->pre_transformed_desc;
  uint32_t saturate = saturation_control ? SATURATE : 0;
  if (!buffer_fits(ztensor)) return ZDNN_INVALID_BUFFER;
  if (ztensor->is_transformed) return ZDNN_INVALID_STATE;
  if (desc->layout != ZDNN_NHWC) return ZDNN_INVALID_LAYOUT;
  if (!one_of(pre->layout, 7, ZDNN_1D, ZDNN_2D, ZDNN_2DS, ZDNN_3D, ZDNN_3DS, ZDNN_4D, ZDNN_NHWC))
    return ZDNN_INVALID_LAYOUT;
  zdnn_status status = verify_dimensions(desc);
  if (status != ZDNN_OK) return status;
  if (!one_of(desc->format, 2, ZDNN_FORMAT_4DFEATURE, ZDNN_FORMAT_4DWEIGHTS))
    return ZDNN_INVALID_FORMAT;
  bool feature = desc->format == ZDNN_FORMAT_4DFEATURE;
  if (feature && desc->type == ZDNN_DLFLOAT16) return dlfloat(ztensor, saturate, data);
  if (desc->type != ZDNN_BINARY_INT8) return ZDNN_INVALID_TYPE;
  if (pre->type == INT8) {
    copy_int8(ztensor, data);
    return marked(ztensor, ZDNN_OK);
  }
  if (!feature) return ZDNN_INVALID_TYPE;
  return quantized(ztensor, TO_INT8 | saturate, clip_min, clip_max, data);
}

/* Copies the first cell of each stick: what index operations of reduce leave. */
static void copy_int32(const zdnn_ztensor *ztensor, uint32_t *to) {
  const zdnn_tensor_desc *d = ztensor->transformed_desc;
  place at = {0, 0, 0, 0};
  for (at.e4 = 0; at.e4 < d->dim4; at.e4++)
    for (at.e3 = 0; at.e3 < d->dim3; at.e3++)
      for (at.e2 = 0; at.e2 < d->dim2; at.e2++)
        memcpy(to++, (uint8_t *)ztensor->buffer + cell_offset(d, at), sizeof *to);
}

zdnn_status zdnn_transform_origtensor(const zdnn_ztensor *ztensor, void *out_buf) {
  zdnn_status status = verify_for_array(ztensor);
  if (status != ZDNN_OK) return status;
  if (ztensor->buffer == NULL || (uintptr_t)ztensor->buffer % PAGE != 0)
    return ZDNN_INVALID_BUFFER;
  if (!ztensor->is_transformed) return ZDNN_INVALID_STATE;
  array source = array_of(ztensor);
  zdnn_tensor_desc desc = *source.transformed;
  if (desc.type == ZDNN_BINARY_INT32) return copy_int32(ztensor, out_buf), ZDNN_OK;
  if (desc.layout != ZDNN_NHWC) return ZDNN_INVALID_LAYOUT;
  bool small = source.pre->layout != ZDNN_NCHW && desc.dim1 <= SMALL_DIM1;
  if (!small && source.pre->layout == ZDNN_4DS && source.pre->dim3 != 1) {
    if (source.pre->dim3 != 2 || source.pre->dim4 != desc.dim4) return ZDNN_INVALID_SHAPE;
    desc.dim4 *= 2;
    desc.dim1 = source.pre->dim1;
    source.transformed = &desc;
  }
  if (!small && machine_serves(&source)) return by_machine(&source, out_buf, FROM_DLFLOAT, NULL, NULL);
  return array_by_software(&source, out_buf);
}
