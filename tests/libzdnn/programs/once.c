/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the machine and adds, waiting for a line on stdin before each round: once ROUNDS. */
#include <stdio.h>
#include <stdlib.h>

#include "sum.h"

int main(int argc, char **argv) {
  char line[80];
  int rounds = argc > 1 ? atoi(argv[1]) : 0;
  for (int i = 0; i < rounds && fgets(line, sizeof line, stdin) != NULL; i++) {
    zdnn_tensor_desc pre, desc;
    zdnn_ztensor a;
    static char room[2 * 4096];
    zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, 1u);
    zdnn_generate_transformed_desc(&pre, &desc);
    zdnn_init_ztensor(&pre, &desc, &a);
    a.buffer = room + 4096 - (size_t)room % 4096;
    a.buffer_size = 4096;
    bool installed = zdnn_is_nnpa_installed();
    printf("%d %08x\n", installed, zdnn_exp(&a, &a));
    fflush(stdout);
  }
  return 0;
}
