/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized products that are lent a work area: whether its first page was written. */
#include <string.h>

#include "buffer.h"

static float values[25];
static int8_t integers[25];

static void quantize(struct tensor *tensor, zdnn_data_types type,
                     zdnn_quantized_transform_types target, uint32_t rows, uint32_t columns) {
  zdnn_init_pre_transformed_desc(ZDNN_2D, type, &tensor->pre, rows, columns);
  MUST(zdnn_generate_quantized_transformed_desc(&tensor->pre, target, &tensor->desc));
  give_sticks(tensor);
  zdnn_init_quantized_ztensor(&tensor->pre, &tensor->desc, 1, 0, &tensor->ztensor);
}

static void fill(struct tensor *tensor, const void *array) {
  MUST(zdnn_transform_quantized_ztensor(&tensor->ztensor, false, -128, 127, array));
}

int main(void) {
  static _Alignas(PAGE) unsigned char area[2 * PAGE], kept[2 * PAGE];
  struct tensor a, b, biases[2], output;
  quantize(&a, FP32, QUANTIZED_INT8, 5, 5);
  quantize(&b, INT8, QUANTIZED_WEIGHTS_INT8, 5, 5);
  quantize(&biases[0], FP32, QUANTIZED_INT8, 1, 5);
  quantize(&biases[1], FP32, QUANTIZED_DLFLOAT16, 1, 5);
  quantize(&output, FP32, QUANTIZED_DLFLOAT16, 5, 5);
  fill(&a, values);
  fill(&b, integers);
  fill(&biases[0], values);
  fill(&biases[1], values);
  for (int i = 0; i < 4; i++) {
    bool pre_computed = i >= 2;
    memset(area, i % 2 ? 0xFF : 0, sizeof area);
    memcpy(kept, area, sizeof area);
    zdnn_status status = zdnn_quantized_matmul_op(
        &a.ztensor, &b.ztensor, &biases[pre_computed].ztensor, MATMUL_OP_ADDITION, -128, 127,
        false, false, pre_computed, area, &output.ztensor);
    printf("%08x %s %s\n", status, memcmp(area, kept, PAGE) == 0 ? "untouched" : "touched",
           memcmp(area + PAGE, kept + PAGE, PAGE) == 0 ? "kept" : "overrun");
  }
  zdnn_status status =
      zdnn_quantized_matmul_op(&a.ztensor, &b.ztensor, &biases[1].ztensor, MATMUL_OP_ADDITION,
                               -128, 127, false, false, false, area, &output.ztensor);
  printf("%08x %s\n", status, memcmp(area, kept, PAGE) == 0 ? "untouched" : "touched");
  return 0;
}
