/* SPDX-License-Identifier: Apache-2.0
 * pace COUNT: rounds eight FP32 values so often, one of which raises a flag; prints nanoseconds
 * for each time. */
#include <time.h>

#include "nnpa.h"

int main(int count, char **arguments)
{
  static _Alignas(16) const float values[8] = {1, -2, 3.5f, 1e-20f, 5, 1e9f, 0, 8};
  static _Alignas(16) uint16_t codes[8];
  struct timespec begin, end;
  long rounds = count > 1 ? atol(arguments[1]) : 1000;
  for (long i = -1; i < rounds; i++) {
    if (i == 0)
      clock_gettime(CLOCK_MONOTONIC, &begin);
    __asm__ volatile(".machine arch14\n\tvl %%v1,0(%0)\n\tvl %%v2,16(%0)\n\t"
                     "vcrnf %%v3,%%v1,%%v2,0,2\n\tvst %%v3,0(%1)"
                     :
                     : "a"(values), "a"(codes)
                     : "memory");
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  double elapsed = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
  printf("%.1f %04x\n", elapsed / (double)rounds, codes[1]);
  return 0;
}
