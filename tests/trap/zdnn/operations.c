/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are one instruction: function code, format, parameters. */
#include "library.h"

#define ZERO NNPA_PARMBLKFORMAT_0
#define ONE NNPA_PARMBLKFORMAT_1

static zdnn_status unary(unsigned function, unsigned format, const zdnn_ztensor *input,
                         zdnn_ztensor *output) {
  return perform(&(request){
      .function = function, .format = format, .inputs = {input}, .outputs = {output}});
}

static zdnn_status binary(unsigned function, unsigned format, const zdnn_ztensor *a,
                          const zdnn_ztensor *b, zdnn_ztensor *output) {
  return perform(&(request){
      .function = function, .format = format, .inputs = {a, b}, .outputs = {output}});
}

#define BINARY(name, code, format)                                                 \
  zdnn_status zdnn_##name(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b, \
                          zdnn_ztensor *output) {                                  \
    return binary(code, format, input_a, input_b, output);                         \
  }
#define UNARY(name, code, format)                                            \
  zdnn_status zdnn_##name(const zdnn_ztensor *input, zdnn_ztensor *output) { \
    return unary(code, format, input, output);                               \
  }

BINARY(add, NNPA_ADD, ZERO)
BINARY(sub, NNPA_SUB, ZERO)
BINARY(mul, NNPA_MUL, ZERO)
BINARY(div, NNPA_DIV, ZERO)
BINARY(min, NNPA_MIN, ZERO)
BINARY(max, NNPA_MAX, ZERO)
BINARY(norm, NNPA_NORM, ONE)
UNARY(log, NNPA_LOG, ZERO)
UNARY(exp, NNPA_EXP, ZERO)
UNARY(tanh, NNPA_TANH, ZERO)
UNARY(sigmoid, NNPA_SIGMOID, ZERO)
UNARY(sqrt, NNPA_SQRT, ONE)
UNARY(gelu, NNPA_GELU, ONE)

zdnn_status zdnn_invsqrt(const zdnn_ztensor *input, float epsilon, zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_INVSQRT,
                            .format = ONE,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {scalar_of(epsilon)}});
}

static uint16_t clipping(const void *value) {
  return value == NULL ? 0 : scalar_of(*(const float *)value);
}

zdnn_status zdnn_relu(const zdnn_ztensor *input, const void *clipping_value,
                      zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_RELU,
                            .format = ZERO,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {clipping(clipping_value)}});
}

zdnn_status zdnn_leaky_relu(const zdnn_ztensor *input, const void *clipping_value,
                            float adjustment_factor, zdnn_ztensor *output) {
  return perform(
      &(request){.function = NNPA_RELU,
                 .format = ONE,
                 .inputs = {input},
                 .outputs = {output},
                 .parameters = {clipping(clipping_value), scalar_of(adjustment_factor)}});
}

zdnn_status zdnn_softmax(const zdnn_ztensor *input, void *save_area, zdnn_softmax_act act_func,
                         zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_SOFTMAX,
                            .format = ZERO,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {act_func & 0xf},
                            .save_area = save_area});
}

zdnn_status zdnn_softmax_mask(const zdnn_ztensor *input, void *save_area,
                              zdnn_softmax_act act_func, uint32_t softmax_mask,
                              zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_SOFTMAX,
                            .format = ONE,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {act_func & 0xf, softmax_mask},
                            .save_area = save_area});
}

zdnn_status zdnn_batchnorm(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                           const zdnn_ztensor *input_c, zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_BATCHNORMALIZATION,
                            .format = ZERO,
                            .inputs = {input_a, input_b, input_c},
                            .outputs = {output}});
}

zdnn_status zdnn_moments(const zdnn_ztensor *input, zdnn_moments_bessel bessel_correction_type,
                         zdnn_ztensor *output_a, zdnn_ztensor *output_b) {
  return perform(&(request){.function = NNPA_MOMENTS,
                            .format = ONE,
                            .inputs = {input},
                            .outputs = {output_a, output_b},
                            .parameters = {bessel_correction_type}});
}

zdnn_status zdnn_layernorm(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                           const zdnn_ztensor *input_c, float beta_value, float gamma_value,
                           float epsilon_value, zdnn_ztensor *output) {
  return perform(&(request){
      .function = NNPA_LAYERNORM,
      .format = ONE,
      .inputs = {input_a, input_b, input_c},
      .outputs = {output},
      .parameters = {scalar_of(beta_value), scalar_of(gamma_value), scalar_of(epsilon_value)}});
}

