/* SPDX-License-Identifier: Apache-2.0
 * A branch has six bytes, as the conversions have, and six bytes are not stored at once. First the
 * place gets an invalid opcode, then the branch's offset, then its opcode: a thread that executes
 * the place in between traps, waits for the lock, and tries again. Offsets end with a zero byte: a
 * thread that has read the old first half and reads the new second one finds no valid instruction
 * either.
 */
#include "patch.h"

#include "code.h"
#include "conversion.h"
#include "interruption.h"
#include "linux.h"
#include "settings.h"
#include "statistics.h"
#include "text.h"

#define INVALID_OPCODE 0x0000U
#define BRANCH_OPCODE 0xc0f4U
#define CELL 1024UL           /* bytes of a pool for each stub */
#define OFFSET_UNIT 512UL     /* bytes: so far apart, halfword offsets end with a zero byte */
#define POOL_SIZE (256 * CELL)
#define POOLS 64
#define HINTS 64
#define HINT_STEP (16UL << 20)
#define REACH (1UL << 30) /* bytes */

extern const uint8_t stub_begin[], stub_source[], stub_second[], stub_target[], stub_back[],
    stub_function[], stub_end[];

static struct { uint64_t first, used; } pools[POOLS];

static uint64_t distance(uint64_t left, uint64_t right)
{
  return left > right ? left - right : right - left;
}

static uint64_t new_pool(uint64_t place)
{
  for (uint64_t i = 1; i <= HINTS; i++) {
    uint64_t hint = (place & ~(HINT_STEP - 1)) + i * HINT_STEP;
    long mapped =
        system_call_mmap(hint, POOL_SIZE, PROT_R | PROT_X, MAP_PRIVATE_ANONYMOUS, -1, 0);
    if (mapped < 0 && mapped > -4096)
      return 0;
    if (distance((uint64_t)mapped, place) < REACH)
      return (uint64_t)mapped;
    SYS3(NR_MUNMAP, mapped, POOL_SIZE, 0);
  }
  return 0;
}

/* Return the address for a stub of a place, 0 if there is no storage in reach. */
static uint64_t cell_for(uint64_t place)
{
  for (int i = 0; i < POOLS; i++) {
    if (!pools[i].first)
      pools[i].first = new_pool(place);
    if (!pools[i].first)
      return 0;
    if (pools[i].used + CELL > POOL_SIZE || distance(pools[i].first, place) >= REACH)
      continue;
    uint64_t cell = pools[i].first + pools[i].used;
    pools[i].used += CELL;
    return cell + place % OFFSET_UNIT;
  }
  return 0;
}

/* Set the register of a VST or VL. */
static void set_register(uint64_t instruction, unsigned number)
{
  volatile uint8_t *bytes = (volatile uint8_t *)instruction;
  bytes[1] = (uint8_t)((number & 15) << 4);
  bytes[4] = number > 15 ? 8 : 0;
}

static void set_offset(uint64_t branch, uint64_t target)
{
  uint32_t halfwords = (uint32_t)((int64_t)(target - branch) / 2);
  *(volatile uint16_t *)(branch + 4) = (uint16_t)halfwords;
  *(volatile uint16_t *)(branch + 2) = (uint16_t)(halfwords >> 16);
}

static int write_stub(uint64_t stub, uint64_t place, const struct conversion *conversion)
{
  uint64_t size = (uint64_t)(stub_end - stub_begin);
  uint64_t function = (uint64_t)conversion->function;
  int protection = code_open(stub, size);
  if (protection < 0)
    return 0;
  copy_bytes((void *)stub, stub_begin, size);
  set_register(stub + (uint64_t)(stub_source - stub_begin), conversion->source);
  set_register(stub + (uint64_t)(stub_second - stub_begin), conversion->second);
  set_register(stub + (uint64_t)(stub_target - stub_begin), conversion->target);
  set_offset(stub + (uint64_t)(stub_back - stub_begin), place + CONVERSION_SIZE);
  copy_bytes((void *)(stub + (uint64_t)(stub_function - stub_begin)), &function, 8);
  code_protect(stub, size, protection);
  return 1;
}

static void patch(uint64_t place, const struct conversion *conversion)
{
  uint64_t stub = cell_for(place);
  if (!stub || !write_stub(stub, place, conversion))
    return;
  int protection = code_open(place, CONVERSION_SIZE);
  if (protection < 0)
    return;
  *(volatile uint16_t *)place = INVALID_OPCODE;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  set_offset(place, stub);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  *(volatile uint16_t *)place = BRANCH_OPCODE;
  code_protect(place, CONVERSION_SIZE, protection);
  COUNT(patched_places);
}

static void refuse(const struct conversion *conversion, struct frame *frame, uint64_t address)
{
  struct text words = {.size = 0};
  text_add(&words, conversion->name);
  text_add(&words, " with fields of formats that no Telum has");
  text_add_bytes(&words, "", 1);
  complain(words.characters, address);
  interrupt_illegal(frame, address);
}

int answer_conversion(struct frame *frame, uint64_t address)
{
  struct conversion conversion;
  code_lock();
  int is_patched = *(const volatile uint16_t *)address == BRANCH_OPCODE;
  int is_one = !is_patched && conversion_at(address, &conversion);
  if (is_one && conversion.is_specified && settings.patches)
    patch(address, &conversion);
  code_unlock();
  if (is_patched) { /* by another thread, after this one had met the conversion */
    frame->registers.psw_address = address;
    return 1;
  }
  if (!is_one)
    return 0;
  if (!conversion.is_specified) {
    refuse(&conversion, frame, address);
    return 1;
  }
  convert(frame, &conversion);
  COUNT(conversions);
  return 1;
}
