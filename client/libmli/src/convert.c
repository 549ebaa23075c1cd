/* SPDX-License-Identifier: Apache-2.0 */
/* Data conversion group of MLI 2.0. */
#include <inttypes.h>

#include "checks.h"
#include "fixedpoint.h"
#include "requantise.h"
#include "walk.h"

/* Whether dst describes an innermost stride of 1, also where the rank of src says nothing: its own
 * rank counts if it claims more dimensions, or gives no stride for the innermost one of src. */
static bool claims_inner_dense(const mli_tensor *dst, uint32_t rank) {
  if (!is_inner_dense(dst, rank)) return false;
  const bool own_decides = dst->rank > rank || (rank && dst->mem_stride[rank - 1] == 0);
  return !own_decides || dst->rank > MLI_MAX_RANK || is_inner_dense(dst, dst->rank);
}

/* Constraint 7. */
static mli_status check_in_place(const mli_tensor *src, const mli_tensor *dst) {
  const uint32_t x_size = element_size(src->el_type), y_size = element_size(dst->el_type);
  if (src->data.mem.void_p != dst->data.mem.void_p) return MLI_STATUS_OK;
  REQUIRE(x_size == y_size, MLI_STATUS_INCOMPATEBLE_TENSORS, "convert_tensor_c7",
          "dst.element size is %" PRIu32 ", must be %" PRIu32 " (src, in place)", y_size, x_size);
  REQUIRE(src->rank == dst->rank, MLI_STATUS_INCOMPATEBLE_TENSORS, "convert_tensor_c7",
          "dst.rank is %" PRIu32 ", must be %" PRIu32 " (src, in place)", dst->rank, src->rank);
  for (uint32_t d = 0; d + 1 < src->rank; d++) {
    REQUIRE(src->mem_stride[d] == dst->mem_stride[d], MLI_STATUS_INCOMPATEBLE_TENSORS,
            "convert_tensor_c7",
            "dst.mem_stride is %" PRId32 ", must be %" PRId32 " (src, in place)",
            dst->mem_stride[d], src->mem_stride[d]);
  }
  return MLI_STATUS_OK;
}

/* Constraints 1 to 7: dst is judged in the shape that it is to receive. */
static mli_status check_given(const mli_tensor *src, const mli_tensor *dst) {
  PASS(require_valid(src, "src"));
  PASS(require_tensor(dst, "dst", "convert_tensor_c2"));
  PASS(require_layout(dst, "dst", src->shape, src->rank));
  PASS(require_data(dst, "dst", "convert_tensor_c4"));
  REQUIRE(is_inner_dense(src, src->rank), MLI_STATUS_INCOMPATEBLE_TENSORS, "convert_tensor_c5",
          "src.mem_stride is %" PRId32 ", must be 1 or 0 inside",
          src->mem_stride[src->rank - 1]);
  REQUIRE(claims_inner_dense(dst, src->rank), MLI_STATUS_INCOMPATEBLE_TENSORS,
          "convert_tensor_c6", "dst.mem_stride is not dense inside, must be 1 or 0 inside");
  return check_in_place(src, dst);
}

static bool is_supported(mli_element_type type, bool floats) {
  return is_fx(type) || is_sa(type) || (floats && type == MLI_EL_FP_32);
}

static int32_t axis(const mli_tensor *tensor) {
  return is_sa(tensor->el_type) ? tensor->el_params.sa.dim : -1;
}

/* Constraints 8 to 11. */
static mli_status check_types(const mli_tensor *src, const mli_tensor *dst, bool floats) {
  REQUIRE(axis(src) == axis(dst) || axis(src) < 0 || axis(dst) < 0, MLI_STATUS_SIZE_MISMATCH,
          "convert_tensor_c8", "dst.dim is %" PRId32 ", must be %" PRId32 " (src)", axis(dst),
          axis(src));
  const mli_tensor *tensors[] = {src, dst};
  const char *const names[] = {"src", "dst"};
  for (int i = 0; i < 2; i++) {
    REQUIRE(is_supported(tensors[i]->el_type, floats), MLI_STATUS_TYPE_MISMATCH,
            "convert_tensor_c9", "%s.el_type is %#x, must be FX_8, FX_16, SA_8, SA_32%s",
            names[i], (unsigned)tensors[i]->el_type, floats ? ", FP_32" : "");
  }
  for (int i = 0; i < 2; i++) {
    PASS(require_el_params(tensors[i], names[i], src->shape, src->rank, "convert_tensor_c10"));
  }
  for (uint32_t slice = 0; is_sa(dst->el_type) && slice < sa_length(dst); slice++) {
    REQUIRE(sa_scale(dst, slice) != 0, MLI_STATUS_BAD_TENSOR, "convert_tensor_c11",
            "dst.scale is 0, must be not 0");
  }
  return MLI_STATUS_OK;
}

