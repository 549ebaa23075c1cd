/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse that only C can express: numbers beyond their documented range, arrays of parameters that
 * are NULL or short, and sizes whose product no integer holds. Prints what is not as expected. */
#include <stdio.h>

#include "mli_api.h"

static int8_t memory[64];
static int16_t numbers[] = {1, 2, 3};
static int8_t bits[] = {1, 2, 3};

#define EXPECT(value, expected) \
  do { \
    const long long left = (long long)(value), right = (long long)(expected); \
    if (left != right) printf("line %d: %lld, must be %lld\n", __LINE__, left, right); \
  } while (0)

static mli_tensor tensor(mli_element_type type) {
  return (mli_tensor){.data = {sizeof memory, {.pi8 = memory}}, .shape = {2, 3}, .rank = 2,
                      .el_type = type};
}

static mli_tensor per_axis(void) {
  mli_tensor t = tensor(MLI_EL_SA_8);
  t.el_params.sa.dim = 1;
  t.el_params.sa.zero_point = (mli_data_container){sizeof numbers, {.pi16 = numbers}};
  t.el_params.sa.scale = (mli_data_container){sizeof numbers, {.pi16 = numbers}};
  t.el_params.sa.scale_frac_bits = (mli_data_container){sizeof bits, {.pi8 = bits}};
  return t;
}

static void fractional_bits(void) {
  static int16_t y[6];
  const mli_subtensor_cfg whole = {.size = {2, 3}, .sub_tensor_rank = 2};
  const int16_t values[] = {-129, 256, 32767, -32768};
  for (int i = 0; i < 4; i++) {
    mli_tensor x = tensor(MLI_EL_FX_8), out = {.data = {sizeof y, {.pi16 = y}}};
    mli_tensor dst = {.data = {sizeof y, {.pi16 = y}}, .el_type = MLI_EL_FX_16};
    x.el_params.fx.frac_bits = values[i];
    EXPECT(mli_krn_tanh_fx8(&x, &out), MLI_STATUS_BAD_TENSOR);
    EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_BAD_TENSOR);
    EXPECT(mli_hlp_subtensor(&x, &whole, &out), MLI_STATUS_BAD_TENSOR);
    x.el_params.fx.frac_bits = 0;
    dst.el_params.fx.frac_bits = values[i];
    EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_BAD_TENSOR);
  }
}

static void parameters(void) {
  static int8_t y[6];
  mli_tensor dst = {.data = {sizeof y, {.pi8 = y}}, .el_type = MLI_EL_FX_8};
  mli_tensor x = per_axis();
  EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_OK);
  EXPECT(mli_hlp_tensor_scale(&x, 2), 3);
  x.el_params.sa.scale_frac_bits.capacity = 2; /* the shortest array counts */
  EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_BAD_TENSOR);
  EXPECT(mli_hlp_tensor_scale(&x, 2), 0);
  x = per_axis();
  x.el_params.sa.zero_point.mem.pi16 = NULL;
  EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_BAD_TENSOR);
  EXPECT(mli_hlp_tensor_zero_offset(&x), 0);
  x = per_axis();
  x.el_params.sa.type = (mli_element_params_type)7;
  EXPECT(mli_hlp_convert_tensor(&x, &dst), MLI_STATUS_BAD_TENSOR);
  EXPECT(mli_hlp_tensor_scale_shift(&x), 0);
}

static void large_sizes(void) {
  mli_tensor x = tensor(MLI_EL_FX_8), out = {.data = {sizeof memory, {.pi8 = memory}}};
  x.rank = 4;
  for (int d = 0; d < 4; d++) x.shape[d] = 65536; /* 2^64 elements, 0 in 64 bits */
  EXPECT(mli_krn_tanh_fx8(&x, &out), MLI_STATUS_NOT_ENGH_MEM);
  EXPECT(mli_hlp_count_elem_num(&x, 0), 0);
  EXPECT(mli_hlp_count_elem_num(&x, 3), 65536);
  x.rank = 2;
  x.shape[0] = x.shape[1] = 0x80000001;
  x.mem_stride[0] = 0x7fffffff;
  x.mem_stride[1] = 1;
  EXPECT(mli_krn_tanh_fx8(&x, &out), MLI_STATUS_BAD_TENSOR);
  x.mem_stride[1] = 0; /* half given: the capacity cannot be told from it */
  EXPECT(mli_krn_tanh_fx8(&x, &out), MLI_STATUS_NOT_ENGH_MEM);
}

static void stride_beyond_its_field(void) {
  mli_tensor x = tensor(MLI_EL_FX_8), part;
  const mli_subtensor_cfg cfg = {.size = {1, 5}, .sub_tensor_rank = 2};
  x.data.capacity = 3000000000u; /* nothing is read */
  x.shape[0] = 1;
  x.shape[1] = 3000000000u;
  EXPECT(mli_hlp_subtensor(&x, &cfg, &part), MLI_STATUS_OK);
  EXPECT(part.mem_stride[0], 0);
  EXPECT(part.mem_stride[1], 1);
  EXPECT(part.shape[1], 5);
}

static void one_descriptor(void) {
  int8_t y[] = {64, -32};
  mli_tensor x = {.data = {sizeof y, {.pi8 = y}}, .shape = {2}, .rank = 1,
                  .el_type = MLI_EL_FX_8, .el_params.fx.frac_bits = 7};
  mli_sub_tensor_cfg cfg = {.offset = {1}, .size = {1}, .sub_tensor_rank = 0};
  EXPECT(mli_krn_tanh_fx8(&x, &x), MLI_STATUS_OK);
  EXPECT(y[0], 59);
  EXPECT(mli_hlp_create_subtensor(&x, &cfg, &x), MLI_STATUS_OK);
  EXPECT(x.rank, 0);
  EXPECT(x.data.mem.pi8 - y, 1);
}

int main(void) {
  fractional_bits();
  parameters();
  large_sizes();
  stride_beyond_its_field();
  one_descriptor();
  return 0;
}
