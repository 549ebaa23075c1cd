/* SPDX-License-Identifier: Apache-2.0
 * The library's life in a program that loads it, and the functions of the C library by which a
 * program asks for the facility or loads more code.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "connection.h"
#include "facility.h"
#include "handler.h"
#include "preload.h"
#include "scan.h"
#include "settings.h"
#include "statistics.h"

static void begin_as_copy(void)
{
  connections_forget();
  statistics_clear();
}

/* Host programs that the program starts by ways that are not interposed cannot load this. */
static void leave_environment(char **environment)
{
  char **kept = environment;
  for (char **variable = environment; *variable; variable++)
    if (strncmp(*variable, "LD_PRELOAD=", 11) != 0)
      *kept++ = *variable;
  *kept = NULL;
}

static int is_set_up(void)
{
  return settings.machine[0] != 0;
}

/* The auxiliary vector lies behind the environment: it is marked before variables go. */
__attribute__((constructor)) static void begin(int count, char **arguments, char **environment)
{
  (void)count;
  (void)arguments;
  settings_read(environment);
  if (!is_set_up())
    return;
  begin_answering(environment);
  if (settings.qemu[0])
    leave_environment(environment);
  pthread_atfork(NULL, NULL, begin_as_copy);
}

__attribute__((destructor)) static void end(void)
{
  statistics_write();
}

EXPORTED void _exit(int code)
{
  statistics_write();
  FUNCTION(_exit, void, int)(code);
  __builtin_unreachable();
}

EXPORTED void _Exit(int) ALSO_KNOWN_AS(_exit);

EXPORTED unsigned long getauxval(unsigned long type)
{
  unsigned long value = FUNCTION(getauxval, unsigned long, unsigned long)(type);
  return type == AT_HWCAP && is_set_up() && settings.has_facility ? value | CAPABILITY_NNPA
                                                                  : value;
}

EXPORTED void *dlopen(const char *file, int mode)
{
  void *handle = FUNCTION(dlopen, void *, const char *, int)(file, mode);
  if (handle && is_set_up())
    scan();
  return handle;
}
