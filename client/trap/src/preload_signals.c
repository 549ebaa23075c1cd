/* SPDX-License-Identifier: Apache-2.0
 * A program's own handler of SIGILL is kept here, and called where the machine would interrupt. No
 * thread blocks SIGILL: an instruction that raises a blocked SIGILL ends the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "interruption.h"
#include "preload.h"
#include "settings.h"

static int is_ours(int number)
{
  return number == SIGILL && settings.machine[0];
}

static void read_action(struct sigaction *action)
{
  memset(action, 0, sizeof *action);
  action->sa_handler = (sighandler_t)__atomic_load_n(&program_action.handler, __ATOMIC_ACQUIRE);
  action->sa_flags = (int)program_action.flags;
  memcpy(&action->sa_mask, &program_action.mask, sizeof program_action.mask);
}

static void set_action(const struct sigaction *action)
{
  program_action.flags = (unsigned)action->sa_flags;
  memcpy(&program_action.mask, &action->sa_mask, sizeof program_action.mask);
  __atomic_store_n(&program_action.handler, (void *)action->sa_handler, __ATOMIC_RELEASE);
}

EXPORTED int sigaction(int number, const struct sigaction *restrict action,
                       struct sigaction *restrict old)
{
  struct sigaction opened, before;
  if (!is_ours(number)) {
    if (action) {
      opened = *action;
      sigdelset(&opened.sa_mask, SIGILL);
    }
    return FUNCTION(sigaction, int, int, const struct sigaction *, struct sigaction *)(
        number, action ? &opened : NULL, old);
  }
  read_action(&before);
  if (action)
    set_action(action);
  if (old)
    *old = before;
  return 0;
}

static sighandler_t set_handler(int number, sighandler_t handler, int flags)
{
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
  sigemptyset(&action.sa_mask);
  if (!(flags & SA_NODEFER))
    sigaddset(&action.sa_mask, number);
  return sigaction(number, &action, &old) ? SIG_ERR : old.sa_handler;
}

EXPORTED sighandler_t signal(int number, sighandler_t handler)
{
  return is_ours(number) ? set_handler(number, handler, SA_RESTART)
                         : FUNCTION(signal, sighandler_t, int, sighandler_t)(number, handler);
}

EXPORTED sighandler_t bsd_signal(int, sighandler_t) ALSO_KNOWN_AS(signal);
EXPORTED sighandler_t ssignal(int, sighandler_t) ALSO_KNOWN_AS(signal);

EXPORTED sighandler_t sysv_signal(int number, sighandler_t handler)
{
  return set_handler(number, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

EXPORTED sighandler_t __sysv_signal(int, sighandler_t) ALSO_KNOWN_AS(sysv_signal);

static const sigset_t *without_sigill(int how, const sigset_t *set, sigset_t *copy)
{
  if (!set || how == SIG_UNBLOCK || !settings.machine[0])
    return set;
  *copy = *set;
  sigdelset(copy, SIGILL);
  return copy;
}

EXPORTED int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
  sigset_t copy;
  return FUNCTION(sigprocmask, int, int, const sigset_t *, sigset_t *)(
      how, without_sigill(how, set, &copy), old);
}

EXPORTED int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
  sigset_t copy;
  return FUNCTION(pthread_sigmask, int, int, const sigset_t *, sigset_t *)(
      how, without_sigill(how, set, &copy), old);
}
