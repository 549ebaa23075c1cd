/* SPDX-License-Identifier: Apache-2.0 */
#include "checks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t LARGE = UINT64_C(1) << 62;

#define NAMED(status) [status] = #status
static const char *const status_names[] = {
    NAMED(MLI_STATUS_OK),
    NAMED(MLI_STATUS_BAD_TENSOR),
    NAMED(MLI_STATUS_SHAPE_MISMATCH),
    NAMED(MLI_STATUS_INCOMPATEBLE_TENSORS),
    NAMED(MLI_STATUS_BAD_FUNC_CFG),
    NAMED(MLI_STATUS_NOT_ENGH_MEM),
    NAMED(MLI_STATUS_NOT_SUPPORTED),
    NAMED(MLI_STATUS_ARGUMENT_ERROR),
    NAMED(MLI_STATUS_SIZE_MISMATCH),
    NAMED(MLI_STATUS_TYPE_MISMATCH)
};

static void print(mli_status status, const char *constraint, const char *text, va_list values) {
  fprintf(stderr, "%s (%s): ", status_names[status], constraint);
  vfprintf(stderr, text, values);
  fputc('\n', stderr);
}

mli_status refuse(mli_status status, const char *constraint, const char *text, ...) {
  if (MLI_DEBUG_MODE >= DBG_MODE_ASSERT) {
    va_list values;
    va_start(values, text);
    print(status, constraint, text, values);
    va_end(values);
    abort();
  }
  return status;
}

void remark(const char *constraint, const char *text, ...) {
  if (MLI_DEBUG_MODE >= DBG_MODE_DEBUG) {
    va_list values;
    va_start(values, text);
    print(MLI_STATUS_OK, constraint, text, values);
    va_end(values);
  }
}

mli_status answer(mli_status status) {
  return MLI_DEBUG_MODE == DBG_MODE_RELEASE ? MLI_STATUS_OK : status;
}

uint64_t times(uint64_t a, uint64_t b) { return a && b > LARGE / a ? LARGE : a * b; }

uint32_t element_size(mli_element_type type) {
  switch (type) {
    case MLI_EL_FX_8:
    case MLI_EL_SA_8: return 1;
    case MLI_EL_FX_16: return 2;
    case MLI_EL_SA_32:
    case MLI_EL_FP_32: return 4;
    default: return 0;
  }
}

bool is_fx(mli_element_type type) { return type == MLI_EL_FX_8 || type == MLI_EL_FX_16; }

bool is_sa(mli_element_type type) { return type == MLI_EL_SA_8 || type == MLI_EL_SA_32; }

uint64_t product(const uint32_t *shape, uint32_t first, uint32_t last) {
  uint64_t elements = 1;
  for (uint32_t d = first; d < last; d++) elements = times(elements, shape[d]);
  return elements;
}

uint64_t count(const mli_tensor *tensor) {
  return tensor->rank ? product(tensor->shape, 0, tensor->rank) : 0;
}

uint64_t used_bytes(const mli_tensor *tensor) {
  return times(product(tensor->shape, 0, tensor->rank), element_size(tensor->el_type));
}

void derive_strides(
    const uint32_t *shape, const int32_t *strides, uint32_t rank, uint64_t *derived) {
  uint64_t step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    derived[d] = strides[d] ? (uint64_t)strides[d] : step;
    step = times(derived[d], shape[d]);
  }
}

uint64_t reach_bytes(const mli_tensor *tensor, const uint32_t *shape, uint32_t rank) {
  uint64_t strides[MLI_MAX_RANK], elements = 1;
  derive_strides(shape, tensor->mem_stride, rank, strides);
  for (uint32_t d = 0; d < rank; d++) {
    elements += times(shape[d] - 1, strides[d]);
    if (elements > LARGE) elements = LARGE;
  }
  return times(elements, element_size(tensor->el_type));
}

uint32_t sa_length(const mli_tensor *tensor) {
  const mli_data_container *zero = &tensor->el_params.sa.zero_point;
  const mli_data_container *scale = &tensor->el_params.sa.scale;
  const mli_data_container *bits = &tensor->el_params.sa.scale_frac_bits;
  if (tensor->el_params.sa.dim < 0) return 1;
  if (!zero->mem.pi16 || !scale->mem.pi16 || !bits->mem.pi8) return 0;
  uint32_t length = zero->capacity / 2;
  if (scale->capacity / 2 < length) length = scale->capacity / 2;
  return bits->capacity < length ? bits->capacity : length;
}

int16_t sa_zero_point(const mli_tensor *tensor, uint32_t slice) {
  const mli_data_container *zero = &tensor->el_params.sa.zero_point;
  return tensor->el_params.sa.dim < 0 ? zero->mem.i16 : zero->mem.pi16[slice];
}

int16_t sa_scale(const mli_tensor *tensor, uint32_t slice) {
  const mli_data_container *scale = &tensor->el_params.sa.scale;
  return tensor->el_params.sa.dim < 0 ? scale->mem.i16 : scale->mem.pi16[slice];
}

