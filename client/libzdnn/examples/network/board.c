/* SPDX-License-Identifier: Apache-2.0 */
/* A board without hardware: inputs are numbers on stdin, outputs lines on stdout. */
#include "board.h"

#include <stdio.h>
#include <stdlib.h>

#include "network.h"

void acquire_and_process_data(void *in_data) {
  ai_float *elements = in_data;
  for (int i = 0; i < AI_NETWORK_IN_1_SIZE; i++) {
    if (scanf("%f", &elements[i]) != 1) {
      exit(i == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
  }
}

void post_process(const void *out_data) {
  const ai_float *elements = out_data;
  for (int i = 0; i < AI_NETWORK_OUT_1_SIZE; i++) {
    printf("%s%a", i == 0 ? "" : " ", elements[i]);
  }
  putchar('\n');
}

int main(void) {
  main_loop();
  return EXIT_FAILURE;
}
