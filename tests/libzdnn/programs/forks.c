/* SPDX-License-Identifier: Apache-2.0 */
/* Forks before the first use and after it; parent and children go on, and their children too. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sum.h"

static int in_child(int depth) {
  pid_t child = fork();
  if (child == 0) {
    int right = sum_is_right();
    right &= depth == 0 || in_child(depth - 1);
    _exit(right ? 0 : 1);
  }
  int status;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void) {
  int right = in_child(0);
  right &= sum_is_right();
  right &= in_child(2);
  right &= sum_is_right();
  puts(right ? "right" : "wrong");
  return 0;
}
