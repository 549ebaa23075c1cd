/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized matmul: zero points and biases before the instruction, clipping after it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* A call, and the numbers that follow from its scales. */
typedef struct quantized {
  const zdnn_ztensor *a, *b, *c;
  zdnn_ztensor *output;
  zdnn_matmul_ops op;
  int8_t clip_min, clip_max;
  bool on_the_fly, disable_clipping, dequantize, pre_computed;
  float m; /* real scale of a product in the output's quanta */
  float zb; /* zero point of b; comparisons take none */
} quantized;

static int8_t byte_at(const zdnn_ztensor *t, uint64_t e4, uint64_t e2, uint64_t e1) {
  return ((int8_t *)t->buffer)[cell_offset(t->transformed_desc, (place){e4, 0, e2, e1})];
}

static uint16_t *code_at(const zdnn_ztensor *t, uint64_t e4, uint64_t e2, uint64_t e1) {
  uint64_t at = cell_offset(t->transformed_desc, (place){e4, 0, e2, e1});
  return (uint16_t *)((uint8_t *)t->buffer + at);
}

/* Returns the sum of a column of b. */
static float column_sum(const quantized *q, uint64_t e4, uint64_t column) {
  int32_t sum = 0;
  for (uint32_t k = 0; k < q->b->transformed_desc->dim2; k++) sum += byte_at(q->b, e4, k, column);
  return (float)sum;
}

static uint16_t bias(const quantized *q, float value, float sum) {
  float za = q->a->offset, zc = q->c->offset, zy = q->output->offset;
  if (q->op != MATMUL_OP_ADDITION) {
    float scale = q->a->rec_scale * q->b->rec_scale / q->c->rec_scale, offset = scale * zc;
    return dlfloat_of(fmaf(value, scale, -offset) + sum * za);
  }
  float scale = q->output->rec_scale / q->c->rec_scale, offset = zy - scale * zc;
  if (q->zb == 0) return dlfloat_of(fmaf(value, scale, offset) - sum * (q->m * za));
  if (!q->on_the_fly) offset += q->m * (float)q->a->transformed_desc->dim1 * za * q->zb;
  return dlfloat_of(fmaf(value, scale, offset));
}

/* Computes the third operand of the instruction from c and the columns of b. */
static void biases(const quantized *q, zdnn_ztensor *computed) {
  const zdnn_tensor_desc *desc = q->c->transformed_desc;
  for (uint32_t e4 = 0; e4 < desc->dim4; e4++)
    for (uint32_t j = 0; j < desc->dim1; j++)
      *code_at(computed, e4, 0, j) =
          bias(q, (float)byte_at(q->c, e4, 0, j), column_sum(q, e4, j));
}

/* Returns the sum of a row of a: integers, or FP32 in eight lanes. */
static float row_sum(const quantized *q, uint64_t e4, uint64_t row) {
  uint32_t columns = q->a->transformed_desc->dim1;
  int32_t sum = 0;
  float lanes[8] = {0};
  for (uint32_t k = 0; k < columns; k++) {
    if (q->on_the_fly)
      lanes[k % 8] += float_of_dlfloat(*code_at(q->a, e4, row, k));
    else
      sum += byte_at(q->a, e4, row, k);
  }
  if (!q->on_the_fly) return (float)sum;
  for (int i = 0; i < 4; i++) lanes[i] += lanes[i + 4];
  return ((lanes[0] + lanes[1]) + lanes[2]) + lanes[3];
}

static float finished(const quantized *q, float value) {
  if (!q->disable_clipping) {
    value = rintf(value);
    if (value < q->clip_min) value = q->clip_min;
    if (value > q->clip_max) value = q->clip_max;
  }
  if (q->dequantize) value = (value - q->output->offset) * (1 / q->output->rec_scale);
  return value;
}

static float correction(const quantized *q, uint64_t e4, uint64_t row, uint64_t column) {
  uint64_t in_a = q->a->transformed_desc->dim4 == 1 ? 0 : e4;
  uint64_t in_b = q->b->transformed_desc->dim4 == 1 ? 0 : e4;
  float factor = q->m * q->zb * (q->on_the_fly ? q->a->rec_scale : 1);
  float of_b = column_sum(q, in_b, column) * (q->m * q->a->offset);
  return of_b + row_sum(q, in_a, row) * factor;
}

