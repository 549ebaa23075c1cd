/* SPDX-License-Identifier: Apache-2.0
 * Prints what the machine says of itself, and 1 + 2. */
#include <sys/auxv.h>

#include "nnpa.h"

int main(void)
{
  static _Alignas(8) uint8_t query[4096];
  printf("stfle %d hwcap %d\n", stfle_has_nnpa(), (int)(getauxval(AT_HWCAP) >> 20 & 1));
  struct outcome outcome = nnpa(0, query);
  printf("query cc %d functions", outcome.condition_code);
  for (int i = 0; i < 32; i++)
    printf(" %02x", query[i]);
  printf("\nadd %04x\n", add_codes(ONE, TWO));
  struct parameter_block *block = aligned_alloc(8, sizeof *block);
  uint16_t *a = page_of(LARGEST), *b = page_of(LARGEST), *sum = page_of(0);
  describe_add(block, a, b, sum);
  outcome = nnpa(16, block);
  printf("overflow cc %d r0 %016lx value %04x\n", outcome.condition_code,
         outcome.general_register_0, sum[0]);
  block->inputs[0].dim4 = 40000;
  sum[0] = 0x1234;
  outcome = nnpa(16, block);
  printf("too large cc %d r0 %016lx value %04x\n", outcome.condition_code,
         outcome.general_register_0, sum[0]);
  return 7;
}
