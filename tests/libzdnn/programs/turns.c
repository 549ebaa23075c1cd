/* SPDX-License-Identifier: Apache-2.0 */
/* Takes turns with who writes its stdin: each line has one answer on stdout. "sum" uses the whole
 * library; "clash" adds operands of different shapes, and takes the signal of the program check. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sum.h"

static sigjmp_buf before;

static void taken(int number) {
  (void)number;
  siglongjmp(before, 1);
}

static const char *clash(void) {
  zdnn_tensor_desc pre, small, large;
  zdnn_ztensor a, b;
  const char *met = "nothing";
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, 4u);
  zdnn_generate_transformed_desc(&pre, &small);
  pre.dim1 = 5;
  zdnn_generate_transformed_desc(&pre, &large);
  zdnn_init_ztensor_with_malloc(&pre, &small, &a);
  zdnn_init_ztensor_with_malloc(&pre, &large, &b);
  if (sigsetjmp(before, 1) != 0) {
    met = "a program check";
  } else {
    zdnn_add(&a, &b, &a);
  }
  zdnn_free_ztensor_buffer(&a);
  zdnn_free_ztensor_buffer(&b);
  return met;
}

int main(void) {
  char line[80];
  struct sigaction action = {.sa_handler = taken};
  sigaction(SIGILL, &action, NULL);
  while (fgets(line, sizeof line, stdin) != NULL) {
    int sums = strcmp(line, "sum\n") == 0;
    puts(!sums ? clash() : sum_is_right() ? "right" : "wrong");
    fflush(stdout);
  }
  return 0;
}