int8_t sa_scale_frac_bits(const mli_tensor *tensor, uint32_t slice) {
  const mli_data_container *bits = &tensor->el_params.sa.scale_frac_bits;
  return tensor->el_params.sa.dim < 0 ? bits->mem.i8 : bits->mem.pi8[slice];
}

mli_status require_tensor(const mli_tensor *tensor, const char *name, const char *constraint) {
  REQUIRE(tensor, MLI_STATUS_BAD_TENSOR, constraint, "%s is NULL, must be a tensor", name);
  return MLI_STATUS_OK;
}

mli_status require_data(const mli_tensor *tensor, const char *name, const char *constraint) {
  REQUIRE(tensor->data.mem.void_p, MLI_STATUS_BAD_TENSOR, constraint,
          "%s.data is NULL, must be a pointer", name);
  return MLI_STATUS_OK;
}

mli_status require_valid(const mli_tensor *tensor, const char *name) {
  PASS(require_tensor(tensor, name, "tensor_c1"));
  REQUIRE(tensor->rank <= MLI_MAX_RANK, MLI_STATUS_BAD_TENSOR, "tensor_c2",
          "%s.rank is %" PRIu32 ", must be in 0..%d", name, tensor->rank, MLI_MAX_RANK);
  PASS(require_layout(tensor, name, tensor->shape, tensor->rank));
  if (is_sa(tensor->el_type) && tensor->el_params.sa.type == MLI_EL_PARAM_SC16_ZP16) {
    for (uint32_t slice = 0; slice < sa_length(tensor); slice++) {
      REQUIRE(sa_scale(tensor, slice) > 0, MLI_STATUS_BAD_TENSOR, "tensor_c7",
              "%s.scale is %d, must be greater than 0", name, sa_scale(tensor, slice));
    }
  }
  return require_data(tensor, name, "tensor_c8");
}

/* Whether all of the first `rank` strides are given; true for rank 0. */
static bool all_given(const int32_t *strides, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    if (!strides[d]) return false;
  }
  return true;
}

/* tensor_c5: each stride covers the dimension inside it. */
static mli_status require_nested(
    const int32_t *strides, const char *name, const uint32_t *shape, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    const uint64_t inner = d + 1 < rank ? times(shape[d + 1], (uint64_t)strides[d + 1]) : 1;
    REQUIRE((uint64_t)strides[d] >= inner, MLI_STATUS_BAD_TENSOR, "tensor_c5",
            "%s.mem_stride is %" PRId32 " in dimension %" PRIu32 ", must be at least %" PRIu64,
            name, strides[d], d, inner);
  }
  return MLI_STATUS_OK;
}

mli_status require_layout(
    const mli_tensor *tensor, const char *name, const uint32_t *shape, uint32_t rank) {
  const int32_t *strides = tensor->mem_stride;
  for (uint32_t d = 0; d < rank; d++) {
    REQUIRE(strides[d] >= 0, MLI_STATUS_BAD_TENSOR, "tensor_c3",
            "%s.mem_stride is %" PRId32 ", must be 0 or more", name, strides[d]);
  }
  for (uint32_t d = 0; d < rank; d++) {
    REQUIRE(shape[d] > 0, MLI_STATUS_BAD_TENSOR, "tensor_c4",
            "%s.shape is 0 in dimension %" PRIu32 ", must be 1 or more", name, d);
  }
  if (!all_given(strides, rank)) {
    const uint64_t bytes = times(product(shape, 0, rank), element_size(tensor->el_type));
    return require_capacity(tensor, name, bytes, "tensor_c6");
  }
  PASS(require_nested(strides, name, shape, rank));
  return require_capacity(tensor, name, reach_bytes(tensor, shape, rank), "tensor_c6");
}

mli_status require_capacity(
    const mli_tensor *tensor, const char *name, uint64_t bytes, const char *constraint) {
  REQUIRE(tensor->data.capacity >= bytes, MLI_STATUS_NOT_ENGH_MEM, constraint,
          "%s.capacity is %" PRIu32 " bytes, must be at least %" PRIu64, name,
          tensor->data.capacity, bytes);
  return MLI_STATUS_OK;
}

mli_status require_el_params(
    const mli_tensor *tensor, const char *name, const uint32_t *shape, uint32_t rank,
    const char *constraint) {
  if (is_fx(tensor->el_type)) {
    const int bits = tensor->el_params.fx.frac_bits;
    REQUIRE(bits >= -128 && bits <= 255, MLI_STATUS_BAD_TENSOR, constraint,
            "%s.el_params.fx.frac_bits is %d, must be in -128..255", name, bits);
  }
  if (!is_sa(tensor->el_type)) return MLI_STATUS_OK;
  const int type = (int)tensor->el_params.sa.type;
  const int32_t dim = tensor->el_params.sa.dim;
  const uint32_t slices = dim >= 0 && (uint32_t)dim < rank ? shape[dim] : 1;
  REQUIRE(type == MLI_EL_PARAM_SC16_ZP16, MLI_STATUS_BAD_TENSOR, constraint,
          "%s.el_params.sa.type is %d, must be %d", name, type, MLI_EL_PARAM_SC16_ZP16);
  REQUIRE(sa_length(tensor) >= slices, MLI_STATUS_BAD_TENSOR, constraint,
          "%s.scale is %" PRIu32 " long, must be %" PRIu32, name, sa_length(tensor), slices);
  return MLI_STATUS_OK;
}

