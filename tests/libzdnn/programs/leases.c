/* SPDX-License-Identifier: Apache-2.0 */
/* Children in a row, each with a session, which end by _exit, abort or a signal. With the argument
 * "orphan" instead a process with a session and a child that lives on when the process is killed;
 * with "pause" one that waits between two sums. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sum.h"

static void end_in_a_way(int number) {
  if (number % 3 == 0) _exit(0);
  if (number % 3 == 1) abort();
  raise(number % 2 ? SIGKILL : SIGTERM);
}

/* Tells whether a child's sum was right, which it writes to a pipe before it ends. */
static int is_right_in_child(int number) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  pid_t child = fork();
  if (child == 0) {
    char right = (char)sum_is_right();
    if (write(ends[1], &right, 1) == 1) end_in_a_way(number);
    _exit(1);
  }
  char right = 0;
  close(ends[1]);
  ssize_t size = read(ends[0], &right, 1);
  close(ends[0]);
  return waitpid(child, NULL, 0) == child && size == 1 && right;
}

static int orphan(void) {
  if (!sum_is_right()) return 1;
  if (fork() == 0) {
    puts("ready");
    fflush(stdout);
    getchar();
    puts(sum_is_right() ? "right" : "wrong");
    fflush(stdout);
    getchar();
    return 0;
  }
  pause();
  return 1;
}

static int pause_between(void) {
  for (int sum = 0; sum < 2; sum++) {
    puts(sum_is_right() ? "right" : "wrong");
    fflush(stdout);
    getchar();
  }
  return 0;
}

int main(int count, char **arguments) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (count > 1 && strcmp(arguments[1], "orphan") == 0) return orphan();
  if (count > 1 && strcmp(arguments[1], "pause") == 0) return pause_between();
  int children = count > 1 ? atoi(arguments[1]) : 0, right = 0;
  for (int number = 0; number < children; number++) right += is_right_in_child(number);
  printf("%d of %d right\n", right, children);
  return 0;
}
