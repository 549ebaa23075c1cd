/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM cell of MLI 1.x. */
#include "activation.h"
#include "fixedpoint.h"
#include "recurrent.h"

/* Constraints 1 to 6. */
static mli_status check_given(const call *arguments, const mli_tensor *cell) {
  const mli_rnn_cell_cfg *cfg = arguments->cfg;
  PASS(require_valid_inputs(arguments));
  PASS(require_valid(cell, "cell"));
  PASS(require_tensor(arguments->out, "out", "lstm_cell_c2"));
  PASS(require_data(arguments->out, "out", "lstm_cell_c2"));
  REQUIRE(cfg, MLI_STATUS_BAD_FUNC_CFG, "lstm_cell_c3", "cfg is NULL, must be a configuration");
  REQUIRE(cfg->ir_tsr, MLI_STATUS_BAD_FUNC_CFG, "lstm_cell_c4",
          "cfg.ir_tsr is NULL, must be a tensor");
  REQUIRE(cfg->ir_tsr->data.mem.void_p, MLI_STATUS_BAD_FUNC_CFG, "lstm_cell_c4",
          "cfg.ir_tsr.data is NULL, must be a pointer");
  PASS(require_known_cfg(cfg, "lstm_cell_c5"));
  return require_sequence(arguments, "lstm_cell_c6");
}

/* Constraints 7 to 15. */
static mli_status check_shapes(const call *arguments, const mli_tensor *cell) {
  const mli_tensor *prev_out = arguments->prev_out, *weights = arguments->weights;
  const uint32_t *bias = arguments->bias->shape;
  const uint64_t m = count(prev_out);
  PASS(require_equal("lstm_cell_c7", "weights.rank", weights->rank, 3));
  PASS(require_equal("lstm_cell_c8", "bias.rank", arguments->bias->rank, 2));
  PASS(require_equal("lstm_cell_c9", "weights.shape[0]", weights->shape[0], 4));
  PASS(require_equal("lstm_cell_c9", "bias.shape[0]", bias[0], 4));
  PASS(require_equal("lstm_cell_c10", "weights.shape[1]", weights->shape[1], bias[1]));
  PASS(require_equal("lstm_cell_c11", "bias.shape[1]", bias[1], m));
  PASS(require_equal(
      "lstm_cell_c12", "weights.shape[2]", weights->shape[2], frame_length(arguments) + m));
  PASS(require_equal("lstm_cell_c13", "cell.rank", cell->rank, 1));
  PASS(require_equal("lstm_cell_c14", "prev_out.rank", prev_out->rank, 1));
  return require_equal("lstm_cell_c15", "prev_out.shape[0]", prev_out->shape[0], cell->shape[0]);
}

/* Constraints 16 to 21. */
static mli_status check_types(const call *arguments, const mli_tensor *cell) {
  const mli_tensor *in = arguments->in, *weights = arguments->weights, *bias = arguments->bias;
  const uint32_t rank = arguments->cfg->mode == RNN_BATCH_TO_BATCH ? 2 : 1;
  PASS(require_contiguous_inputs(arguments, "lstm_cell_c16"));
  PASS(require_contiguous_output(arguments->out, rank, "lstm_cell_c17"));
  PASS(require_one_type(weights, "weights", bias, "bias", "lstm_cell_c18"));
  PASS(require_one_type(in, "in", arguments->prev_out, "prev_out", "lstm_cell_c19"));
  PASS(require_one_type(in, "in", cell, "cell", "lstm_cell_c20"));
  return require_bias_precision(in, weights, bias, "lstm_cell_c21");
}

/* Constraints 22 to 25. */
static mli_status check_memory(const call *arguments, const mli_tensor *cell) {
  const mli_tensor *in = arguments->in, *prev_out = arguments->prev_out, *out = arguments->out;
  const mli_tensor *weights = arguments->weights, *bias = arguments->bias;
  const mli_tensor *ir = arguments->cfg->ir_tsr;
  const uint64_t bytes = times(count(prev_out), element_size(in->el_type));
  const uint64_t out_bytes = times(bytes, outputs_of(arguments));
  PASS(require_capacity(ir, "cfg.ir_tsr", times(4, bytes), "lstm_cell_c22"));
  PASS(require_capacity(out, "out", out_bytes, "lstm_cell_c23"));
  PASS(require_variant(arguments, "lstm_cell_c24"));
  PASS(require_fx_type(cell, "cell", arguments->kind->io, "lstm_cell_c24"));
  PASS(require_frac_bits(cell, "cell", "tensor_c9"));
  const extent written[] = {
      {"out", out, out_bytes}, {"cell", cell, bytes}, {"cfg.ir_tsr", ir, times(4, bytes)}};
  const extent read[] = {{"in", in, used_bytes(in)},
                         {"prev_out", prev_out, used_bytes(prev_out)},
                         {"weights", weights, used_bytes(weights)},
                         {"bias", bias, used_bytes(bias)}};
  return require_apart(written, 3, read, 4, true, "lstm_cell_c25");
}

