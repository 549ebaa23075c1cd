/* SPDX-License-Identifier: Apache-2.0
 * Loads a static program as the kernel would, into a process that answers NNPA already:
 * nnpa-trap-static PROGRAM ARGUMENTS. Nothing of a C library is in it.
 * Source: System V ABI, "Program Loading"; s390x ABI supplement, "Process Initialization".
 */
#include "../src/elf.h"
#include "../src/handler.h"
#include "../src/linux.h"
#include "../src/settings.h"
#include "../src/text.h"

enum auxiliary { AUX_PHDR = 3, AUX_PHNUM = 5, AUX_ENTRY = 9, AUX_EXECFN = 31 };
enum { MAP_PRIVATE_FIXED = 0x12 };

struct image { struct elf_header elf; struct program_header headers[MAX_HEADERS]; };

static int failed(long answer)
{
  return answer < 0 && answer > -4096;
}

static int is_load(const struct program_header *header)
{
  return header->type == HEADER_LOAD;
}

static int read_image(long file, struct image *image)
{
  if (SYS4(NR_PREAD64, file, &image->elf, sizeof image->elf, 0) != sizeof image->elf ||
      image->elf.header_count > MAX_HEADERS)
    return 0;
  long size = image->elf.header_count * (long)sizeof *image->headers;
  return SYS4(NR_PREAD64, file, image->headers, size, image->elf.headers) == size;
}

/* Find room for a program that may lie anywhere; one with addresses of its own has them. */
static long base_of(const struct image *image)
{
  uint64_t end = 0;
  if (image->elf.type != FILE_SHARED)
    return 0;
  for (int i = 0; i < image->elf.header_count; i++)
    if (is_load(&image->headers[i]))
      end = image->headers[i].address + image->headers[i].memory_size;
  return system_call_mmap(0, end + PAGE, 0, MAP_PRIVATE_ANONYMOUS, -1, 0);
}

/* Map one segment; memory behind its bytes in the file is zero. */
static int map_segment(long file, uint64_t base, const struct program_header *header)
{
  uint64_t address = base + header->address, skew = address % PAGE;
  uint64_t file_end = address + header->file_size, end = address + header->memory_size;
  uint64_t boundary = (file_end + PAGE - 1) & ~(PAGE - 1);
  int protection = (header->flags & FLAG_R ? PROT_R : 0) | (header->flags & FLAG_W ? PROT_W : 0) |
                   (header->flags & FLAG_X ? PROT_X : 0);
  if (header->file_size &&
      failed(system_call_mmap(address - skew, header->file_size + skew, protection,
                              MAP_PRIVATE_FIXED, file, header->offset - skew)))
    return 0;
  if (end > file_end && header->flags & FLAG_W && header->file_size)
    clear_bytes((void *)file_end, (end < boundary ? end : boundary) - file_end);
  if (!header->file_size)
    boundary = address - skew;
  return end <= boundary ||
         !failed(system_call_mmap(boundary, end - boundary, protection,
                                  MAP_PRIVATE_FIXED | MAP_PRIVATE_ANONYMOUS, -1, 0));
}

static uint64_t headers_in_memory(const struct image *image, uint64_t base)
{
  for (int i = 0; i < image->elf.header_count; i++) {
    const struct program_header *header = &image->headers[i];
    if (is_load(header) && header->offset <= image->elf.headers &&
        image->elf.headers < header->offset + header->file_size)
      return base + header->address + image->elf.headers - header->offset;
  }
  return 0;
}

static void describe(uint64_t *auxiliary, const struct image *image, uint64_t base,
                     const char *name)
{
  for (; auxiliary[0]; auxiliary += 2) {
    if (auxiliary[0] == AUX_PHDR)
      auxiliary[1] = headers_in_memory(image, base);
    if (auxiliary[0] == AUX_PHNUM)
      auxiliary[1] = image->elf.header_count;
    if (auxiliary[0] == AUX_ENTRY)
      auxiliary[1] = base + image->elf.entry;
    if (auxiliary[0] == AUX_EXECFN)
      auxiliary[1] = (uint64_t)name;
  }
}

static uint64_t refuse(const char *what)
{
  complain(what, 0);
  return 0;
}

/* Load the program that the first argument names; the stack is given as the kernel leaves it.
 * Returns the address where the program begins, 0 for failure. The number of arguments, one less,
 * is where the program finds it. */
__attribute__((visibility("default"))) uint64_t load_program(uint64_t *stack)
{
  uint64_t count = stack[0];
  char **arguments = (char **)(stack + 1), **environment = arguments + count + 1;
  struct image image;
  if (count < 2)
    return refuse("nnpa-trap-static PROGRAM ARGUMENTS");
  settings_read(environment);
  long file = SYS3(NR_OPEN, arguments[1], 0x80000, 0);
  if (file < 0 || !read_image(file, &image))
    return refuse("the program cannot be read");
  long base = base_of(&image);
  if (failed(base))
    return refuse("there is no room for the program");
  for (int i = 0; i < image.elf.header_count; i++)
    if (is_load(&image.headers[i]) && !map_segment(file, (uint64_t)base, &image.headers[i]))
      return refuse("a segment of the program cannot be mapped");
  SYS3(NR_CLOSE, file, 0, 0);
  char **end = environment;
  while (*end)
    end++;
  describe((uint64_t *)(end + 1), &image, (uint64_t)base, arguments[1]);
  begin_answering(environment);
  stack[1] = count - 1;
  return (uint64_t)base + image.elf.entry;
}
