/* SPDX-License-Identifier: Apache-2.0 */
/* A fully connected layer of 8-bit fixed-point elements: two inputs, two neurons. */
#include <stdio.h>

#include "mli_api.h"

int main(void) {
  int8_t x[] = {64, -32};                        /* 0.5, -0.25 with 7 fractional bits */
  int8_t w[2][2] = {{100, -100}, {32, 64}};      /* [M, N], 6 fractional bits */
  int8_t b[] = {10, -16}, y[2];                  /* 5 fractional bits */
  const mli_tensor in = {.data = {sizeof x, {.pi8 = x}}, .shape = {2}, .rank = 1,
                         .el_type = MLI_EL_FX_8, .el_params.fx.frac_bits = 7};
  const mli_tensor weights = {.data = {sizeof w, {.void_p = w}}, .shape = {2, 2}, .rank = 2,
                              .el_type = MLI_EL_FX_8, .el_params.fx.frac_bits = 6};
  const mli_tensor bias = {.data = {sizeof b, {.pi8 = b}}, .shape = {2}, .rank = 1,
                           .el_type = MLI_EL_FX_8, .el_params.fx.frac_bits = 5};
  /* Of an output the memory and the fractional bits count; the function fills the rest. */
  mli_tensor out = {.data = {sizeof y, {.pi8 = y}}, .el_params.fx.frac_bits = 4};

  if (mli_krn_fully_connected_fx8(&in, &weights, &bias, &out) != MLI_STATUS_OK) return 1;
  for (uint32_t i = 0; i < mli_hlp_count_elem_num(&out, 0); i++) printf("%d\n", y[i]);
  return 0;
}
