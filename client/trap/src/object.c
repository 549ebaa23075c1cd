/* SPDX-License-Identifier: Apache-2.0
 * PT_GNU_EH_FRAME leads to .eh_frame. Linkers leave it out of static programs: there the section
 * headers of the file lead to it, which are not in memory; strip keeps them.
 */
#include "object.h"

#include "elf.h"
#include "linux.h"
#include "text.h"

#define IDENTIFICATION 0x7f454c46U
#define ENCODING_PCREL_SDATA4 0x1b
#define FRAMES_NAME ".eh_frame"

static int is_elf(const struct segment *start)
{
  const struct elf_header *elf = (const struct elf_header *)start->first;
  uint64_t room = start->end - start->first;
  return start->protection & PROT_R && room >= sizeof *elf &&
         *(const uint32_t *)elf->identification == IDENTIFICATION &&
         elf->header_count <= MAX_HEADERS && elf->headers < room &&
         elf->header_count * sizeof(struct program_header) <= room - elf->headers;
}

/* Find the loaded part that has a byte of the file, or of memory where `is_address`. */
static const struct program_header *load_with(const struct elf_header *elf, uint64_t place,
                                              int is_address)
{
  const struct program_header *header =
      (const struct program_header *)((uint64_t)elf + elf->headers);
  for (unsigned i = 0; i < elf->header_count; i++, header++) {
    uint64_t first = is_address ? header->address : header->offset;
    uint64_t page = first & ~(PAGE - 1);
    if (header->type == HEADER_LOAD && place >= page && place < first + header->file_size)
      return header;
  }
  return 0;
}

static const struct program_header *header_of_frames(const struct elf_header *elf)
{
  const struct program_header *header =
      (const struct program_header *)((uint64_t)elf + elf->headers);
  for (unsigned i = 0; i < elf->header_count; i++, header++)
    if (header->type == HEADER_FRAMES && header->file_size >= 8)
      return header;
  return 0;
}

static int read_at(long file, void *to, uint64_t size, uint64_t offset)
{
  return SYS4(NR_PREAD64, file, to, size, offset) == (long)size;
}

static int is_named(long file, const struct section_header *names, uint32_t name)
{
  char word[sizeof FRAMES_NAME];
  return read_at(file, word, sizeof word, names->offset + name) &&
         word[sizeof word - 1] == 0 && same_text(word, FRAMES_NAME);
}

/* Return the file's own address of .eh_frame by its section headers, 0 for none. */
static uint64_t section_of_frames(const struct elf_header *elf, long file)
{
  struct elf_header same;
  struct section_header names, section;
  uint64_t size = sizeof section;
  if (!read_at(file, &same, sizeof same, 0) || same.entry != elf->entry ||
      same.sections != elf->sections || elf->section_size != size ||
      !read_at(file, &names, size, elf->sections + elf->names * size))
    return 0;
  for (unsigned i = 1; i < elf->section_count; i++)
    if (read_at(file, &section, size, elf->sections + i * size) &&
        is_named(file, &names, section.name))
      return section.address;
  return 0;
}

static uint64_t frames_of(const struct elf_header *elf, uint64_t bias, const char *path)
{
  const struct program_header *header = header_of_frames(elf);
  if (header && load_with(elf, header->address, 1)) {
    const uint8_t *table = (const uint8_t *)(bias + header->address);
    int is_known = table[0] == 1 && table[1] == ENCODING_PCREL_SDATA4;
    return is_known ? (uint64_t)(table + 4) + (uint64_t)*(const int32_t *)(table + 4) - bias : 0;
  }
  long file = SYS3(NR_OPEN, path, 0x80000, 0);
  if (file < 0)
    return 0;
  uint64_t address = section_of_frames(elf, file);
  SYS3(NR_CLOSE, file, 0, 0);
  return address;
}

int object_of(const struct segment *code, const struct segment *start, struct object *object)
{
  const struct elf_header *elf = (const struct elf_header *)start->first;
  if (!same_text(code->path, start->path) || !is_elf(start))
    return 0;
  const struct program_header *part = load_with(elf, code->offset, 0);
  const struct program_header *first = load_with(elf, 0, 0);
  if (!part || !first || !(part->flags & FLAG_X))
    return 0;
  object->bias = code->first - code->offset + part->offset - part->address;
  if (start->first != object->bias + first->address - first->offset)
    return 0;
  uint64_t frames = frames_of(elf, object->bias, code->path);
  const struct program_header *around = load_with(elf, frames, 1);
  int is_mapped = frames && around && around->flags & FLAG_R;
  object->start = start->first;
  object->frames = is_mapped ? object->bias + frames : 0;
  object->frame_end = is_mapped ? object->bias + around->address + around->file_size : 0;
  return 1;
}

int object_has(const struct object *object, uint64_t address, uint64_t size)
{
  const struct elf_header *elf = (const struct elf_header *)object->start;
  uint64_t place = address - object->bias;
  const struct program_header *part = elf ? load_with(elf, place, 1) : 0;
  return part && part->flags & FLAG_R && place + size <= part->address + part->file_size;
}