/* Constraints 12 to 14. */
static mli_status check_memory(const mli_tensor *src, const mli_tensor *dst) {
  const uint64_t x_bytes = reach_bytes(src, src->shape, src->rank);
  const uint64_t y_bytes = reach_bytes(dst, src->shape, src->rank);
  PASS(require_capacity(src, "src", x_bytes, "convert_tensor_c12"));
  PASS(require_capacity(dst, "dst", y_bytes, "convert_tensor_c12"));
  if (src->data.mem.void_p != dst->data.mem.void_p) {
    const extent written[] = {{"dst", dst, y_bytes}}, read[] = {{"src", src, x_bytes}};
    PASS(require_apart(written, 1, read, 1, false, "convert_tensor_c13"));
  }
  REQUIRE(CONVERSION != CONVERSION_LIBRARY_2_0_EA || ROUND_MODE == ROUND_MODE_CONVERGENT,
          MLI_STATUS_NOT_SUPPORTED, "convert_tensor_c14", "rounding is up, must be convergent");
  return MLI_STATUS_OK;
}

/* The quantisation of the element at a place; a tensor without one has scale 1. */
static quantisation quantisation_of(const mli_tensor *tensor, const walk *place) {
  quantisation numbers = {0, 1, 0, 8 * (int)element_size(tensor->el_type)};
  if (is_fx(tensor->el_type)) numbers.frac_bits = tensor->el_params.fx.frac_bits;
  if (!is_sa(tensor->el_type)) return numbers;
  const int32_t dim = tensor->el_params.sa.dim;
  const uint32_t slice = dim >= 0 && (uint32_t)dim < place->rank ? place->at[dim] : 0;
  numbers.zero = sa_zero_point(tensor, slice);
  numbers.scale = sa_scale(tensor, slice);
  numbers.frac_bits = sa_scale_frac_bits(tensor, slice);
  return numbers;
}

/* Converts the element at a place. */
static void convert_element(
    const mli_tensor *src, const mli_tensor *dst, const walk *place, const void *from, void *to) {
  const quantisation source = quantisation_of(src, place), target = quantisation_of(dst, place);
  const bool floats = dst->el_type == MLI_EL_FP_32;
  float value;
  if (src->el_type == MLI_EL_FP_32 && floats) {
    memmove(to, from, sizeof value);
  } else if (src->el_type == MLI_EL_FP_32) {
    memcpy(&value, from, sizeof value);
    store(to, element_size(dst->el_type), 0, from_float(value, &target));
  } else if (floats) {
    value = to_float(load(from, element_size(src->el_type), 0), &source);
    memcpy(to, &value, sizeof value);
  } else {
    const int64_t x = load(from, element_size(src->el_type), 0);
    store(to, element_size(dst->el_type), 0, requantise(x, &source, &target));
  }
}

static mli_status convert(const mli_tensor *src, mli_tensor *dst, bool floats) {
  PASS(check_given(src, dst));
  PASS(check_types(src, dst, floats));
  PASS(check_memory(src, dst));
  walk place = walk_over(src->shape, src->rank);
  const layout from = layout_of(src, &place), to = layout_of(dst, &place);
  do {
    convert_element(src, dst, &place, element(&from, &place), element(&to, &place));
  } while (advance(&place));
  for (uint32_t d = 0; d < src->rank; d++) dst->shape[d] = src->shape[d];
  dst->rank = src->rank;
  return MLI_STATUS_OK;
}

mli_status mli_hlp_convert_tensor(const mli_tensor *src, mli_tensor *dst) {
  return answer(convert(src, dst, true));
}

mli_status mli_hlp_convert_tensor_safx(const mli_tensor *src, mli_tensor *dst) {
  return answer(convert(src, dst, false));
}