zdnn_status zdnn_reduce(const zdnn_ztensor *input, void *save_area, zdnn_reduce_ops op_type,
                        zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_REDUCE,
                            .format = ONE,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {op_type & 0xff},
                            .save_area = save_area});
}

/* Height is dim3, width dim2; the parameters have the width first. */
typedef struct window {
  uint32_t kernel_height, kernel_width, stride_height, stride_width;
} window;

static zdnn_status pool(unsigned function, const zdnn_ztensor *input, unsigned padding, window size,
                        zdnn_ztensor *output) {
  return perform(&(request){.function = function,
                            .format = ZERO,
                            .inputs = {input},
                            .outputs = {output},
                            .parameters = {padding & 7, size.stride_width, size.stride_height,
                                           size.kernel_width, size.kernel_height}});
}

zdnn_status zdnn_avgpool2d(const zdnn_ztensor *input, zdnn_pool_padding padding_type,
                           uint32_t kernel_height, uint32_t kernel_width, uint32_t stride_height,
                           uint32_t stride_width, zdnn_ztensor *output) {
  window size = {kernel_height, kernel_width, stride_height, stride_width};
  return pool(NNPA_AVGPOOL2D, input, padding_type, size, output);
}

zdnn_status zdnn_maxpool2d(const zdnn_ztensor *input, zdnn_pool_padding padding_type,
                           uint32_t kernel_height, uint32_t kernel_width, uint32_t stride_height,
                           uint32_t stride_width, zdnn_ztensor *output) {
  window size = {kernel_height, kernel_width, stride_height, stride_width};
  return pool(NNPA_MAXPOOL2D, input, padding_type, size, output);
}

zdnn_status zdnn_meanreduce2d(const zdnn_ztensor *input, zdnn_ztensor *output) {
  window whole = {input->transformed_desc->dim3, input->transformed_desc->dim2, 0, 0};
  return pool(NNPA_AVGPOOL2D, input, VALID_PADDING, whole, output);
}

zdnn_status zdnn_conv2d(const zdnn_ztensor *input, const zdnn_ztensor *kernel,
                        const zdnn_ztensor *bias, zdnn_pool_padding padding_type,
                        uint32_t stride_height, uint32_t stride_width, zdnn_conv2d_act act_func,
                        const void *clipping_value, zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_CONVOLUTION,
                            .format = ZERO,
                            .inputs = {input, kernel, bias},
                            .outputs = {output},
                            .parameters = {(act_func & 0xfu) << 4 | (padding_type & 7u),
                                           stride_width, stride_height, clipping(clipping_value)}});
}

unsigned matmul_function(const zdnn_ztensor *a, const zdnn_ztensor *b) {
  uint32_t left = a->transformed_desc->dim4, right = b->transformed_desc->dim4;
  if (left == 1 && right != 1) return NNPA_MATMUL_OP_BCAST1;
  return left != 1 && right == 1 ? NNPA_MATMUL_OP_BCAST23 : NNPA_MATMUL_OP;
}

zdnn_status zdnn_matmul_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                           const zdnn_ztensor *input_c, zdnn_matmul_ops op_type,
                           zdnn_ztensor *output) {
  return perform(&(request){.function = NNPA_MATMUL_OP,
                            .format = ZERO,
                            .inputs = {input_a, input_b, input_c},
                            .outputs = {output},
                            .parameters = {op_type & 0xff}});
}

zdnn_status zdnn_matmul_bcast_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                                 const zdnn_ztensor *input_c, zdnn_matmul_bcast_ops op_type,
                                 zdnn_ztensor *output) {
  unsigned function = matmul_function(input_a, input_b);
  bool first = function == NNPA_MATMUL_OP ||
               (function == NNPA_MATMUL_OP_BCAST23 && op_type == MATMUL_BCAST_OP_ADDITION);
  return perform(&(request){.function = function,
                            .format = first ? ZERO : ONE,
                            .inputs = {input_a, input_b, input_c},
                            .outputs = {output},
                            .parameters = {op_type & 0xff}});
}

zdnn_status zdnn_matmul_transpose_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                                     const zdnn_ztensor *input_c, bool transpose_a,
                                     bool transpose_b, zdnn_matmul_ops op_type,
                                     zdnn_ztensor *output) {
  uint32_t transposes = (transpose_b ? 2u : 0u) | (transpose_a ? 1u : 0u);
  return perform(&(request){.function = matmul_function(input_a, input_b),
                            .format = ONE,
                            .inputs = {input_a, input_b, input_c},
                            .outputs = {output},
                            .parameters = {op_type & 0xff, transposes}});
}
