/* SPDX-License-Identifier: Apache-2.0
 * Program interruptions as the kernel delivers them: to the program's handler, or by ending it.
 */
#ifndef NNPA_TRAP_INTERRUPTION_H
#define NNPA_TRAP_INTERRUPTION_H

#include "frame.h"

/* The program's own action for SIGILL, which this library's handler replaces. */
extern struct kernel_action program_action;

/* Return whether a signal would end the program. */
int ends_program(int number);

/* SIGILL, ILL_OPN: an operation, specification or data exception of the instruction. */
void interrupt_illegal(struct frame *frame, uint64_t address);

/* SIGSEGV at the first byte that the instruction may not access. */
void interrupt_access(struct frame *frame, uint64_t address, uint64_t missing, int is_there);

/* Deliver a SIGILL that this library does not answer. */
void hand_on(struct frame *frame, struct signal_information *information);

#endif