/* Takes the zero point of b out of the machine's output, clips and dequantizes. */
static void finish(const quantized *q) {
  const zdnn_tensor_desc *desc = q->output->transformed_desc;
  if (q->zb == 0 && !q->dequantize && q->disable_clipping) return;
  for (uint32_t e4 = 0; e4 < desc->dim4; e4++)
    for (uint32_t i = 0; i < desc->dim2; i++)
      for (uint32_t j = 0; j < desc->dim1; j++) {
        uint16_t *code = code_at(q->output, e4, i, j);
        float value = float_of_dlfloat(*code);
        if (q->zb != 0) value -= correction(q, e4, i, j);
        *code = dlfloat_of(finished(q, value));
      }
}

/* Returns the operation as the machine gets it: a negative scale turns comparisons around. */
static unsigned operation(const quantized *q) {
  static const unsigned turned[] = {[MATMUL_OP_GREATER] = MATMUL_OP_LESSER,
                                    [MATMUL_OP_GREATER_EQUAL] = MATMUL_OP_LESSER_EQUAL,
                                    [MATMUL_OP_EQUAL] = MATMUL_OP_EQUAL,
                                    [MATMUL_OP_NOT_EQUAL] = MATMUL_OP_NOT_EQUAL,
                                    [MATMUL_OP_LESSER_EQUAL] = MATMUL_OP_GREATER_EQUAL,
                                    [MATMUL_OP_LESSER] = MATMUL_OP_GREATER};
  bool known = q->op != MATMUL_OP_ADDITION && q->op <= MATMUL_OP_LESSER;
  float scale = q->a->rec_scale * q->b->rec_scale / q->c->rec_scale;
  return (known && scale < 0 ? turned[q->op] : q->op) & 0xff;
}

static zdnn_status multiply(const quantized *q, const zdnn_ztensor *third) {
  bool addition = q->op == MATMUL_OP_ADDITION;
  float one = 1;
  float scale_a = addition || q->on_the_fly ? q->a->rec_scale : one;
  float scale_b = addition ? q->b->rec_scale : one;
  float scale_y = addition ? q->output->rec_scale : q->on_the_fly ? q->a->rec_scale : one;
  request asked = {.function = matmul_function(q->a, q->b),
                   .format = NNPA_PARMBLKFORMAT_1,
                   .inputs = {q->a, q->b, third},
                   .outputs = {q->output},
                   .parameters = {operation(q), 0, scalar_of(scale_a),
                                  q->on_the_fly ? scalar_of(q->a->offset) : 0, scalar_of(scale_b),
                                  0, scalar_of(scale_y)}};
  if (q->on_the_fly) {
    asked.parameters[8] = (uint8_t)q->clip_min;
    asked.parameters[9] = (uint8_t)q->clip_max;
  }
  return perform(&asked);
}

zdnn_status zdnn_quantized_matmul_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
                                     const zdnn_ztensor *input_c, zdnn_matmul_ops op_type,
                                     int8_t clip_min, int8_t clip_max, bool disable_clipping,
                                     bool dequantize, bool pre_computed, void *work_area,
                                     zdnn_ztensor *output) {
  quantized q = {input_a, input_b, input_c, output, op_type, clip_min, clip_max,
                 input_a->transformed_desc->type != ZDNN_BINARY_INT8,
                 disable_clipping, dequantize, pre_computed, 0, 0};
  if (pre_computed && input_b->offset != 0) return ZDNN_INVALID_OFFSET;
  if (!format_installed(NNPA_PARMBLKFORMAT_1)) return ZDNN_UNAVAILABLE_FUNCTION;
  q.m = output->rec_scale / (input_a->rec_scale * input_b->rec_scale);
  q.zb = op_type == MATMUL_OP_ADDITION ? input_b->offset : 0;
  zdnn_tensor_desc desc = *input_c->transformed_desc;
  zdnn_ztensor computed = {.transformed_desc = &desc, .buffer = work_area};
  void *own = NULL;
  if (!pre_computed) {
    if (desc.type != ZDNN_BINARY_INT8) return ZDNN_INVALID_TYPE;
    desc.type = ZDNN_DLFLOAT16;
    if (work_area == NULL) computed.buffer = own = aligned_pages(zdnn_getsize_ztensor(&desc));
    if (computed.buffer == NULL) return ZDNN_ALLOCATION_FAILURE;
    memset(computed.buffer, 0, zdnn_getsize_ztensor(&desc));
    biases(&q, &computed);
  }
  zdnn_status status = multiply(&q, pre_computed ? input_c : &computed);
  free(own);
  if (status == ZDNN_OK && op_type == MATMUL_OP_ADDITION) finish(&q);
  return status;
}
