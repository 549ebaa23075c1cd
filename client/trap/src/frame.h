/* SPDX-License-Identifier: Apache-2.0
 * The stack of a signal handler: siginfo, and the registers of the interrupted program.
 * Source: Linux, arch/s390/include/uapi/asm/{sigcontext,ucontext}.h and asm-generic/siginfo.h.
 */
#ifndef NNPA_TRAP_FRAME_H
#define NNPA_TRAP_FRAME_H

#include <stdint.h>

enum signal_number { SIGNAL_ILL = 4, SIGNAL_SEGV = 11 };
enum signal_code { CODE_ILL_OPN = 2, CODE_SEGV_MAPERR = 1, CODE_SEGV_ACCERR = 2 };

struct frame {
  uint64_t flags;
  struct frame *link;
  uint64_t stack[3];
  struct {
    uint64_t psw_mask;
    uint64_t psw_address;
    uint64_t gprs[16];
    uint32_t access[16];
    uint32_t fpc;
    uint32_t unused;
    uint64_t fprs[16]; /* the left doublewords of V0-V15 */
  } registers;
  uint64_t signal_mask;
  uint8_t unused[120];
  uint64_t vectors_low[16];     /* the right doublewords of V0-V15 */
  uint64_t vectors_high[16][2]; /* V16-V31 */
};

struct signal_information {
  int32_t number;
  int32_t error;
  int32_t code;
  int32_t unused;
  uint64_t address;
  uint8_t rest[104];
};

/* A signal's action as the kernel has it. */
struct kernel_action {
  void *handler;
  uint64_t flags;
  void *restorer;
  uint64_t mask;
};

#define ACTION_SIGINFO 0x4UL
#define ACTION_NODEFER 0x40000000UL
#define ACTION_RESETHAND 0x80000000UL
#define HANDLER_DEFAULT ((void *)0)
#define HANDLER_IGNORE ((void *)1)
#define SIGNAL_BIT(number) (1UL << ((number)-1))

#define PSW_CONDITION_SHIFT 44

static inline void set_condition_code(struct frame *frame, uint64_t code)
{
  frame->registers.psw_mask &= ~(3UL << PSW_CONDITION_SHIFT);
  frame->registers.psw_mask |= code << PSW_CONDITION_SHIFT;
}

#endif
