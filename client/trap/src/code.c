/* SPDX-License-Identifier: Apache-2.0 */
#include "code.h"

#include "linux.h"

#define PROT_KNOWN 8

static uint64_t holder; /* process and thread that change code; 0 for none */

void code_lock(void)
{
  uint64_t process = (uint64_t)SYS3(NR_GETPID, 0, 0, 0);
  uint64_t self = process << 32 | (uint64_t)SYS3(NR_GETTID, 0, 0, 0);
  for (;;) {
    uint64_t other = __atomic_load_n(&holder, __ATOMIC_ACQUIRE);
    int is_free = other == 0 || other >> 32 != process;
    if (is_free && __atomic_compare_exchange_n(&holder, &other, self, 0, __ATOMIC_ACQ_REL,
                                               __ATOMIC_ACQUIRE))
      return;
    SYS3(NR_SCHED_YIELD, 0, 0, 0);
  }
}

void code_unlock(void)
{
  __atomic_store_n(&holder, 0, __ATOMIC_RELEASE);
}

struct reader {
  long file;
  long size, place;
  char bytes[512];
};

static int next_character(struct reader *reader)
{
  if (reader->place == reader->size) {
    reader->size = SYS3(NR_READ, reader->file, reader->bytes, sizeof reader->bytes);
    reader->place = 0;
    if (reader->size <= 0)
      return -1;
  }
  return (unsigned char)reader->bytes[reader->place++];
}

static uint64_t next_hexadecimal(struct reader *reader, int *end)
{
  uint64_t number = 0;
  for (;;) {
    *end = next_character(reader);
    if (*end >= '0' && *end <= '9')
      number = number << 4 | (uint64_t)(*end - '0');
    else if (*end >= 'a' && *end <= 'f')
      number = number << 4 | (uint64_t)(*end - 'a' + 10);
    else
      return number;
  }
}

/* Read to the end of a word; return the character behind it. */
static int skip_word(struct reader *reader)
{
  int character = next_character(reader);
  while (character > ' ')
    character = next_character(reader);
  return character;
}

static void read_path(struct reader *reader, int character, char *path)
{
  size_t size = 0;
  while (character == ' ')
    character = next_character(reader);
  for (; character >= 0 && character != '\n'; character = next_character(reader))
    if (size < MAX_PATH)
      path[size++] = (char)character;
  path[size < MAX_PATH ? size : 0] = 0;
}

int visit_segments(segment_visitor *visitor, void *context)
{
  struct reader reader = {SYS3(NR_OPEN, "/proc/self/maps", 0x80000, 0), 0, 0, {0}};
  int answer = 0, character = 0;
  if (reader.file < 0)
    return 0;
  while (!answer) {
    struct segment segment;
    segment.first = next_hexadecimal(&reader, &character);
    if (character != '-')
      break;
    segment.end = next_hexadecimal(&reader, &character);
    segment.protection = 0;
    for (int bit = PROT_R; bit <= PROT_X; bit <<= 1)
      segment.protection |= next_character(&reader) == '-' ? 0 : bit;
    skip_word(&reader); /* shared or private */
    segment.offset = next_hexadecimal(&reader, &character);
    skip_word(&reader); /* device */
    read_path(&reader, skip_word(&reader), segment.path); /* behind the inode */
    answer = visitor(&segment, context);
  }
  SYS3(NR_CLOSE, reader.file, 0, 0);
  return answer;
}

struct range { uint64_t first, end; };

/* Return the protection of the segment that has a whole range, and bit 3, so that it is not 0. */
static int protection_around(const struct segment *segment, void *context)
{
  const struct range *range = context;
  int is_around = range->first >= segment->first && range->end <= segment->end;
  return is_around ? segment->protection | PROT_KNOWN : 0;
}

int code_protect(uint64_t address, uint64_t size, int protection)
{
  uint64_t first = address & ~(PAGE - 1);
  uint64_t end = (address + size + PAGE - 1) & ~(PAGE - 1);
  return SYS3(NR_MPROTECT, first, end - first, protection) == 0;
}

int code_open(uint64_t address, uint64_t size)
{
  struct range range = {address, address + size};
  int protection = visit_segments(protection_around, &range);
  if (!protection || !code_protect(address, size, PROT_R | PROT_W | PROT_X))
    return -1;
  return protection & ~PROT_KNOWN;
}
