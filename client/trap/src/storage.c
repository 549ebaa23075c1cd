/* SPDX-License-Identifier: Apache-2.0
 * A system call that takes a buffer looks at all of it first, and answers EFAULT.
 */
#include "storage.h"

#include "linux.h"

#define BEYOND_THE_END (1L << 62) /* nothing is read from there, yet the buffer is looked at */
#define NOWHERE (-1L)             /* nothing can be written there, which is found out later */

enum access { FETCH, PROBE_READ, PROBE_WRITE };

/* Move storage to the shared memory by pwrite64, or from there by pread64. */
static int moves(enum system_call call, int memory, uint64_t offset, uint64_t address,
                 uint64_t size)
{
  while (size) {
    long moved = SYS4(call, memory, address, size, offset);
    if (moved == -ERR_INTR)
      continue;
    if (moved <= 0)
      return 0;
    address += (uint64_t)moved;
    offset += (uint64_t)moved;
    size -= (uint64_t)moved;
  }
  return 1;
}

static int succeeds(enum access access, int memory, uint64_t offset, uint64_t address,
                    uint64_t size)
{
  if (address + size < address)
    return 0;
  if (access == PROBE_READ)
    return SYS4(NR_PWRITE64, memory, address, size, NOWHERE) == -ERR_INVAL;
  if (access == PROBE_WRITE)
    return SYS4(NR_PREAD64, memory, address, size, BEYOND_THE_END) == 0;
  return moves(NR_PWRITE64, memory, offset, address, size);
}

/* Find by bisection where accessible storage ends: on a boundary of pages. */
static uint64_t reach(enum access access, int memory, uint64_t offset, uint64_t address,
                      uint64_t size)
{
  if (!size || succeeds(access, memory, offset, address, size))
    return size;
  uint64_t to_boundary = PAGE - address % PAGE;
  uint64_t low = 0, high = 1 + (size > to_boundary ? (size - to_boundary + PAGE - 1) / PAGE : 0);
  while (low + 1 < high) { /* low pages are accessible, high are not */
    uint64_t middle = low + (high - low) / 2;
    uint64_t bytes = to_boundary + (middle - 1) * PAGE;
    if (succeeds(access, memory, offset, address, bytes))
      low = middle;
    else
      high = middle;
  }
  return low ? to_boundary + (low - 1) * PAGE : 0;
}

uint64_t storage_fetch(int memory, uint64_t offset, uint64_t address, uint64_t size)
{
  return reach(FETCH, memory, offset, address, size);
}

uint64_t storage_readable(int memory, uint64_t address, uint64_t size)
{
  return reach(PROBE_READ, memory, 0, address, size);
}

uint64_t storage_writable(int memory, uint64_t address, uint64_t size)
{
  return reach(PROBE_WRITE, memory, 0, address, size);
}

int storage_store(int memory, uint64_t offset, uint64_t address, uint64_t size)
{
  return moves(NR_PREAD64, memory, offset, address, size);
}
