/* SPDX-License-Identifier: Apache-2.0
 * Source: LSB Core, "Exception Frames"; DWARF 5, 6.4.1 "Structure of Call Frame Information".
 */
#include "unwind.h"

#include "linux.h"

enum encoding { SIZE_MASK = 0x0f, ABSOLUTE = 0x00, UDATA4 = 0x03, UDATA8 = 0x04, SDATA4 = 0x0b,
                SDATA8 = 0x0c, RELATIVE = 0x10, OMITTED = 0xff };

struct bytes { const uint8_t *place, *end; };

static unsigned next_byte(struct bytes *bytes)
{
  return bytes->place < bytes->end ? *bytes->place++ : 0;
}

static void skip_number(struct bytes *bytes)
{
  while (next_byte(bytes) & 0x80)
    continue;
}

static unsigned size_of(unsigned encoding)
{
  unsigned form = encoding & SIZE_MASK;
  if (form == UDATA4 || form == SDATA4)
    return 4;
  return form == ABSOLUTE || form == UDATA8 || form == SDATA8 ? 8 : 0;
}

static uint64_t address_at(const uint8_t *place, unsigned encoding)
{
  uint64_t start = encoding & RELATIVE ? (uint64_t)place : 0;
  uint64_t number = number_at(place, (int)size_of(encoding));
  return start + ((encoding & SIZE_MASK) == SDATA4 ? (uint64_t)(int32_t)number : number);
}

/* Return how a CIE's FDEs write addresses, OMITTED where that is not known here. */
static unsigned encoding_of(struct bytes cie)
{
  unsigned version = next_byte(&cie);
  struct bytes letters = cie;
  unsigned first = next_byte(&letters);
  while (next_byte(&cie))
    continue;
  if ((version != 1 && version != 3) || (first && first != 'z'))
    return OMITTED;
  skip_number(&cie); /* code alignment */
  skip_number(&cie); /* data alignment */
  skip_number(&cie); /* register of the return address, below 128 */
  if (!first)
    return ABSOLUTE;
  skip_number(&cie); /* size of the augmentation data */
  for (unsigned letter = next_byte(&letters); letter; letter = next_byte(&letters)) {
    unsigned encoding = letter == 'R' || letter == 'L' || letter == 'P' ? next_byte(&cie) : 0;
    if (letter == 'R')
      return encoding;
    if (letter == 'P')
      cie.place += size_of(encoding);
  }
  return ABSOLUTE;
}

static void visit_fde(const struct object *object, struct bytes fde, function_visitor *visitor,
                      void *context)
{
  const uint8_t *cie = fde.place - number_at(fde.place, 4);
  if ((uint64_t)cie < object->frames || cie + 8 >= fde.place || number_at(cie + 4, 4))
    return;
  unsigned encoding = encoding_of((struct bytes){cie + 8, fde.place});
  unsigned size = size_of(encoding);
  fde.place += 4;
  if (encoding & ~(unsigned)(SIZE_MASK | RELATIVE) || !size || fde.place + 2 * size > fde.end)
    return;
  uint64_t first = address_at(fde.place, encoding);
  uint64_t length = address_at(fde.place + size, size == 8 ? UDATA8 : UDATA4);
  visitor(first, first + length, context);
}

void visit_functions(const struct object *object, function_visitor *visitor, void *context)
{
  const uint8_t *place = (const uint8_t *)object->frames;
  const uint8_t *end = (const uint8_t *)object->frame_end;
  while (place && end - place >= 8) {
    uint64_t size = number_at(place, 4);
    if (size < 4 || size > (uint64_t)(end - place) - 4)
      return; /* the end, or the format of 64 bits, which no linker for s390x writes */
    place += 4;
    if (number_at(place, 4))
      visit_fde(object, (struct bytes){place, place + size}, visitor, context);
    place += size;
  }
}
