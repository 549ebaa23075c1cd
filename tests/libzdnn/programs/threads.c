/* SPDX-License-Identifier: Apache-2.0 */
/* Counts threads before, during and after use; then eight threads use the library at once. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>

#include "sum.h"

#define THREADS 8
#define ROUNDS 20

static int count_threads(void) {
  DIR *tasks = opendir("/proc/self/task");
  int count = -2; /* . and .. */
  while (tasks != NULL && readdir(tasks) != NULL) {
    count++;
  }
  closedir(tasks);
  return count;
}

static void *work(void *right) {
  int all = 1;
  for (int i = 0; i < ROUNDS; i++) {
    all &= sum_is_right();
  }
  *(int *)right = all;
  return NULL;
}

int main(void) {
  int before = count_threads();
  int right[THREADS] = {0}, all = sum_is_right();
  int after = count_threads();
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    pthread_create(&threads[i], NULL, work, &right[i]);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    all &= right[i];
  }
  printf("%s, threads %d, %d\n", all ? "right" : "wrong", before, after);
  return 0;
}
