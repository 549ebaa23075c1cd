/* SPDX-License-Identifier: Apache-2.0
 * A sweep by the lengths of instructions has to end where the function ends; then branches are
 * followed from the entry, those by tables of a switch, too. Data in a function, such as a pool of
 * literals that is branched around, may pass the sweep, and are not reached. Nor are instructions
 * that only a handler of exceptions reaches.
 * Source: z/Architecture Principles of Operation, "Instruction Formats", "Branching".
 */
#include "function.h"

#include "linux.h"

#define MAX_SIZE (1UL << 20)
#define MAX_CASES 65536U /* of a switch */

enum mark { BEGINS = 1, REACHED = 2 };

static uint8_t marks[MAX_SIZE / 2]; /* of each halfword */
static uint64_t base;
static const struct object *file;
static int has_jumps; /* branches to addresses in registers, other than returns */

struct flow {
  int goes_on;    /* the next instruction may follow */
  int has_target;
  int is_call;
  int64_t target; /* from this instruction, in bytes */
};

static uint64_t length_at(const uint8_t *code)
{
  return code[0] < 0x40 ? 2 : code[0] < 0xc0 ? 4 : 6;
}

static int64_t near_target(const uint8_t *code)
{
  return 2 * (int64_t)(int16_t)number_at(code + 2, 2);
}

static int64_t far_target(const uint8_t *code)
{
  return 2 * (int64_t)(int32_t)number_at(code + 2, 4);
}

static struct flow relative(unsigned operation, unsigned mask, int64_t target)
{
  if (operation == 4) /* BRC, BRCL */
    return (struct flow){mask != 15, mask != 0, 0, target};
  if (operation == 5) /* BRAS, BRASL */
    return (struct flow){1, 1, 1, target};
  return (struct flow){1, operation == 6 || operation == 7, 0, target}; /* BRCT, BRCTG */
}

static int compares_and_branches(unsigned opcode)
{
  return opcode == 0x44 || opcode == 0x45 || (opcode | 1) == 0x65 || (opcode | 1) == 0x77 ||
         (opcode >= 0x7c && opcode <= 0x7f);
}

static struct flow flow_at(const uint8_t *code)
{
  unsigned mask = code[1] >> 4, low = code[1] & 15;
  switch (code[0]) {
  case 0x00: /* no instruction */
    return (struct flow){0, 0, 0, 0};
  case 0x07: /* BCR */
    return (struct flow){mask != 15 || low == 0, 0, 0, 0};
  case 0x47: /* BC */
    return (struct flow){mask != 15, 0, 0, 0};
  case 0x84: /* BRXH, BRXLE */
  case 0x85:
    return (struct flow){1, 1, 0, near_target(code)};
  case 0xa7:
    return relative(low, mask, near_target(code));
  case 0xc0:
    return relative(low == 4 || low == 5 ? low : 0, mask, far_target(code));
  case 0xcc: /* BRCTH */
    return (struct flow){1, low == 6, 0, far_target(code)};
  case 0xe3: /* BIC */
    return (struct flow){code[5] != 0x47 || mask != 15, 0, 0, 0};
  case 0xec:
    return (struct flow){1, compares_and_branches(code[5]), 0, near_target(code)};
  default:
    return (struct flow){1, 0, 0, 0};
  }
}

/* Compilers put a table of addresses, or of offsets from the table, behind an instruction that
 * loads its address. */
static int is_larl(const uint8_t *code)
{
  return code[0] == 0xc0 && (code[1] & 15) == 0;
}

static int64_t entry_at(uint64_t place, unsigned width)
{
  return width == 4 ? *(const int32_t *)place : *(const int64_t *)place;
}

/* Mark the instructions that a table leads to, up to the first entry that leads to none. Returns
 * whether some were not reached before. */
static int follow_table(uint64_t table, unsigned width, uint64_t start, uint64_t size)
{
  int is_more = 0;
  for (unsigned i = 0; i < MAX_CASES && object_has(file, table + i * width, width); i++) {
    uint64_t target = start + (uint64_t)entry_at(table + i * width, width) - base;
    if (target >= size || target % 2 || !(marks[target / 2] & BEGINS))
      break;
    is_more |= !(marks[target / 2] & REACHED);
    marks[target / 2] |= REACHED;
  }
  return is_more;
}

static int follow_tables(uint64_t table, uint64_t size)
{
  if (table % 4 || table - base < size)
    return 0;
  return follow_table(table, 8, table, size) | follow_table(table, 4, table, size) |
         follow_table(table, 8, 0, size);
}

static int is_jump(const uint8_t *code)
{
  unsigned mask = code[1] >> 4, low = code[1] & 15;
  return mask == 15 && ((code[0] == 0x07 && low != 0 && low != 14) || code[0] == 0x47 ||
                        (code[0] == 0xe3 && code[5] == 0x47));
}

static int sweep(const uint8_t *code, uint64_t size)
{
  uint64_t place = 0;
  has_jumps = 0;
  for (uint64_t i = 0; i < size / 2; i++)
    marks[i] = 0;
  while (place < size) {
    marks[place / 2] = BEGINS;
    has_jumps |= is_jump(code + place);
    place += length_at(code + place);
  }
  return place == size;
}

/* Mark the instructions that control reaches, in one pass from the first to the last. Returns 1
 * where a branch back or a table reached more, -1 where a branch leads into an instruction. */
static int follow_once(const uint8_t *code, uint64_t size)
{
  int goes_on = 1, is_more = 0;
  for (uint64_t place = 0; place < size; place += length_at(code + place)) {
    if (!goes_on && !(marks[place / 2] & REACHED))
      continue;
    marks[place / 2] |= REACHED;
    struct flow flow = flow_at(code + place);
    uint64_t target = place + (uint64_t)flow.target;
    goes_on = flow.goes_on;
    if (has_jumps && is_larl(code + place))
      is_more |= follow_tables(base + place + (uint64_t)far_target(code + place), size);
    if (!flow.has_target || target >= size)
      continue;
    if (flow.is_call && target > place) /* BRAS around a pool of literals */
      goes_on = 0;
    if (!(marks[target / 2] & BEGINS))
      return -1;
    is_more |= target < place && !(marks[target / 2] & REACHED);
    marks[target / 2] |= REACHED;
  }
  return is_more;
}

int function_follow(uint64_t first, uint64_t end, const struct object *object)
{
  const uint8_t *code = (const uint8_t *)first;
  uint64_t size = end - first;
  int answer;
  base = first;
  file = object;
  if (first % 2 || size > MAX_SIZE || !sweep(code, size))
    return 0;
  do
    answer = follow_once(code, size);
  while (answer == 1);
  return answer == 0;
}

enum proof function_proof(uint64_t address)
{
  uint8_t mark = marks[(address - base) / 2];
  return mark & REACHED ? INSTRUCTION : mark & BEGINS ? UNPROVEN : PART;
}