bool is_inner_dense(const mli_tensor *tensor, uint32_t rank) {
  return rank == 0 || tensor->mem_stride[rank - 1] == 0 || tensor->mem_stride[rank - 1] == 1;
}

mli_status require_contiguous(const mli_tensor *tensor, const char *name, const char *constraint) {
  static const int32_t none[MLI_MAX_RANK];
  uint64_t dense[MLI_MAX_RANK];
  if (!all_given(tensor->mem_stride, tensor->rank)) return MLI_STATUS_OK;
  derive_strides(tensor->shape, none, tensor->rank, dense);
  for (uint32_t d = 0; d < tensor->rank; d++) {
    REQUIRE((uint64_t)tensor->mem_stride[d] == dense[d], MLI_STATUS_INCOMPATEBLE_TENSORS,
            constraint, "%s.mem_stride is %" PRId32 ", must be 0 or the dense strides", name,
            tensor->mem_stride[d]);
  }
  return MLI_STATUS_OK;
}

mli_status require_contiguous_output(
    const mli_tensor *out, uint32_t rank, const char *constraint) {
  const int32_t *strides = out->mem_stride;
  REQUIRE(!all_given(strides, rank) || (rank == 1 && strides[0] == 1),
          MLI_STATUS_INCOMPATEBLE_TENSORS, constraint,
          "out.mem_stride is %" PRId32 ", must be 0, or 1 for rank 1", strides[0]);
  return MLI_STATUS_OK;
}

mli_status require_equal(
    const char *constraint, const char *field, uint64_t value, uint64_t limit) {
  REQUIRE(value == limit, MLI_STATUS_SHAPE_MISMATCH, constraint,
          "%s is %" PRIu64 ", must be %" PRIu64, field, value, limit);
  return MLI_STATUS_OK;
}

mli_status require_frac_bits(const mli_tensor *tensor, const char *name, const char *constraint) {
  const int bits = tensor->el_params.fx.frac_bits;
  REQUIRE(bits >= 0 && bits <= 255, MLI_STATUS_BAD_TENSOR, constraint,
          "%s.el_params.fx.frac_bits is %d, must be in 0..255", name, bits);
  return MLI_STATUS_OK;
}

mli_status require_bias_precision(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias,
    const char *constraint) {
  const int bits = bias->el_params.fx.frac_bits;
  const int limit = in->el_params.fx.frac_bits + weights->el_params.fx.frac_bits;
  const bool fx = is_fx(in->el_type) && is_fx(weights->el_type) && is_fx(bias->el_type);
  REQUIRE(!fx || bits <= limit || MLI_DEBUG_MODE == DBG_MODE_RELEASE,
          MLI_STATUS_INCOMPATEBLE_TENSORS, constraint,
          "bias.el_params.fx.frac_bits is %d, must be at most %d (in + weights)", bits, limit);
  return MLI_STATUS_OK;
}

mli_status require_fx_type(
    const mli_tensor *tensor, const char *name, mli_element_type type, const char *constraint) {
  REQUIRE(tensor->el_type == type, MLI_STATUS_TYPE_MISMATCH, constraint,
          "%s.el_type is %#x, must be %#x", name, (unsigned)tensor->el_type, (unsigned)type);
  return MLI_STATUS_OK;
}

bool is_shared(const extent *a, const extent *b) {
  const uintptr_t a_start = (uintptr_t)a->tensor->data.mem.void_p;
  const uintptr_t b_start = (uintptr_t)b->tensor->data.mem.void_p;
  if (!a_start || !b_start || !a->bytes || !b->bytes) return false;
  return a_start < b_start ? b_start - a_start < a->bytes : a_start - b_start < b->bytes;
}

mli_status require_apart(
    const extent *written, size_t n_written, const extent *read, size_t n_read, bool shareable,
    const char *constraint) {
  for (size_t i = 0; i < n_written; i++) {
    const bool out = strcmp(written[i].name, "out") == 0;
    for (size_t j = 0; j < n_read + n_written; j++) {
      const extent *second = j < n_read ? &read[j] : &written[j - n_read];
      if (second == &written[i]) continue;
      if (shareable && out && strcmp(second->name, "prev_out") == 0) continue;
      REQUIRE(!is_shared(&written[i], second), MLI_STATUS_INCOMPATEBLE_TENSORS, constraint,
              "%s is in the memory of %s, must be apart from it", written[i].name, second->name);
    }
  }
  return MLI_STATUS_OK;
}
