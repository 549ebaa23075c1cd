/* SPDX-License-Identifier: Apache-2.0
 * The functions of the C library that start programs. Without NNPA_TRAP_QEMU, as on a system that
 * starts s390x programs itself, they call the C library's own functions.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"
#include "settings.h"
#include "start.h"
#include "statistics.h"

typedef int execute_function(const char *, char *const[], char *const[]);
typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *,
                           const posix_spawnattr_t *, char *const[], char *const[]);

EXPORTED int execve(const char *path, char *const arguments[], char *const environment[])
{
  execute_function *execute = (execute_function *)dlsym(RTLD_NEXT, "execve");
  if (!settings.qemu[0])
    return execute(path, arguments, environment);
  char *new_arguments[pointers(arguments) + MORE_ARGUMENTS + 1];
  char *new_environment[pointers(environment) + MORE_VARIABLES + 1];
  struct start start = {.arguments = new_arguments, .environment = new_environment};
  start_of(&start, path, arguments, environment);
  if (statistics.traps)
    statistics_write();
  execute(start.path, start.arguments, start.environment);
  statistics_clear(); /* the process goes on: nothing is written twice */
  return -1;
}

EXPORTED int execv(const char *path, char *const arguments[])
{
  return execve(path, arguments, environ);
}

EXPORTED int execvpe(const char *name, char *const arguments[], char *const environment[])
{
  char path[PATH_MAX];
  if (!find_in_path(name, path, sizeof path))
    return -1;
  execve(path, arguments, environment);
  if (errno == ENOEXEC) { /* a script without a #! line */
    size_t count = pointers(arguments);
    char *shell[count + 3];
    shell[0] = "/bin/sh";
    shell[1] = path;
    for (size_t i = 1; i <= count; i++)
      shell[1 + i] = i < count ? arguments[i] : NULL;
    shell[count + 2] = NULL;
    execve(shell[0], shell, environment);
  }
  return -1;
}

EXPORTED int execvp(const char *name, char *const arguments[])
{
  return execvpe(name, arguments, environ);
}

EXPORTED int fexecve(int descriptor, char *const arguments[], char *const environment[])
{
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  return execve(path, arguments, environment);
}

static size_t count_list(va_list list)
{
  size_t count = 1;
  while (va_arg(list, char *))
    count++;
  return count;
}

/* Collect the arguments of execl and its kin into an array on the caller's stack. */
#define COLLECT(first, list)                  \
  va_list list;                               \
  va_start(list, first);                      \
  size_t count = count_list(list);            \
  va_end(list);                               \
  char *arguments[count + 1];                 \
  arguments[0] = (char *)first;               \
  va_start(list, first);                      \
  for (size_t i = 1; i <= count; i++)         \
    arguments[i] = va_arg(list, char *)

EXPORTED int execl(const char *path, const char *first, ...)
{
  COLLECT(first, list);
  va_end(list);
  return execv(path, arguments);
}

EXPORTED int execlp(const char *name, const char *first, ...)
{
  COLLECT(first, list);
  va_end(list);
  return execvp(name, arguments);
}

EXPORTED int execle(const char *path, const char *first, ...)
{
  COLLECT(first, list);
  char **environment = va_arg(list, char **);
  va_end(list);
  return execve(path, arguments, environment);
}

EXPORTED int posix_spawn(pid_t *restrict process, const char *restrict path,
                         const posix_spawn_file_actions_t *restrict actions,
                         const posix_spawnattr_t *restrict attributes, char *const arguments[],
                         char *const environment[])
{
  spawn_function *spawn = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawn");
  if (!settings.qemu[0])
    return spawn(process, path, actions, attributes, arguments, environment);
  char *new_arguments[pointers(arguments) + MORE_ARGUMENTS + 1];
  char *new_environment[pointers(environment) + MORE_VARIABLES + 1];
  struct start start = {.arguments = new_arguments, .environment = new_environment};
  start_of(&start, path, arguments, environment);
  return spawn(process, start.path, actions, attributes, start.arguments, start.environment);
}

EXPORTED int posix_spawnp(pid_t *restrict process, const char *restrict name,
                          const posix_spawn_file_actions_t *restrict actions,
                          const posix_spawnattr_t *restrict attributes, char *const arguments[],
                          char *const environment[])
{
  char path[PATH_MAX];
  if (!find_in_path(name, path, sizeof path))
    return errno;
  return posix_spawn(process, path, actions, attributes, arguments, environment);
}
