/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, uses and closes the library again and again: reload NAME. Counts open files. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#define ROUNDS 200

static int count_files(void) {
  DIR *files = opendir("/proc/self/fd");
  int count = 0;
  while (files != NULL && readdir(files) != NULL) {
    count++;
  }
  closedir(files);
  return count;
}

int main(int argc, char **argv) {
  int first = 0, last = 0, right = argc == 2;
  for (int i = 0; right && i < ROUNDS; i++) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    bool (*installed)(void) = NULL;
    if (library != NULL) {
      *(void **)&installed = dlsym(library, "zdnn_is_nnpa_installed");
    }
    right &= installed != NULL && installed();
    right &= library != NULL && dlclose(library) == 0;
    last = count_files();
    first = i == 0 ? last : first;
  }
  printf("%s, files %s\n", right ? "right" : "wrong", first == last ? "steady" : "leak");
  return 0;
}
