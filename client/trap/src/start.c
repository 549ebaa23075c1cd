/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings.h"

#define ELF_START 20
#define MACHINE_S390 22

static char variables[PASSED_ON][MAX_VARIABLE + 32];

size_t pointers(char *const list[])
{
  size_t count = 0;
  while (list && list[count])
    count++;
  return count;
}

static int is_s390x(const char *path)
{
  unsigned char start[ELF_START] = {0};
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  ssize_t size = read(file, start, sizeof start);
  close(file);
  return size == sizeof start && memcmp(start, "\x7f" "ELF\x02\x02", 6) == 0 &&
         start[18] == 0 && start[19] == MACHINE_S390;
}

static int starts_with(const char *words, const char *prefix)
{
  return strncmp(words, prefix, strlen(prefix)) == 0;
}

static size_t add_ours(char **environment, size_t count)
{
  for (int i = 0; i < PASSED_ON; i++) {
    snprintf(variables[i], sizeof *variables, "%s=%s", passed_on[i].name, passed_on[i].value);
    environment[count++] = variables[i];
  }
  return count;
}

static int is_ours(const char *variable)
{
  for (int i = 0; i < PASSED_ON; i++)
    if (starts_with(variable, passed_on[i].name) && variable[strlen(passed_on[i].name)] == '=')
      return 1;
  return 0;
}

static void run_by_qemu(struct start *start, const char *path, char *const arguments[],
                        char *const environment[])
{
  size_t count = 0;
  const char *theirs = "";
  for (char *const *variable = environment; variable && *variable; variable++) {
    if (starts_with(*variable, "LD_PRELOAD="))
      theirs = strchr(*variable, '=') + 1;
    else if (!is_ours(*variable))
      start->environment[count++] = *variable;
  }
  start->environment[add_ours(start->environment, count)] = NULL;
  int is_more = *theirs && strcmp(theirs, settings.preload) != 0;
  snprintf(start->preload, sizeof start->preload, "LD_PRELOAD=%s%s%s", settings.preload,
           is_more ? ":" : "", is_more ? theirs : "");
  start->path = settings.qemu;
  count = 0;
  start->arguments[count++] = settings.qemu;
  if (settings.sysroot[0]) {
    start->arguments[count++] = "-L";
    start->arguments[count++] = settings.sysroot;
  }
  start->arguments[count++] = "-E";
  start->arguments[count++] = start->preload;
  start->arguments[count++] = "-0";
  start->arguments[count++] = arguments && arguments[0] ? arguments[0] : (char *)path;
  start->arguments[count++] = (char *)path;
  for (size_t i = 1; i < pointers(arguments); i++)
    start->arguments[count++] = arguments[i];
  start->arguments[count] = NULL;
}

static void run_as_it_is(struct start *start, const char *path, char *const arguments[],
                         char *const environment[])
{
  size_t count = 0;
  for (char *const *variable = environment; variable && *variable; variable++)
    if (!starts_with(*variable, "LD_PRELOAD=") || !strstr(*variable, settings.preload))
      start->environment[count++] = *variable;
  start->environment[count] = NULL;
  start->path = path;
  for (count = 0; count < pointers(arguments); count++)
    start->arguments[count] = arguments[count];
  start->arguments[count] = NULL;
}

/* The system looks for programs outside of the sysroot; qemu's -L redirects only files that they
 * open. */
void start_of(struct start *start, const char *path, char *const arguments[],
              char *const environment[])
{
  if (settings.sysroot[0] && path[0] == '/') {
    int size = snprintf(start->file, sizeof start->file, "%s%s", settings.sysroot, path);
    if (size > 0 && (size_t)size < sizeof start->file && is_s390x(start->file)) {
      run_by_qemu(start, start->file, arguments, environment);
      return;
    }
  }
  if (is_s390x(path) && access(path, X_OK) == 0)
    run_by_qemu(start, path, arguments, environment);
  else
    run_as_it_is(start, path, arguments, environment);
}

int find_in_path(const char *name, char *path, size_t room)
{
  const char *folders = getenv("PATH");
  int error = ENOENT;
  if (strchr(name, '/')) {
    snprintf(path, room, "%s", name);
    return 1;
  }
  for (const char *folder = folders ? folders : "/bin:/usr/bin"; *name; folder++) {
    int size = (int)strcspn(folder, ":");
    int written = snprintf(path, room, "%.*s%s%s", size, folder, size ? "/" : "", name);
    if (written > 0 && (size_t)written < room) {
      if (access(path, X_OK) == 0)
        return 1;
      if (errno == EACCES)
        error = EACCES;
    }
    folder += size;
    if (!*folder)
      break;
  }
  errno = error;
  return 0;
}
