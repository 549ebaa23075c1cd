/* SPDX-License-Identifier: Apache-2.0 */
#include "handler.h"

#include "connection.h"
#include "conversion.h"
#include "facility.h"
#include "frame.h"
#include "instruction.h"
#include "interruption.h"
#include "linux.h"
#include "patch.h"
#include "scan.h"
#include "settings.h"
#include "statistics.h"
#include "text.h"

#define OPCODE_NNPA 0xb93bU

enum mask_change { UNBLOCK = 1 };

static void answer(struct frame *frame, struct signal_information *information)
{
  uint64_t address = information->address;
  uint16_t opcode = *(const volatile uint16_t *)address;
  COUNT(traps);
  if (!settings.has_facility && (opcode == OPCODE_NNPA || is_conversion(address))) {
    complain("a z15 has no such instruction: operation exception", address);
    interrupt_illegal(frame, address);
  } else if (opcode == OPCODE_NNPA) {
    if (!scan_knows(address))
      scan();
    answer_nnpa(frame, address);
  } else if (opcode == OPCODE_STFLE_TRAP) {
    answer_stfle(frame, address);
  } else if (!answer_conversion(frame, address)) {
    hand_on(frame, information);
  }
}

static void on_sigill(int number, struct signal_information *information, struct frame *frame)
{
  (void)number;
  if (information->code > 0)
    answer(frame, information);
  else
    hand_on(frame, information); /* sent by a process */
}

void begin_answering(char **environment)
{
  connections_forget();
  if (settings.has_facility)
    facility_mark(environment);
  scan();
  struct kernel_action action = {(void *)on_sigill, ACTION_SIGINFO | ACTION_NODEFER, 0,
                                 ~SIGNAL_BIT(SIGNAL_ILL)};
  uint64_t mask = SIGNAL_BIT(SIGNAL_ILL);
  SYS4(NR_RT_SIGACTION, SIGNAL_ILL, &action, &program_action, 8);
  SYS4(NR_RT_SIGPROCMASK, UNBLOCK, &mask, 0, 8);
}
