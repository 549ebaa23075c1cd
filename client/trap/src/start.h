/* SPDX-License-Identifier: Apache-2.0
 * How a program that this one starts runs: an s390x ELF by qemu with this library, others as they
 * are.
 */
#ifndef NNPA_TRAP_START_H
#define NNPA_TRAP_START_H

#include <limits.h>
#include <stddef.h>

#define MORE_ARGUMENTS 8
#define MORE_VARIABLES 10

struct start {
  const char *path;
  char **arguments;    /* room for the program's and MORE_ARGUMENTS */
  char **environment;  /* room for the program's and MORE_VARIABLES */
  char file[PATH_MAX]; /* the program in the sysroot */
  char preload[PATH_MAX + 16];
};

/* Count the pointers before the null pointer; 0 for none at all. */
size_t pointers(char *const list[]);

/* Fill a start in. `start->arguments` and `start->environment` are given. */
void start_of(struct start *start, const char *path, char *const arguments[],
              char *const environment[]);

/* Find a program in PATH, as execvp does. Returns 0, with errno, where there is none. */
int find_in_path(const char *name, char *path, size_t room);

#endif
