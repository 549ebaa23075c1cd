/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: one line per function, arguments in C's order. */
#include <string.h>

#include "verbs.h"

#define T(operand) ztensor_of(one, #operand)
#define E(type, parameter) ((type)enum_of(one, #parameter))
#define N(parameter) enum_of(one, #parameter)
#define F(parameter) float_of(one, #parameter)
#define FLAG(parameter) (enum_of(one, #parameter) != 0)
#define WHEN(name, ...) \
  if (strcmp(function, #name) == 0) return status_put(one, zdnn_##name(__VA_ARGS__)), true

/* Returns what the C functions take for a bound: NULL for none. */
static const void *clipping(const call *one, float *value) {
  *value = float_of(one, "clipping_value");
  return json_get(one->arguments, "clipping_value") == NULL ? NULL : value;
}

static bool elementwise_run(const char *function, const call *one) {
  WHEN(add, T(input_a), T(input_b), T(output));
  WHEN(sub, T(input_a), T(input_b), T(output));
  WHEN(mul, T(input_a), T(input_b), T(output));
  WHEN(div, T(input_a), T(input_b), T(output));
  WHEN(min, T(input_a), T(input_b), T(output));
  WHEN(max, T(input_a), T(input_b), T(output));
  WHEN(log, T(input), T(output));
  WHEN(exp, T(input), T(output));
  WHEN(sqrt, T(input), T(output));
  WHEN(invsqrt, T(input), F(epsilon), T(output));
  return false;
}

static bool activation_run(const char *function, const call *one) {
  float bound;
  WHEN(relu, T(input), clipping(one, &bound), T(output));
  WHEN(leaky_relu, T(input), clipping(one, &bound), F(adjustment_factor), T(output));
  WHEN(tanh, T(input), T(output));
  WHEN(sigmoid, T(input), T(output));
  WHEN(softmax, T(input), one->area, E(zdnn_softmax_act, act_func), T(output));
  WHEN(softmax_mask, T(input), one->area, E(zdnn_softmax_act, act_func), N(softmax_mask),
       T(output));
  WHEN(gelu, T(input), T(output));
  return false;
}

static bool normalization_run(const char *function, const call *one) {
  WHEN(batchnorm, T(input_a), T(input_b), T(input_c), T(output));
  WHEN(norm, T(input_a), T(input_b), T(output));
  WHEN(moments, T(input), E(zdnn_moments_bessel, bessel_correction_type), T(output_a),
       T(output_b));
  WHEN(layernorm, T(input_a), T(input_b), T(input_c), F(beta_value), F(gamma_value),
       F(epsilon_value), T(output));
  WHEN(meanreduce2d, T(input), T(output));
  WHEN(reduce, T(input), one->area, E(zdnn_reduce_ops, op_type), T(output));
  return false;
}

static bool matmul_run(const char *function, const call *one) {
  WHEN(matmul_op, T(input_a), T(input_b), T(input_c), E(zdnn_matmul_ops, op_type), T(output));
  WHEN(matmul_bcast_op, T(input_a), T(input_b), T(input_c), E(zdnn_matmul_bcast_ops, op_type),
       T(output));
  WHEN(matmul_transpose_op, T(input_a), T(input_b), T(input_c), FLAG(transpose_a),
       FLAG(transpose_b), E(zdnn_matmul_ops, op_type), T(output));
  WHEN(quantized_matmul_op, T(input_a), T(input_b), T(input_c), E(zdnn_matmul_ops, op_type),
       (int8_t)N(clip_min), (int8_t)N(clip_max), FLAG(disable_clipping), FLAG(dequantize),
       FLAG(pre_computed), one->area, T(output));
  return false;
}

static bool window_run(const char *function, const call *one) {
  float bound;
  WHEN(avgpool2d, T(input), E(zdnn_pool_padding, padding_type), N(kernel_height), N(kernel_width),
       N(stride_height), N(stride_width), T(output));
  WHEN(maxpool2d, T(input), E(zdnn_pool_padding, padding_type), N(kernel_height), N(kernel_width),
       N(stride_height), N(stride_width), T(output));
  WHEN(conv2d, T(input), T(kernel), T(bias), E(zdnn_pool_padding, padding_type), N(stride_height),
       N(stride_width), E(zdnn_conv2d_act, act_func), clipping(one, &bound), T(output));
  return false;
}

static bool recurrent_run(const char *function, const call *one) {
  WHEN(lstm, T(input), T(h0), T(c0), T(weights), T(biases), T(hidden_weights), T(hidden_biases),
       E(lstm_gru_direction, direction), one->area, T(hn_output), T(cf_output));
  WHEN(gru, T(input), T(h0), T(weights), T(biases), T(hidden_weights), T(hidden_biases),
       E(lstm_gru_direction, direction), one->area, T(hn_output));
  return false;
}

bool operation_run(const char *function, const call *one) {
  return elementwise_run(function, one) || activation_run(function, one) ||
         normalization_run(function, one) || matmul_run(function, one) ||
         window_run(function, one) || recurrent_run(function, one);
}
