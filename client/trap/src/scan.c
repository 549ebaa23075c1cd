/* SPDX-License-Identifier: Apache-2.0
 * The halfword B2B0 is STFLE, or a displacement, an offset, data. A place is changed if a function
 * proves it an instruction, or if the program's owner names it.
 */
#include "scan.h"

#include "code.h"
#include "facility.h"
#include "function.h"
#include "linux.h"
#include "object.h"
#include "settings.h"
#include "statistics.h"
#include "text.h"
#include "unwind.h"

#define MAX_SEGMENTS 1024
#define MAX_PLACES 1024U

enum rule { NO_RULE, WHOLE_OBJECT, THIS_PLACE };

extern const char first_byte_of_this_object[] __asm__("__ehdr_start");
extern const char end_of_this_object[] __asm__("_end");

static struct { uint64_t first, end; } seen[MAX_SEGMENTS];
static unsigned seen_count;

struct place { uint64_t address; enum proof proof; };

/* Places of one segment, at most MAX_PLACES at a time. */
static struct { unsigned count; struct place list[MAX_PLACES]; } places;

static int is_ours(uint64_t address)
{
  return address >= (uint64_t)first_byte_of_this_object &&
         address < (uint64_t)end_of_this_object;
}

int scan_knows(uint64_t address)
{
  unsigned count = __atomic_load_n(&seen_count, __ATOMIC_ACQUIRE);
  for (unsigned i = 0; i < count; i++)
    if (address >= seen[i].first && address < seen[i].end)
      return 1;
  return 0;
}

/* Collect places; return the address to go on from, the end where there are no more. */
static uint64_t collect(uint64_t address, uint64_t end)
{
  places.count = 0;
  for (; address < end && places.count < MAX_PLACES; address += 2)
    if (*(const uint16_t *)address == OPCODE_STFLE)
      places.list[places.count++] = (struct place){address, UNPROVEN};
  return address;
}

static unsigned first_place_from(uint64_t address)
{
  unsigned low = 0, high = places.count;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (places.list[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

struct look { const struct segment *segment; const struct object *object; };

static void prove(uint64_t first, uint64_t end, void *context)
{
  const struct look *look = context;
  unsigned i = first_place_from(first);
  if (i == places.count || places.list[i].address >= end || first < look->segment->first ||
      end > look->segment->end || !function_follow(first, end, look->object))
    return;
  for (; i < places.count && places.list[i].address < end; i++)
    places.list[i].proof = function_proof(places.list[i].address);
}

/* Look for NAME or NAME+0xOFFSET in a list with colons between. */
static enum rule rule_for(const char *list, const char *name, uint64_t offset)
{
  struct text exact = {.size = 0};
  size_t size = length_of(name);
  enum rule rule = NO_RULE;
  int digits = 1;
  while (digits < 16 && offset >> 4 * digits)
    digits++;
  text_add(&exact, name);
  text_add(&exact, "+0x");
  text_add_hexadecimal(&exact, offset, digits);
  while (*list) {
    size_t item = 0, same = 0;
    for (; list[item] && list[item] != ':'; item++)
      same += item == same && item < exact.size && list[item] == exact.characters[item];
    if (item == same && item == exact.size)
      return THIS_PLACE;
    if (item == same && item == size)
      rule = WHOLE_OBJECT;
    list += item + (list[item] == ':');
  }
  return rule;
}

static void make_it_trap(const struct segment *segment, const struct place *place,
                         const char *name, uint64_t offset)
{
  enum rule rule = rule_for(settings.patch, name, offset);
  int is_stfle = place->proof == INSTRUCTION || rule == THIS_PLACE ||
                 (rule == WHOLE_OBJECT && place->proof == UNPROVEN);
  if (!is_stfle && place->proof == PART)
    return;
  if (rule_for(settings.keep, name, offset) != NO_RULE) {
    statistics_place(name, offset, "kept");
  } else if (!is_stfle) {
    statistics_place(name, offset, "unproven");
  } else if (!code_protect(place->address, 2, PROT_R | PROT_W | PROT_X)) {
    statistics_place(name, offset, "refused");
  } else {
    *(volatile uint16_t *)place->address = OPCODE_STFLE_TRAP;
    code_protect(place->address, 2, segment->protection);
    statistics_place(name, offset, "patched");
  }
}

static const char *name_of(const char *path)
{
  const char *name = *path ? path : "anonymous";
  for (; *path; path++)
    if (*path == '/')
      name = path + 1;
  return name;
}

static void look_through(const struct segment *segment, const struct segment *start)
{
  struct object object = {.bias = segment->first - segment->offset};
  struct look look = {segment, &object};
  uint64_t address = segment->first;
  int is_known = object_of(segment, start, &object);
  while (address < segment->end) {
    address = collect(address, segment->end);
    if (is_known && places.count)
      visit_functions(&object, prove, &look);
    for (unsigned i = 0; i < places.count; i++)
      make_it_trap(segment, &places.list[i], name_of(segment->path),
                   places.list[i].address - object.bias);
  }
}

static int visit(const struct segment *segment, void *context)
{
  struct segment *start = context;
  int is_code = (segment->protection & (PROT_R | PROT_X)) == (PROT_R | PROT_X);
  if (segment->offset == 0)
    *start = *segment;
  if (!is_code || is_ours(segment->first) || scan_knows(segment->first))
    return 0;
  look_through(segment, start);
  seen[seen_count].first = segment->first;
  seen[seen_count].end = segment->end;
  __atomic_store_n(&seen_count, seen_count + 1, __ATOMIC_RELEASE);
  return seen_count == MAX_SEGMENTS;
}

void scan(void)
{
  struct segment start = {.first = 0};
  if (!settings.has_facility || seen_count == MAX_SEGMENTS)
    return;
  code_lock();
  visit_segments(visit, &start);
  code_unlock();
}
