/* SPDX-License-Identifier: Apache-2.0
 * Source: z/Architecture Principles of Operation, "Store Facility List Extended".
 */
#include "facility.h"

#include "code.h"
#include "linux.h"
#include "settings.h"
#include "statistics.h"
#include "text.h"

#define MAX_SEGMENTS 1024
#define MAX_DOUBLEWORDS 32U
#define FACILITY_NNPA 165U
#define AUXILIARY_HWCAP 16UL

extern const char first_byte_of_this_object[] __asm__("__ehdr_start");
extern const char end_of_this_object[] __asm__("_end");

static struct segment seen[MAX_SEGMENTS];
static unsigned seen_count;

static int is_ours(uint64_t address)
{
  return address >= (uint64_t)first_byte_of_this_object &&
         address < (uint64_t)end_of_this_object;
}

int facility_knows(uint64_t address)
{
  unsigned count = __atomic_load_n(&seen_count, __ATOMIC_ACQUIRE);
  for (unsigned i = 0; i < count; i++)
    if (address >= seen[i].first && address < seen[i].end)
      return 1;
  return 0;
}

static int contains_nnpa(const struct segment *segment)
{
  const uint16_t *end = (const uint16_t *)segment->end - 1;
  for (const uint16_t *place = (const uint16_t *)segment->first; place < end; place++)
    if (place[0] == 0xb93bU && place[1] == 0)
      return 1;
  return 0;
}

static void make_stfle_trap(const struct segment *segment)
{
  struct segment opened;
  for (uint64_t place = segment->first; place < segment->end; place += 2) {
    if (*(volatile uint16_t *)place != OPCODE_STFLE || !code_open(place, 2, &opened))
      continue;
    *(volatile uint16_t *)place = OPCODE_STFLE_TRAP;
    code_close(place, 2, &opened);
    COUNT(stfle_places);
  }
}

struct collection { unsigned count; struct segment segments[256]; };

static int collect(const struct segment *segment, void *context)
{
  struct collection *collection = context;
  int is_code = (segment->protection & (PROT_R | PROT_X)) == (PROT_R | PROT_X);
  if (is_code && !is_ours(segment->first) && !facility_knows(segment->first)) {
    collection->segments[collection->count++] = *segment;
  }
  return collection->count == 256;
}

void facility_scan(void)
{
  struct collection collection = {.count = 0};
  if (!settings.has_facility)
    return;
  code_lock();
  visit_segments(collect, &collection);
  for (unsigned i = 0; i < collection.count && seen_count < MAX_SEGMENTS; i++) {
    if (contains_nnpa(&collection.segments[i]))
      make_stfle_trap(&collection.segments[i]);
    seen[seen_count] = collection.segments[i];
    __atomic_store_n(&seen_count, seen_count + 1, __ATOMIC_RELEASE);
  }
  code_unlock();
}

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
