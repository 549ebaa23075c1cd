/* SPDX-License-Identifier: Apache-2.0 */
/* Stacked weights of a cell of one's own, from one to one; then the last output of three frames,
 * written over the previous one. */
#include <stdio.h>

#include "mli_api.h"

#define TENSOR(type, memory, bits) \
  .data = {sizeof memory, {.void_p = memory}}, .el_type = type, .el_params.fx.frac_bits = bits
#define FX16(memory, bits) TENSOR(MLI_EL_FX_16, memory, bits)
#define FX8(memory, bits) TENSOR(MLI_EL_FX_8, memory, bits)

int main(void) {
  int16_t x[3][2] = {{16384, -8192}, {4096, 20000}, {-32768, 32767}}, h[] = {1000, -2000};
  int8_t stack[2][2][4] = {{{64, 0, -64, 32}, {1, 2, 3, 4}}, {{-128, 127, 5, 9}, {7, 7, -7, -7}}};
  int8_t stack_bias[2][2] = {{1, 2}, {3, 4}};
  int16_t stacked[2][2], last[2];
  const mli_tensor frame = {FX16(x, 15), .shape = {2}, .rank = 1};
  const mli_tensor prev_out = {FX16(h, 15), .shape = {2}, .rank = 1};
  const mli_tensor weights = {FX8(stack, 6), .shape = {2, 2, 4}, .rank = 3};
  const mli_tensor bias = {FX8(stack_bias, 7), .shape = {2, 2}, .rank = 2};
  mli_tensor out = {FX16(stacked, 12)};
  const mli_rnn_cell_cfg to_one = {RNN_ONE_TO_ONE, RNN_ACT_NONE, NULL};
  mli_status status =
      mli_krn_basic_rnn_cell_fx8w16d(&frame, &prev_out, &weights, &bias, &to_one, &out);
  if (status != MLI_STATUS_OK) return status;
  for (int l = 0; l < 2; l++) printf("%d %d\n", stacked[l][0], stacked[l][1]);

  const mli_tensor frames = {FX16(x, 15), .shape = {3, 2}, .rank = 2};
  const mli_tensor first_weights = {FX8(stack[0], 6), .shape = {2, 4}, .rank = 2};
  const mli_tensor first_bias = {FX8(stack_bias[0], 7), .shape = {2}, .rank = 1};
  mli_tensor ir = {FX16(last, 0)}, over = prev_out;
  const mli_rnn_cell_cfg to_last = {RNN_BATCH_TO_LAST, RNN_ACT_SIGM, &ir};
  status = mli_krn_basic_rnn_cell_fx8w16d(
      &frames, &prev_out, &first_weights, &first_bias, &to_last, &over);
  if (status != MLI_STATUS_OK) return status;
  printf("%d %d\n", h[0], h[1]);
  return 0;
}
