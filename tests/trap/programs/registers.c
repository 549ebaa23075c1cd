/* SPDX-License-Identifier: Apache-2.0
 * Converts with all registers known, eight times: prints which of them changed, each time. */
#include "nnpa.h"

struct registers {
  uint64_t general[15];
  uint32_t condition, fpc;
  uint16_t vectors[32][8];
};

void snapshot(const struct registers *before, struct registers *after);

static void compare(const struct registers *before, const struct registers *after)
{
  for (int i = 0; i < 15; i++)
    if (before->general[i] != after->general[i])
      printf(" r%d", i);
  for (int i = 0; i < 32; i++)
    if (memcmp(before->vectors[i], after->vectors[i], 16))
      printf(" v%d", i);
  printf(" cc %x->%x fpc %08x->%08x\n", before->condition >> 28, after->condition >> 28,
         before->fpc, after->fpc);
}

int main(void)
{
  struct registers before, after;
  for (int round = 0; round < 8; round++) {
    for (int i = 0; i < 15; i++)
      before.general[i] = 0x0123456789abcdefUL * (uint64_t)(i + 3 + round);
    for (int i = 0; i < 32; i++)
      for (int k = 0; k < 8; k++)
        before.vectors[i][k] = (uint16_t)(0x1000 + 64 * i + k);
    before.vectors[2][3] = round < 4 ? 0x3e00 : 0x7fff;
    before.condition = (uint32_t)(round & 3) << 28;
    before.fpc = 2; /* rounding mode: toward +infinity */
    snapshot(&before, &after);
    compare(&before, &after);
  }
  return 0;
}
