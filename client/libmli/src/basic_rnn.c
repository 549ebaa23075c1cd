/* SPDX-License-Identifier: Apache-2.0 */
/* Basic RNN cell of MLI 1.x. */
#include <inttypes.h>
#include <stdlib.h>

#include "activation.h"
#include "fixedpoint.h"
#include "recurrent.h"

/* Constraints 1 to 8. */
static mli_status check_given(const call *arguments) {
  const mli_rnn_cell_cfg *cfg = arguments->cfg;
  PASS(require_valid_inputs(arguments));
  PASS(require_tensor(arguments->out, "out", "basic_rnn_cell_c2"));
  PASS(require_data(arguments->out, "out", "basic_rnn_cell_c2"));
  PASS(require_contiguous_inputs(arguments, "basic_rnn_cell_c3"));
  const uint32_t rank = cfg && cfg->mode == RNN_BATCH_TO_BATCH ? 2 : arguments->bias->rank;
  PASS(require_contiguous_output(arguments->out, rank, "basic_rnn_cell_c4"));
  REQUIRE(cfg, MLI_STATUS_BAD_FUNC_CFG, "basic_rnn_cell_c5",
          "cfg is NULL, must be a configuration");
  PASS(require_known_cfg(cfg, "basic_rnn_cell_c6"));
  if (cfg->mode == RNN_BATCH_TO_LAST) {
    REQUIRE(cfg->ir_tsr, MLI_STATUS_BAD_FUNC_CFG, "basic_rnn_cell_c7",
            "cfg.ir_tsr is NULL, must be a tensor");
    REQUIRE(cfg->ir_tsr->data.mem.void_p, MLI_STATUS_BAD_FUNC_CFG, "basic_rnn_cell_c7",
            "cfg.ir_tsr.data is NULL, must be a pointer");
  }
  return require_sequence(arguments, "basic_rnn_cell_c8");
}

/* Constraints 9 to 14. */
static mli_status check_shapes(const call *arguments) {
  const mli_tensor *prev_out = arguments->prev_out, *weights = arguments->weights;
  const mli_tensor *bias = arguments->bias;
  const bool stacked = arguments->cfg->mode == RNN_ONE_TO_ONE && weights->rank == 3;
  const uint32_t last = stacked ? 2 : 1;
  const uint64_t m = count(prev_out), columns = frame_length(arguments) + m;
  PASS(require_equal("basic_rnn_cell_c9", "weights.rank", weights->rank, last + 1));
  PASS(require_equal("basic_rnn_cell_c10", "bias.rank", bias->rank, last));
  for (uint32_t d = 0; d < last; d++) {
    REQUIRE(weights->shape[d] == bias->shape[d], MLI_STATUS_SHAPE_MISMATCH, "basic_rnn_cell_c11",
            "weights.shape is %" PRIu32 " in dimension %" PRIu32 ", must be %" PRIu32 " (bias)",
            weights->shape[d], d, bias->shape[d]);
  }
  PASS(require_equal("basic_rnn_cell_c12", "bias.shape[-1]", bias->shape[last - 1], m));
  PASS(require_equal("basic_rnn_cell_c13", "weights.shape[-1]", weights->shape[last], columns));
  return require_equal("basic_rnn_cell_c14", "prev_out.rank", prev_out->rank, 1);
}

/* Constraints 18 to 23: the library tests out.capacity early in one mode, never in others. */
static mli_status check_memory(const call *arguments) {
  const mli_tensor *out = arguments->out, *ir = arguments->cfg->ir_tsr;
  const uint64_t bytes = times(count(arguments->bias), element_size(arguments->in->el_type));
  const uint64_t out_bytes = times(bytes, outputs_of(arguments));
  const bool last = arguments->cfg->mode == RNN_BATCH_TO_LAST;
  if (last) {
    PASS(require_capacity(out, "out", out_bytes, "basic_rnn_cell_c18"));
    PASS(require_capacity(ir, "cfg.ir_tsr", bytes, "basic_rnn_cell_c19"));
  }
  PASS(require_variant(arguments, "basic_rnn_cell_c20"));
  PASS(require_capacity(out, "out", out_bytes, "basic_rnn_cell_c21"));
  if (arguments->cfg->act == RNN_ACT_NONE) {
    PASS(require_frac_bits(out, "out", "basic_rnn_cell_c22"));
  }
  const extent written[] = {{"out", out, out_bytes}, {"cfg.ir_tsr", ir, bytes}};
  const extent read[] = {{"in", arguments->in, used_bytes(arguments->in)},
                         {"prev_out", arguments->prev_out, used_bytes(arguments->prev_out)},
                         {"weights", arguments->weights, used_bytes(arguments->weights)},
                         {"bias", arguments->bias, used_bytes(arguments->bias)}};
  return require_apart(written, last ? 2 : 1, read, 4, last, "basic_rnn_cell_c23");
}

