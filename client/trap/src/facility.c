/* SPDX-License-Identifier: Apache-2.0
 * Source: z/Architecture Principles of Operation, "Store Facility List Extended".
 */
#include "facility.h"

#include "linux.h"
#include "settings.h"

#define MAX_DOUBLEWORDS 32U
#define FACILITY_NNPA 165U
#define AUXILIARY_HWCAP 16UL

/* Store the machine's own list; returns how many doublewords it has. */
static unsigned real_list(uint64_t *list)
{
  register uint64_t r0 __asm__("r0") = MAX_DOUBLEWORDS - 1;
  __asm__ volatile(".insn s,0xb2b00000,%1"
                   : "+d"(r0), "=Q"(*(uint64_t(*)[MAX_DOUBLEWORDS])list)
                   :
                   : "cc");
  return (unsigned)(r0 & 0xff) + 1;
}

void answer_stfle(struct frame *frame, uint64_t address)
{
  uint64_t list[MAX_DOUBLEWORDS];
  clear_bytes(list, sizeof list);
  unsigned needed = real_list(list);
  if (needed <= FACILITY_NNPA / 64)
    needed = FACILITY_NNPA / 64 + 1;
  list[FACILITY_NNPA / 64] |= 1UL << (63 - FACILITY_NNPA % 64);
  uint16_t operand = *(const uint16_t *)(address + 2);
  unsigned base = operand >> 12;
  uint64_t place = (operand & 0xfffU) + (base ? frame->registers.gprs[base] : 0);
  unsigned room = (unsigned)(frame->registers.gprs[0] & 0xff) + 1;
  for (unsigned i = 0; i < room && i < needed; i++)
    ((volatile uint64_t *)place)[i] = list[i];
  frame->registers.gprs[0] = (frame->registers.gprs[0] & ~0xffUL) | (needed - 1);
  set_condition_code(frame, room >= needed ? 0 : 3);
}

void facility_mark(char **environment)
{
  while (*environment)
    environment++;
  for (uint64_t *entry = (uint64_t *)(environment + 1); entry[0]; entry += 2)
    if (entry[0] == AUXILIARY_HWCAP)
      entry[1] |= CAPABILITY_NNPA;
}
