/* SPDX-License-Identifier: Apache-2.0 */
/* Helper functions group of MLI 2.0: facts about a tensor, and slices of it. */
#include <inttypes.h>

#include "checks.h"

uint32_t mli_hlp_tensor_element_size(const mli_tensor *in) {
  const uint32_t size = in ? element_size(in->el_type) : 0;
  if (!size) {
    refuse(MLI_STATUS_ARGUMENT_ERROR, "tensor_element_size_c1",
           "in.el_type is %#x, must be a supported type", in ? (unsigned)in->el_type : 0);
  }
  return size;
}

uint32_t mli_hlp_count_elem_num(const mli_tensor *in, uint32_t start_dim) {
  const uint32_t rank = in ? in->rank : MLI_MAX_RANK + 1;
  uint32_t elements = 1;
  if (rank > MLI_MAX_RANK) {
    refuse(MLI_STATUS_ARGUMENT_ERROR, "count_elem_num_c1",
           "in.rank is %" PRIu32 ", must be in 0..%d", rank, MLI_MAX_RANK);
    return 0;
  }
  if (start_dim > rank) {
    refuse(MLI_STATUS_ARGUMENT_ERROR, "count_elem_num_c2",
           "start_dim is %" PRIu32 ", must be in 0..%" PRIu32, start_dim, rank);
    return 0;
  }
  for (uint32_t d = start_dim; d < rank; d++) elements *= in->shape[d];
  return elements;
}

/* Whether a tensor has a valid data format, and, if per axis, slice idx. */
static bool has_format(const mli_tensor *in, uint32_t idx, const char *constraint) {
  const bool sa = in && is_sa(in->el_type) && in->el_params.sa.type == MLI_EL_PARAM_SC16_ZP16;
  if (!sa && !(in && (is_fx(in->el_type) || in->el_type == MLI_EL_FP_32))) {
    refuse(MLI_STATUS_ARGUMENT_ERROR, constraint,
           "in.el_type is %#x, must be a type with parameters of its kind",
           in ? (unsigned)in->el_type : 0);
    return false;
  }
  if (sa && in->el_params.sa.dim >= 0 && idx >= sa_length(in)) {
    refuse(MLI_STATUS_ARGUMENT_ERROR, constraint, "idx is %" PRIu32 ", must be below %" PRIu32,
           idx, sa_length(in));
    return false;
  }
  return true;
}

int16_t(mli_hlp_tensor_scale)(const mli_tensor *in, uint32_t idx) {
  if (!has_format(in, idx, "tensor_scale_c1")) return 0;
  return is_sa(in->el_type) ? sa_scale(in, idx) : 1;
}

int16_t(mli_hlp_tensor_scale_shift)(const mli_tensor *in, uint32_t idx) {
  if (!has_format(in, idx, "tensor_scale_shift_c1")) return 0;
  if (is_sa(in->el_type)) return sa_scale_frac_bits(in, idx);
  return is_fx(in->el_type) ? in->el_params.fx.frac_bits : 0;
}

int16_t(mli_hlp_tensor_zero_offset)(const mli_tensor *in, uint32_t idx) {
  if (!has_format(in, idx, "tensor_zero_offset_c1")) return 0;
  return is_sa(in->el_type) ? sa_zero_point(in, idx) : 0;
}

/* Constraints 4 to 6, and 8. */
static mli_status check_slice(const mli_tensor *in, const mli_subtensor_cfg *cfg) {
  const uint32_t rank = in->rank, *shape = in->shape;
  uint32_t units = 0;
  REQUIRE(cfg->sub_tensor_rank <= rank, MLI_STATUS_BAD_FUNC_CFG, "subtensor_c4",
          "cfg.sub_tensor_rank is %" PRIu32 ", must be in 0..%" PRIu32, cfg->sub_tensor_rank, rank);
  for (uint32_t d = 0; d < rank; d++) {
    const uint64_t start = cfg->offset[d], end = start + cfg->size[d];
    REQUIRE(start < shape[d], MLI_STATUS_BAD_FUNC_CFG, "subtensor_c5",
            "cfg.offset[%" PRIu32 "] is %" PRIu64 ", must be below %" PRIu32, d, start, shape[d]);
    REQUIRE(end <= shape[d], MLI_STATUS_BAD_FUNC_CFG, "subtensor_c6",
            "cfg.offset[%" PRIu32 "] + cfg.size[%" PRIu32 "] is %" PRIu64
            ", must be at most %" PRIu32, d, d, end, shape[d]);
  }
  for (uint32_t d = 0; d < rank; d++) {
    REQUIRE(cfg->size[d] > 0, MLI_STATUS_BAD_FUNC_CFG, "subtensor_c7",
            "cfg.size is 0 in dimension %" PRIu32 ", must be 1 or more", d);
    units += cfg->size[d] == 1;
  }
  REQUIRE(units >= rank - cfg->sub_tensor_rank, MLI_STATUS_BAD_FUNC_CFG, "subtensor_c8",
          "dimensions of size 1 is %" PRIu32 ", must be at least %" PRIu32
          " to reach sub_tensor_rank %" PRIu32, units, rank - cfg->sub_tensor_rank,
          cfg->sub_tensor_rank);
  return MLI_STATUS_OK;
}

