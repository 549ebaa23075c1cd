/* SPDX-License-Identifier: Apache-2.0 */
#include "interruption.h"

#include "linux.h"
#include "statistics.h"

typedef void handler_function(int, struct signal_information *, struct frame *);

enum mask_change { SET_MASK = 2 };

struct kernel_action program_action;
static const struct kernel_action default_action; /* all 0 */

static int is_deadly(const struct kernel_action *action)
{
  return action->handler == HANDLER_DEFAULT || action->handler == HANDLER_IGNORE;
}

int ends_program(int number)
{
  struct kernel_action action = program_action;
  if (number != SIGNAL_ILL)
    SYS4(NR_RT_SIGACTION, number, 0, &action, 8);
  return is_deadly(&action);
}

static void die_by(int number)
{
  uint64_t mask = ~SIGNAL_BIT(number);
  statistics_write();
  SYS4(NR_RT_SIGACTION, number, &default_action, 0, 8);
  SYS3(NR_TGKILL, SYS3(NR_GETPID, 0, 0, 0), SYS3(NR_GETTID, 0, 0, 0), number);
  SYS4(NR_RT_SIGPROCMASK, SET_MASK, &mask, 0, 8);
}

/* Call a handler with the signals blocked that the kernel would block for it. SIGILL stays open:
 * handlers may use the instruction. */
static void deliver(struct frame *frame, struct signal_information *information,
                    const struct kernel_action *action)
{
  int number = information->number;
  uint64_t mask = frame->signal_mask | action->mask;
  if (!(action->flags & ACTION_NODEFER))
    mask |= SIGNAL_BIT(number);
  mask &= ~SIGNAL_BIT(SIGNAL_ILL);
  SYS4(NR_RT_SIGPROCMASK, SET_MASK, &mask, 0, 8);
  ((handler_function *)action->handler)(number, information, frame);
}

void hand_on(struct frame *frame, struct signal_information *information)
{
  struct kernel_action action = program_action;
  if (action.handler == HANDLER_DEFAULT ||
      (action.handler == HANDLER_IGNORE && information->code > 0)) {
    die_by(SIGNAL_ILL);
    return;
  }
  if (action.handler == HANDLER_IGNORE)
    return;
  if (action.flags & ACTION_RESETHAND)
    program_action.handler = HANDLER_DEFAULT;
  deliver(frame, information, &action);
}

void interrupt_illegal(struct frame *frame, uint64_t address)
{
  struct signal_information information = {
      .number = SIGNAL_ILL, .code = CODE_ILL_OPN, .address = address};
  hand_on(frame, &information);
}

void interrupt_access(struct frame *frame, uint64_t address, uint64_t missing, int is_there)
{
  struct signal_information information = {
      .number = SIGNAL_SEGV, .code = is_there ? CODE_SEGV_ACCERR : CODE_SEGV_MAPERR,
      .address = missing};
  struct kernel_action action = default_action;
  SYS4(NR_RT_SIGACTION, SIGNAL_SEGV, 0, &action, 8);
  frame->registers.psw_address = address; /* an access exception nullifies the instruction */
  if (is_deadly(&action)) {
    die_by(SIGNAL_SEGV);
    return;
  }
  if (action.flags & ACTION_RESETHAND)
    SYS4(NR_RT_SIGACTION, SIGNAL_SEGV, &default_action, 0, 8);
  deliver(frame, &information, &action);
}