/* The gates of one frame, in the intermediate tensor: dense results, then sigmoid or tanh. */
static mli_status compute_gates(const call *arguments, uint64_t frame, const void *state) {
  const variant *kind = arguments->kind;
  const uint32_t size = element_size(kind->io);
  const uint64_t m = count(arguments->prev_out);
  void *gates = arguments->cfg->ir_tsr->data.mem.void_p;
  PASS(dense_step(arguments, frame, state, gate_bits(kind), gates, "lstm_cell_c27"));
  for (uint64_t i = 0; i < 4 * m; i++) {
    const table *function = i / m == 1 ? &TANH : &SIGM;
    store(gates, size, i, evaluate(function, load(gates, size, i), gate_bits(kind), io_bits(kind)));
  }
  return MLI_STATUS_OK;
}

/* The new cell value: i * g is rounded to the scale of f * cell, and the sum rounded again. */
static mli_status update(
    int64_t i, int64_t g, int64_t f, int64_t *cell, int cell_bits, const variant *kind) {
  const int full = io_bits(kind) - 1, bits = kind->accumulator_bits;
  int64_t sum = scale_rounded(i * g, full - cell_bits, 32) + f * *cell;
  REQUIRE(MLI_DEBUG_MODE != DBG_MODE_FULL || saturate(sum, 32) == sum, MLI_STATUS_NOT_SUPPORTED,
          "lstm_cell_c27", "partial sum is beyond %d bits, must be within %d bits", bits, bits);
  if (ACCUMULATOR == ACCUMULATOR_HARDWARE) sum = wrap(sum, 32);
  *cell = scale_rounded(sum, full, io_bits(kind));
  return MLI_STATUS_OK;
}

/* The output of one element: the cell value, activated or not, times the output gate. */
static int64_t output(const call *arguments, int64_t cell, int cell_bits, int64_t gate) {
  const table *function = table_of(arguments->cfg->act);
  const int bits = io_bits(arguments->kind), full = bits - 1;
  if (!function) {
    return scale_rounded(cell * gate, cell_bits + full - frac_bits(arguments->prev_out), bits);
  }
  return scale_rounded(evaluate(function, cell, cell_bits, bits) * gate, full, bits);
}

/* All frames; the output of one is the state of the next. */
static mli_status run(const call *arguments, const mli_tensor *cell) {
  const variant *kind = arguments->kind;
  const uint32_t size = element_size(kind->io);
  const uint64_t m = count(arguments->prev_out);
  const bool batch = arguments->cfg->mode == RNN_BATCH_TO_BATCH;
  const void *gates = arguments->cfg->ir_tsr->data.mem.void_p;
  const void *state = arguments->prev_out->data.mem.void_p;
  for (uint64_t frame = 0; frame < frames_of(arguments); frame++) {
    void *results = io_at(arguments->out, kind, batch ? frame * m : 0);
    PASS(compute_gates(arguments, frame, state));
    for (uint64_t k = 0; k < m; k++) {
      const int64_t i = load(gates, size, k), g = load(gates, size, m + k);
      int64_t value = load(cell->data.mem.void_p, size, k);
      PASS(update(i, g, load(gates, size, 2 * m + k), &value, frac_bits(cell), kind));
      store(cell->data.mem.void_p, size, k, value);
      const int64_t o = load(gates, size, 3 * m + k);
      store(results, size, k, output(arguments, value, frac_bits(cell), o));
    }
    state = results;
  }
  return MLI_STATUS_OK;
}

static mli_status lstm_cell(const call *arguments, const mli_tensor *cell) {
  PASS(check_given(arguments, cell));
  PASS(check_shapes(arguments, cell));
  PASS(check_types(arguments, cell));
  PASS(check_memory(arguments, cell));
  PASS(run(arguments, cell));
  remark_out_frac_bits(arguments, "lstm_cell_c26");
  mli_tensor *out = arguments->out, *ir = arguments->cfg->ir_tsr;
  const variant *kind = arguments->kind;
  const uint32_t m = arguments->prev_out->shape[0];
  const uint32_t batch[] = {(uint32_t)frames_of(arguments), m}, gates[] = {4, m};
  const int state_bits = frac_bits(arguments->prev_out);
  const bool whole = arguments->cfg->mode == RNN_BATCH_TO_BATCH;
  fill(out, whole ? batch : &m, whole ? 2 : 1, kind);
  out->el_params.fx.frac_bits =
      (int16_t)(arguments->cfg->act == RNN_ACT_NONE ? state_bits : io_bits(kind) - 1);
  fill(ir, gates, 2, kind);
  ir->el_params.fx.frac_bits = (int16_t)gate_bits(kind);
  for (int d = 0; d < MLI_MAX_RANK; d++) ir->mem_stride[d] = 0;
  return MLI_STATUS_OK;
}

#define LSTM_CELL(name, kind) \
  mli_status mli_krn_lstm_cell_##name( \
      const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights, \
      const mli_tensor *bias, const mli_lstm_cell_cfg *cfg, mli_tensor *cell, mli_tensor *out) { \
    const call arguments = {in, prev_out, weights, bias, cfg, out, &kind}; \
    return answer(lstm_cell(&arguments, cell)); \
  }

LSTM_CELL(fx8, FX8)
LSTM_CELL(fx16, FX16)
LSTM_CELL(fx8w16d, FX8W16D)
