/* SPDX-License-Identifier: Apache-2.0 */
/* The top half of an image in HWC, and one of its channels, without a copy. */
#include <stdio.h>

#include "mli_api.h"

enum { H = 4, W = 3, C = 2 };

int main(void) {
  int8_t image[H][W][C];
  for (int i = 0; i < H * W * C; i++) image[i / (W * C)][i / C % W][i % C] = (int8_t)i;
  const mli_tensor in = {.data = {sizeof image, {.void_p = image}}, .shape = {H, W, C}, .rank = 3,
                         .el_type = MLI_EL_SA_8,
                         .el_params.sa = {.zero_point.mem.i16 = 5, .scale.mem.i16 = 21,
                                          .scale_frac_bits.mem.i8 = 6, .dim = -1}};
  const mli_subtensor_cfg top = {.size = {H / 2, W, C}, .sub_tensor_rank = 3};
  const mli_subtensor_cfg row = {.offset = {1, 0, 1}, .size = {1, W, 1}, .sub_tensor_rank = 1};
  mli_tensor half, channel;

  if (mli_hlp_subtensor(&in, &top, &half) != MLI_STATUS_OK) return 1;
  printf("%u elements of %u byte, scale %d / 2^%d, zero at %d\n", mli_hlp_count_elem_num(&half, 0),
         mli_hlp_tensor_element_size(&half), mli_hlp_tensor_scale(&half),
         mli_hlp_tensor_scale_shift(&half), mli_hlp_tensor_zero_offset(&half));
  if (mli_hlp_subtensor(&half, &row, &channel) != MLI_STATUS_OK) return 1;
  for (uint32_t i = 0; i < channel.shape[0]; i++) {
    printf("%d\n", channel.data.mem.pi8[i * (uint32_t)channel.mem_stride[0]]);
  }
  return 0;
}
