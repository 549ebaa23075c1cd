/* SPDX-License-Identifier: Apache-2.0 */
/* Floats to fixed point, and weights that are quantised per row to fixed point. */
#include <stdio.h>

#include "mli_api.h"

int main(void) {
  float x[] = {0.5f, -0.3f, 7.9f, -100.0f};
  int8_t y[4];
  const mli_tensor floats = {.data = {sizeof x, {.pf32 = x}}, .shape = {4}, .rank = 1,
                             .el_type = MLI_EL_FP_32};
  mli_tensor fixed = {.data = {sizeof y, {.pi8 = y}}, .el_type = MLI_EL_FX_8,
                      .el_params.fx.frac_bits = 4};
  if (mli_hlp_convert_tensor(&floats, &fixed) != MLI_STATUS_OK) return 1;
  for (int i = 0; i < 4; i++) printf("%d\n", y[i]);

  int8_t w[2][3] = {{10, -20, 127}, {0, 64, -128}};
  int16_t zero_point[] = {3, -8}, scale[] = {77, 33}, z[2][4] = {{0}};
  int8_t bits[] = {9, 6};
  const mli_tensor rows = {.data = {sizeof w, {.void_p = w}}, .shape = {2, 3}, .rank = 2,
                           .el_type = MLI_EL_SA_8,
                           .el_params.sa = {.zero_point = {sizeof zero_point, {.pi16 = zero_point}},
                                            .scale = {sizeof scale, {.pi16 = scale}},
                                            .scale_frac_bits = {sizeof bits, {.pi8 = bits}},
                                            .dim = 0}};
  /* Rows of four elements: the fourth is not touched. */
  mli_tensor wide = {.data = {sizeof z, {.void_p = z}}, .mem_stride = {4, 1},
                     .el_type = MLI_EL_FX_16, .el_params.fx.frac_bits = 8};
  if (mli_hlp_convert_tensor_safx(&rows, &wide) != MLI_STATUS_OK) return 1;
  for (int row = 0; row < 2; row++) {
    printf("%d %d %d %d\n", z[row][0], z[row][1], z[row][2], z[row][3]);
  }
  return 0;
}
