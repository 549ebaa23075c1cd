/* SPDX-License-Identifier: Apache-2.0
 * Source: z/Architecture Principles of Operation, NNPA, "Parameter Block"; zDNN 1.2.0, zdnn.h.
 */
#include "tensors.h"

#include "functions.gen.h"
#include "linux.h"

enum layout { FEATURE = 0, KERNEL = 1, WEIGHTS = 2, GENERIC = 31 };
enum type { DLFLOAT16 = 0, FP32 = 6, INT8 = 8, INT32 = 10 };

#define STICKS_OF_PAGE 32UL
#define MAX_TENSOR_SIZE (1UL << 32)

/* Return the product, 0 where it is none that a tensor may have. */
static uint64_t product(const uint64_t *factors, int count)
{
  uint64_t result = 1;
  for (int i = 0; i < count; i++) {
    if (__builtin_mul_overflow(result, factors[i], &result))
      return 0;
  }
  return result > MAX_TENSOR_SIZE ? 0 : result;
}

static uint64_t size_of_tensor(const uint8_t *descriptor)
{
  enum layout layout = descriptor[0];
  enum type type = descriptor[1];
  uint64_t d4 = number_at(descriptor + 8, 4), d3 = number_at(descriptor + 12, 4);
  uint64_t d2 = number_at(descriptor + 16, 4), d1 = number_at(descriptor + 20, 4);
  if (layout == GENERIC) {
    uint64_t element = type == INT8 ? 1 : type == FP32 || type == INT32 ? 4 : 2;
    uint64_t factors[] = {d4, d3, d2, d1, element};
    return product(factors, 5);
  }
  uint64_t cells = layout == WEIGHTS ? 64 : type == INT8 ? 128 : type == INT32 ? 32 : 64;
  uint64_t rows = layout == WEIGHTS && type == INT8 ? (d2 + 1) / 2 : d2;
  uint64_t factors[] = {d4, d3, (rows + STICKS_OF_PAGE - 1) / STICKS_OF_PAGE,
                        (d1 + cells - 1) / cells, 4096};
  return product(factors, 5);
}

static struct operand tensor_of(enum role role, const uint8_t *descriptor)
{
  return (struct operand){role, number_at(descriptor + 24, 8), size_of_tensor(descriptor)};
}

int operands_of(uint8_t code, const uint8_t *block, struct operand *operands)
{
  const struct function *function = &functions[code];
  int count = 0;
  for (unsigned place = 0; place < function->inputs; place++)
    operands[count++] = tensor_of(INPUT_1 + place, block + 192 + 32 * place);
  for (unsigned place = 0; place < function->outputs; place++)
    operands[count++] = tensor_of(OUTPUT_1 + place, block + 64 + 32 * place);
  if (function->save_area)
    operands[count++] = (struct operand){SAVE_AREA, number_at(block + 56, 8), SAVE_AREA_SIZE};
  return count;
}
