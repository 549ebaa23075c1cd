/* SPDX-License-Identifier: Apache-2.0 */
/* An LSTM cell of one element, over three frames: all outputs, then the cell. */
#include <stdio.h>

#include "mli_api.h"

#define FX8(memory, bits) \
  .data = {sizeof memory, {.void_p = memory}}, .el_type = MLI_EL_FX_8, .el_params.fx.frac_bits = bits

int main(void) {
  int8_t x[] = {50, -90, 127}, h[] = {-20}, c[] = {30};
  int8_t w[4][1][2] = {{{90, -40}}, {{60, -70}}, {{-30, 100}}, {{127, -128}}}; /* i, g, f, o */
  int8_t b[4][1] = {{3}, {-7}, {11}, {0}};
  int8_t y[3], gates[4];
  const mli_tensor in = {FX8(x, 7), .shape = {3, 1}, .rank = 2};
  const mli_tensor prev_out = {FX8(h, 7), .shape = {1}, .rank = 1};
  const mli_tensor weights = {FX8(w, 6), .shape = {4, 1, 2}, .rank = 3};
  const mli_tensor bias = {FX8(b, 5), .shape = {4, 1}, .rank = 2};
  mli_tensor cell = {FX8(c, 5), .shape = {1}, .rank = 1};
  mli_tensor out = {.data = {sizeof y, {.pi8 = y}}};
  mli_tensor ir = {.data = {sizeof gates, {.pi8 = gates}}};
  const mli_rnn_cell_cfg cfg = {RNN_BATCH_TO_BATCH, RNN_ACT_TANH, &ir};

  mli_status status = mli_krn_lstm_cell_fx8(&in, &prev_out, &weights, &bias, &cfg, &cell, &out);
  if (status != MLI_STATUS_OK) return status;
  for (uint32_t i = 0; i < out.shape[0]; i++) printf("%d\n", y[i]);
  printf("%d\n", c[0]);
  return 0;
}