static mli_status check(const call *arguments) {
  const mli_tensor *in = arguments->in, *weights = arguments->weights, *bias = arguments->bias;
  PASS(check_given(arguments));
  PASS(check_shapes(arguments));
  PASS(require_one_type(weights, "weights", bias, "bias", "basic_rnn_cell_c15"));
  PASS(require_one_type(in, "in", arguments->prev_out, "prev_out", "basic_rnn_cell_c16"));
  PASS(require_bias_precision(in, weights, bias, "basic_rnn_cell_c17"));
  return check_memory(arguments);
}

/* One frame: dense results to `raw`, the output to `output`, which may be the same memory. */
static mli_status run_frame(
    const call *arguments, uint64_t frame, const void *state, void *raw, void *output) {
  const variant *kind = arguments->kind;
  const table *function = table_of(arguments->cfg->act);
  const int bits = function ? gate_bits(kind) : frac_bits(arguments->out);
  PASS(dense_step(arguments, frame, state, bits, raw, "basic_rnn_cell_c25"));
  for (uint64_t row = 0; function && row < count(arguments->bias); row++) {
    const int64_t x = load(raw, element_size(kind->io), row);
    store(output, element_size(kind->io), row, evaluate(function, x, bits, io_bits(kind)));
  }
  return MLI_STATUS_OK;
}

/* From batch to last without activation frames alternate between ir and out, and end in out. */
static mli_status run(const call *arguments, const void *state) {
  const variant *kind = arguments->kind;
  const mli_rnn_mode mode = arguments->cfg->mode;
  const uint64_t frames = frames_of(arguments), rows = count(arguments->bias);
  for (uint64_t frame = 0; frame < frames; frame++) {
    void *output = io_at(arguments->out, kind, mode == RNN_BATCH_TO_BATCH ? frame * rows : 0);
    void *raw = output;
    if (mode == RNN_BATCH_TO_LAST) {
      raw = arguments->cfg->ir_tsr->data.mem.void_p;
      if (arguments->cfg->act == RNN_ACT_NONE) {
        raw = output = (frames - frame) % 2 == 0 ? raw : output;
      }
    }
    PASS(run_frame(arguments, frame, state, raw, output));
    state = output;
  }
  return MLI_STATUS_OK;
}

/* Runs with a copy of the state where the first frame would write over it while it is read. */
static mli_status run_apart(const call *arguments) {
  const mli_tensor *prev_out = arguments->prev_out;
  const uint64_t bytes = used_bytes(prev_out);
  const extent state = {"prev_out", prev_out, bytes}, out = {"out", arguments->out, bytes};
  if (arguments->cfg->act != RNN_ACT_NONE || !is_shared(&state, &out)) {
    return run(arguments, prev_out->data.mem.void_p);
  }
  void *copy = malloc(bytes);
  REQUIRE(copy, MLI_STATUS_NOT_ENGH_MEM, "basic_rnn_cell_c23",
          "out is in the memory of prev_out, must be apart from it without %" PRIu64
          " bytes of heap", bytes);
  memcpy(copy, prev_out->data.mem.void_p, bytes);
  const mli_status status = run(arguments, copy);
  free(copy);
  return status;
}

static mli_status basic_rnn_cell(const call *arguments) {
  mli_tensor *out = arguments->out;
  PASS(check(arguments));
  PASS(run_apart(arguments));
  remark_out_frac_bits(arguments, "basic_rnn_cell_c24");
  const uint32_t batch[] = {(uint32_t)frames_of(arguments), arguments->bias->shape[0]};
  if (arguments->cfg->mode == RNN_BATCH_TO_BATCH) {
    fill(out, batch, 2, arguments->kind);
  } else {
    fill(out, arguments->bias->shape, arguments->bias->rank, arguments->kind);
  }
  if (arguments->cfg->act != RNN_ACT_NONE) {
    out->el_params.fx.frac_bits = (int16_t)(io_bits(arguments->kind) - 1);
  }
  return MLI_STATUS_OK;
}

#define BASIC_RNN_CELL(name, kind) \
  mli_status mli_krn_basic_rnn_cell_##name( \
      const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights, \
      const mli_tensor *bias, const mli_rnn_cell_cfg *cfg, mli_tensor *out) { \
    const call arguments = {in, prev_out, weights, bias, cfg, out, &kind}; \
    return answer(basic_rnn_cell(&arguments)); \
  }

BASIC_RNN_CELL(fx8, FX8)
BASIC_RNN_CELL(fx16, FX16)
BASIC_RNN_CELL(fx8w16d, FX8W16D)
