/* SPDX-License-Identifier: Apache-2.0 */
#include "recurrent.h"

#include <inttypes.h>

#include "fixedpoint.h"

uint64_t frames_of(const call *arguments) {
  return arguments->cfg->mode == RNN_ONE_TO_ONE ? 1 : arguments->in->shape[0];
}

uint64_t frame_length(const call *arguments) {
  const mli_tensor *in = arguments->in;
  return arguments->cfg->mode == RNN_ONE_TO_ONE ? count(in) : product(in->shape, 1, in->rank);
}

uint64_t outputs_of(const call *arguments) {
  return arguments->cfg->mode == RNN_BATCH_TO_BATCH ? frames_of(arguments) : 1;
}

mli_status require_valid_inputs(const call *arguments) {
  PASS(require_valid(arguments->in, "in"));
  PASS(require_valid(arguments->prev_out, "prev_out"));
  PASS(require_valid(arguments->weights, "weights"));
  return require_valid(arguments->bias, "bias");
}

mli_status require_contiguous_inputs(const call *arguments, const char *constraint) {
  PASS(require_contiguous(arguments->in, "in", constraint));
  PASS(require_contiguous(arguments->prev_out, "prev_out", constraint));
  PASS(require_contiguous(arguments->weights, "weights", constraint));
  return require_contiguous(arguments->bias, "bias", constraint);
}

mli_status require_known_cfg(const mli_rnn_cell_cfg *cfg, const char *constraint) {
  const int mode = (int)cfg->mode, act = (int)cfg->act;
  REQUIRE(mode >= RNN_ONE_TO_ONE && mode <= RNN_BATCH_TO_LAST, MLI_STATUS_BAD_FUNC_CFG, constraint,
          "cfg.mode is %d, must be in 0..2", mode);
  REQUIRE(act >= RNN_ACT_NONE && act <= RNN_ACT_SIGM, MLI_STATUS_BAD_FUNC_CFG, constraint,
          "cfg.act is %d, must be in 0..2", act);
  return MLI_STATUS_OK;
}

mli_status require_sequence(const call *arguments, const char *constraint) {
  const uint32_t rank = arguments->in->rank;
  REQUIRE(arguments->cfg->mode == RNN_ONE_TO_ONE || rank >= 2, MLI_STATUS_BAD_FUNC_CFG, constraint,
          "in.rank is %" PRIu32 ", must be 2 or more in a batch mode", rank);
  return MLI_STATUS_OK;
}

mli_status require_one_type(
    const mli_tensor *a, const char *a_name, const mli_tensor *b, const char *b_name,
    const char *constraint) {
  REQUIRE(a->el_type == b->el_type, MLI_STATUS_TYPE_MISMATCH, constraint,
          "%s.el_type is %#x, must be %#x (%s)", a_name, (unsigned)a->el_type,
          (unsigned)b->el_type, b_name);
  return MLI_STATUS_OK;
}

mli_status require_variant(const call *arguments, const char *constraint) {
  const variant *kind = arguments->kind;
  PASS(require_fx_type(arguments->in, "in", kind->io, constraint));
  PASS(require_fx_type(arguments->prev_out, "prev_out", kind->io, constraint));
  PASS(require_fx_type(arguments->weights, "weights", kind->weights, constraint));
  PASS(require_fx_type(arguments->bias, "bias", kind->weights, constraint));
  PASS(require_frac_bits(arguments->in, "in", "tensor_c9"));
  PASS(require_frac_bits(arguments->prev_out, "prev_out", "tensor_c9"));
  PASS(require_frac_bits(arguments->weights, "weights", "tensor_c9"));
  return require_frac_bits(arguments->bias, "bias", "tensor_c9");
}

void remark_out_frac_bits(const call *arguments, const char *constraint) {
  const int bits = frac_bits(arguments->out), state_bits = frac_bits(arguments->prev_out);
  if (arguments->cfg->act == RNN_ACT_NONE && bits != state_bits) {
    remark(constraint, "out.el_params.fx.frac_bits is %d, must be %d (prev_out)", bits, state_bits);
  }
}

mli_status dense_step(
    const call *arguments, uint64_t frame, const void *state, int out_bits, void *results,
    const char *constraint) {
  const mli_tensor *in = arguments->in, *weights = arguments->weights;
  const variant *kind = arguments->kind;
  const uint64_t n = frame_length(arguments), m = count(arguments->prev_out);
  const int state_bits = frac_bits(arguments->prev_out), weight_bits = frac_bits(weights);
  const char *w = weights->data.mem.void_p;
  for (uint64_t row = 0; row < count(arguments->bias); row++) {
    int64_t sum = aligned_bias(in, weights, arguments->bias, row, kind);
    PASS(accumulate(&sum, io_at(in, kind, frame * n), w, n, kind, constraint));
    w += n * element_size(kind->weights);
    sum = align(sum, frac_bits(in) - state_bits, kind);
    PASS(accumulate(&sum, state, w, m, kind, constraint));
    w += m * element_size(kind->weights);
    store(results, element_size(kind->io), row,
          scale_rounded(sum, state_bits + weight_bits - out_bits, io_bits(kind)));
  }
  return MLI_STATUS_OK;
}
