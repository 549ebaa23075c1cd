/* SPDX-License-Identifier: Apache-2.0 */
/* Fully connected kernels of MLI 1.x. */
#include "dense.h"

#include <inttypes.h>

#include "fixedpoint.h"

const variant FX8 = {MLI_EL_FX_8, MLI_EL_FX_8, 32};
const variant FX16 = {MLI_EL_FX_16, MLI_EL_FX_16, 40};
const variant FX8W16D = {MLI_EL_FX_16, MLI_EL_FX_8, 32};

int64_t align(int64_t x, int64_t shift, const variant *kind) {
  const int bits = kind->accumulator_bits;
  return bits == 40 ? scale_floored(x, shift, bits) : scale_rounded(x, shift, bits);
}

int64_t aligned_bias(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, uint64_t index,
    const variant *kind) {
  const int64_t value = load(bias->data.mem.void_p, element_size(kind->weights), index);
  return align(value, frac_bits(bias) - frac_bits(in) - frac_bits(weights), kind);
}

mli_status accumulate(
    int64_t *sum, const void *x, const void *w, uint64_t n, const variant *kind,
    const char *constraint) {
  const uint32_t x_size = element_size(kind->io), w_size = element_size(kind->weights);
  const int bits = kind->accumulator_bits;
  int64_t total = *sum;
  for (uint64_t i = 0; i < n; i++) {
    total += load(x, x_size, i) * load(w, w_size, i);
    REQUIRE(MLI_DEBUG_MODE != DBG_MODE_FULL || saturate(total, bits) == total,
            MLI_STATUS_NOT_SUPPORTED, constraint,
            "partial sum is beyond %d bits, must be within %d bits", bits, bits);
    if (ACCUMULATOR == ACCUMULATOR_HARDWARE && bits == 40) total = saturate(total, bits);
  }
  *sum = ACCUMULATOR == ACCUMULATOR_HARDWARE ? wrap(total, bits) : total;
  return MLI_STATUS_OK;
}

void fill(mli_tensor *out, const uint32_t *shape, uint32_t rank, const variant *kind) {
  for (uint32_t d = 0; d < rank; d++) out->shape[d] = shape[d];
  out->rank = rank;
  out->el_type = kind->io;
}

/* Constraints 1 to 5. */
static mli_status check_given(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, const mli_tensor *out,
    const variant *kind) {
  const mli_tensor *tensors[] = {in, weights, bias};
  const char *const names[] = {"in", "weights", "bias"};
  for (int i = 0; i < 3; i++) PASS(require_tensor(tensors[i], names[i], "fully_connected_c1"));
  PASS(require_fx_type(in, "in", kind->io, "fully_connected_c2"));
  PASS(require_fx_type(weights, "weights", kind->weights, "fully_connected_c2"));
  PASS(require_fx_type(bias, "bias", kind->weights, "fully_connected_c2"));
  PASS(require_bias_precision(in, weights, bias, "fully_connected_c3"));
  for (int i = 0; i < 3; i++) {
    PASS(require_valid(tensors[i], names[i]));
    PASS(require_frac_bits(tensors[i], names[i], "tensor_c9"));
  }
  PASS(require_tensor(out, "out", "fully_connected_c5"));
  return require_data(out, "out", "fully_connected_c5");
}

/* Constraints 6 to 9. */
static mli_status check_shapes(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias) {
  PASS(require_equal("fully_connected_c6", "weights.rank", weights->rank, 2));
  PASS(require_equal("fully_connected_c7", "bias.rank", bias->rank, 1));
  REQUIRE(count(in) == weights->shape[1], MLI_STATUS_SHAPE_MISMATCH, "fully_connected_c8",
          "in element count is %" PRIu64 ", must be %" PRIu32 " (weights)", count(in),
          weights->shape[1]);
  REQUIRE(bias->shape[0] == weights->shape[0], MLI_STATUS_SHAPE_MISMATCH, "fully_connected_c9",
          "bias.shape[0] is %" PRIu32 ", must be %" PRIu32 " (weights)", bias->shape[0],
          weights->shape[0]);
  return MLI_STATUS_OK;
}

/* Constraints 10 to 17. */
static mli_status check_memory(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, const mli_tensor *out,
    const variant *kind) {
  const uint64_t bytes = times(weights->shape[0], element_size(kind->io));
  const uint64_t reach = reach_bytes(weights, weights->shape, 2);
  PASS(require_contiguous(in, "in", "fully_connected_c10"));
  REQUIRE(is_inner_dense(weights, 2), MLI_STATUS_INCOMPATEBLE_TENSORS, "fully_connected_c11",
          "weights.mem_stride is %" PRId32 ", must be 1 or 0 inside", weights->mem_stride[1]);
  PASS(require_contiguous(bias, "bias", "fully_connected_c12"));
  PASS(require_contiguous_output(out, 1, "fully_connected_c13"));
  PASS(require_capacity(out, "out", bytes, "fully_connected_c14"));
  PASS(require_capacity(weights, "weights", reach, "fully_connected_c15"));
  PASS(require_frac_bits(out, "out", "fully_connected_c16"));
  const extent written[] = {{"out", out, bytes}};
  const extent read[] = {
      {"in", in, used_bytes(in)}, {"weights", weights, reach}, {"bias", bias, used_bytes(bias)}};
  return require_apart(written, 1, read, 3, false, "fully_connected_c17");
}

/* The sum is exact (ACCUMULATOR); alignment of the bias and the value stored saturate. */
static mli_status fully_connected(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, mli_tensor *out,
    const variant *kind) {
  PASS(check_given(in, weights, bias, out, kind));
  PASS(check_shapes(in, weights, bias));
  PASS(check_memory(in, weights, bias, out, kind));
  const uint32_t m = weights->shape[0], n = weights->shape[1];
  const int shift = frac_bits(in) + frac_bits(weights) - frac_bits(out);
  uint64_t strides[2];
  derive_strides(weights->shape, weights->mem_stride, 2, strides);
  for (uint32_t row = 0; row < m; row++) {
    const char *w = (const char *)weights->data.mem.void_p +
                    row * strides[0] * element_size(kind->weights);
    int64_t sum = aligned_bias(in, weights, bias, row, kind);
    PASS(accumulate(&sum, in->data.mem.void_p, w, n, kind, "fully_connected_c18"));
    store(io_at(out, kind, row), element_size(kind->io), 0,
          scale_rounded(sum, shift, io_bits(kind)));
  }
  fill(out, &m, 1, kind);
  return MLI_STATUS_OK;
}

#define FULLY_CONNECTED(name, kind) \
  mli_status mli_krn_fully_connected_##name( \
      const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, mli_tensor *out) { \
    return answer(fully_connected(in, weights, bias, out, &kind)); \
  }

FULLY_CONNECTED(fx8, FX8)
FULLY_CONNECTED(fx16, FX16)
FULLY_CONNECTED(fx8w16d, FX8W16D)
