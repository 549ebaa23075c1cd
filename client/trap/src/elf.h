/* SPDX-License-Identifier: Apache-2.0
 * Files of programs and libraries. Source: System V ABI, "Object Files"; LSB, "Exception Frames".
 */
#ifndef NNPA_TRAP_ELF_H
#define NNPA_TRAP_ELF_H

#include <stdint.h>

enum header_type { HEADER_LOAD = 1, HEADER_FRAMES = 0x6474e550 };
enum header_flag { FLAG_X = 1, FLAG_W = 2, FLAG_R = 4 };
enum file_type { FILE_EXECUTABLE = 2, FILE_SHARED = 3 };
enum { MAX_HEADERS = 32 };

struct elf_header {
  uint8_t identification[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, headers, sections;
  uint32_t flags;
  uint16_t size, header_size, header_count, section_size, section_count, names;
};

struct program_header {
  uint32_t type, flags;
  uint64_t offset, address, physical, file_size, memory_size, alignment;
};

struct section_header {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, information;
  uint64_t alignment, entry_size;
};

#endif
