/* SPDX-License-Identifier: Apache-2.0 */
/* A correct program whose descriptors hold what their layouts have, and nothing else. */
#include "sum.h"

#include "buffer.h"

#define ELEMENTS_4D 24

static float data[4][ELEMENTS_4D];

/* Transforms to sticks and back, and reshapes; `dims` are as many as the layout has. */
static void both_ways(zdnn_data_layouts layout, zdnn_data_types type, const uint32_t *dims) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensor, copy;
  float array[ELEMENTS_4D * 2];
  zdnn_init_pre_transformed_desc(layout, type, &pre, dims[0], dims[1], dims[2], dims[3]);
  MUST(zdnn_generate_transformed_desc(&pre, &desc));
  MUST(zdnn_init_ztensor_with_malloc(&pre, &desc, &tensor));
  MUST(zdnn_transform_ztensor(&tensor, data));
  if (layout != ZDNN_HWCK) {
    MUST(zdnn_transform_origtensor(&tensor, array));
  }
  MUST(zdnn_init_ztensor_with_malloc(&pre, &desc, &copy));
  MUST(zdnn_reshape_ztensor(&tensor, &copy));
  if (layout != ZDNN_HWCK) {
    MUST(zdnn_exp(&copy, &tensor));
  }
  MUST(zdnn_free_ztensor_buffer(&tensor));
  MUST(zdnn_free_ztensor_buffer(&copy));
}

static void gates(zdnn_concat_info info, zdnn_data_layouts layout, const uint32_t *dims) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensor;
  zdnn_init_pre_transformed_desc(layout, FP32, &pre, dims[0], dims[1], dims[2]);
  MUST(zdnn_generate_transformed_desc_concatenated(&pre, info, &desc));
  MUST(zdnn_init_ztensor_with_malloc(&pre, &desc, &tensor));
  MUST(zdnn_transform_ztensor(&tensor, data[0], data[1], data[2], data[3]));
  MUST(zdnn_free_ztensor_buffer(&tensor));
}

static void quantized(zdnn_quantized_transform_types target, zdnn_data_types type) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensor;
  zdnn_init_pre_transformed_desc(ZDNN_2D, type, &pre, 4u, 6u);
  MUST(zdnn_generate_quantized_transformed_desc(&pre, target, &desc));
  MUST(zdnn_init_quantized_ztensor_with_malloc(&pre, &desc, 0.5f, 3, &tensor));
  MUST(zdnn_transform_quantized_ztensor(&tensor, false, -128, 127, data));
  MUST(zdnn_free_ztensor_buffer(&tensor));
}

int main(void) {
  static const uint32_t line[] = {24, 0, 0, 0}, square[] = {4, 6, 0, 0}, cube[] = {2, 3, 4, 0};
  static const uint32_t four[] = {2, 1, 3, 4};
  static const zdnn_data_types types[] = {FP32, FP16, BFLOAT};
  for (int i = 0; i < 3; i++) {
    both_ways(ZDNN_1D, types[i], line);
    both_ways(ZDNN_2D, types[i], square);
    both_ways(ZDNN_2DS, types[i], square);
    both_ways(ZDNN_3D, types[i], cube);
    both_ways(ZDNN_3DS, types[i], cube);
    both_ways(ZDNN_4D, types[i], four);
    both_ways(ZDNN_4DS, types[i], four);
    both_ways(ZDNN_NHWC, types[i], four);
    both_ways(ZDNN_NCHW, types[i], four);
    both_ways(ZDNN_HWCK, types[i], four);
  }
  gates(RNN_TYPE_LSTM | PREV_LAYER_NONE | USAGE_WEIGHTS, ZDNN_3DS, cube);
  gates(RNN_TYPE_GRU | PREV_LAYER_BIDIR | USAGE_WEIGHTS, ZDNN_3DS, (uint32_t[]){1, 6, 4});
  gates(RNN_TYPE_GRU | PREV_LAYER_NONE | USAGE_BIASES, ZDNN_2DS, square);
  quantized(QUANTIZED_DLFLOAT16, FP32);
  quantized(QUANTIZED_INT8, FP32);
  quantized(QUANTIZED_WEIGHTS_INT8, INT8);
  puts(sum_is_right() ? "right" : "wrong");
  return 0;
}