static mli_status check_subtensor(
    const mli_tensor *in, const mli_subtensor_cfg *cfg, const mli_tensor *out) {
  PASS(require_valid(in, "in"));
  PASS(require_tensor(out, "out", "subtensor_c2"));
  REQUIRE(cfg, MLI_STATUS_BAD_FUNC_CFG, "subtensor_c3", "cfg is NULL, must be a configuration");
  PASS(check_slice(in, cfg));
  REQUIRE(element_size(in->el_type), MLI_STATUS_NOT_SUPPORTED, "subtensor_c9",
          "in.el_type is %#x, must be a supported type", (unsigned)in->el_type);
  return require_el_params(in, "in", in->shape, in->rank, "subtensor_c10");
}

/* Cuts a parameter array to a slice of the axis; a dropped axis leaves one value in its place. */
static void cut(mli_data_container *values, uint32_t size, uint32_t start, uint32_t length) {
  values->mem.pi8 += (uint64_t)start * size;
  values->capacity = length * size;
}

static void slice_params(
    mli_tensor *out, const mli_tensor *in, const mli_subtensor_cfg *cfg, int32_t axis) {
  const int32_t dim = in->el_params.sa.dim;
  const uint32_t start = cfg->offset[dim], length = cfg->size[dim];
  if (axis >= 0) {
    out->el_params.sa.dim = axis;
    cut(&out->el_params.sa.zero_point, 2, start, length);
    cut(&out->el_params.sa.scale, 2, start, length);
    cut(&out->el_params.sa.scale_frac_bits, 1, start, length);
    return;
  }
  mli_element_params *params = &out->el_params;
  params->sa.dim = -1;
  params->sa.zero_point = (mli_data_container){.mem = {.i16 = sa_zero_point(in, start)}};
  params->sa.scale = (mli_data_container){.mem = {.i16 = sa_scale(in, start)}};
  params->sa.scale_frac_bits = (mli_data_container){.mem = {.i8 = sa_scale_frac_bits(in, start)}};
}

/* Writes every field of `slice`, a copy of in. */
static void point(mli_tensor *slice, const mli_tensor *in, const mli_subtensor_cfg *cfg) {
  uint64_t strides[MLI_MAX_RANK];
  int32_t axis = -1;
  uint32_t rank = 0, drop = in->rank - cfg->sub_tensor_rank;
  derive_strides(in->shape, in->mem_stride, in->rank, strides);
  for (uint32_t d = 0; d < in->rank; d++) {
    if (drop && cfg->size[d] == 1) {
      drop--;
      continue;
    }
    if (is_sa(in->el_type) && in->el_params.sa.dim == (int32_t)d) axis = (int32_t)rank;
    slice->shape[rank] = cfg->size[d];
    /* A stride that its field cannot hold belongs to a dimension of size 1. */
    slice->mem_stride[rank++] = strides[d] > INT32_MAX ? 0 : (int32_t)strides[d];
  }
  slice->rank = rank;
  for (; rank < MLI_MAX_RANK; rank++) slice->shape[rank] = 0, slice->mem_stride[rank] = 0;
  const int32_t dim = is_sa(in->el_type) ? in->el_params.sa.dim : -1;
  if (dim >= 0 && (uint32_t)dim < in->rank) slice_params(slice, in, cfg, axis);
}

static mli_status subtensor(
    const mli_tensor *in, const mli_subtensor_cfg *cfg, mli_tensor *out) {
  PASS(check_subtensor(in, cfg, out));
  uint64_t strides[MLI_MAX_RANK], moved = 0;
  derive_strides(in->shape, in->mem_stride, in->rank, strides);
  for (uint32_t d = 0; d < in->rank; d++) moved += times(cfg->offset[d], strides[d]);
  moved = times(moved, element_size(in->el_type));
  PASS(require_capacity(in, "in", moved, "subtensor_c11"));
  mli_tensor slice = *in;
  slice.data.mem.pi8 += moved;
  slice.data.capacity -= (uint32_t)moved;
  point(&slice, in, cfg);
  *out = slice;
  return MLI_STATUS_OK;
}

mli_status mli_hlp_subtensor(
    const mli_tensor *in, const mli_subtensor_cfg *cfg, mli_tensor *out) {
  return answer(subtensor(in, cfg, out));
}

mli_status mli_hlp_create_subtensor(
    const mli_tensor *in, const mli_sub_tensor_cfg *cfg, mli_tensor *out) {
  return mli_hlp_subtensor(in, cfg, out);
}
