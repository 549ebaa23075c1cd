/* SPDX-License-Identifier: Apache-2.0
 * convert NAME: reads vectors, writes each converted, and the FPC after it, which was zero. */
#include "nnpa.h"

#define STEP(name, load, instruction, store)                                     \
  static uint32_t name(const uint8_t *source, uint8_t *target)                   \
  {                                                                              \
    uint32_t fpc;                                                                \
    __asm__ volatile(".machine arch14\n\tlhi 0,0\n\tsfpc 0\n\t" load "\n\t" instruction \
                     "\n\t" store "\n\tefpc %0"                                  \
                     : "=&d"(fpc)                                                \
                     : "a"(source), "a"(target)                                  \
                     : "0", "memory");                                           \
    return fpc;                                                                  \
  }

STEP(vcrnf, "vl %%v2,0(%1)\n\tvl %%v30,16(%1)", "vcrnf %%v17,%%v2,%%v30,0,2", "vst %%v17,0(%2)")
STEP(vcnf, "vl %%v18,0(%1)", "vcnf %%v3,%%v18,0,1", "vst %%v3,0(%2)")
STEP(vcfn, "vl %%v1,0(%1)", "vcfn %%v31,%%v1,1,0", "vst %%v31,0(%2)")
STEP(vclfnh, "vl %%v5,0(%1)", "vclfnh %%v4,%%v5,2,0", "vst %%v4,0(%2)")
STEP(vclfnl, "vl %%v17,0(%1)", "vclfnl %%v17,%%v17,2,0", "vst %%v17,0(%2)")
STEP(unknown, "vl %%v17,0(%1)", ".byte 0xe6,0x12,0x00,0x00,0x50,0x56", "vst %%v1,0(%2)")

int main(int count, char **arguments)
{
  static const struct {
    const char *name;
    uint32_t (*step)(const uint8_t *, uint8_t *);
    size_t size;
  } steps[] = {{"vcrnf", vcrnf, 32},   {"vcnf", vcnf, 16},     {"vcfn", vcfn, 16},
               {"vclfnh", vclfnh, 16}, {"vclfnl", vclfnl, 16}, {"unknown", unknown, 16}};
  uint8_t source[32], target[16];
  for (size_t i = 0; count > 1 && i < sizeof steps / sizeof *steps; i++) {
    if (strcmp(steps[i].name, arguments[1]))
      continue;
    while (fread(source, steps[i].size, 1, stdin) == 1) {
      uint32_t fpc = steps[i].step(source, target);
      fwrite(target, sizeof target, 1, stdout);
      fwrite(&fpc, sizeof fpc, 1, stdout);
    }
  }
  return 0;
}
