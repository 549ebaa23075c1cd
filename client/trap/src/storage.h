/* SPDX-License-Identifier: Apache-2.0
 * The program's storage, reached by system calls, which report missing storage by a number, not a
 * signal.
 */
#ifndef NNPA_TRAP_STORAGE_H
#define NNPA_TRAP_STORAGE_H

#include <stdint.h>

/* Copy from the program into memory, as far as it may be read. Returns the bytes copied. */
uint64_t storage_fetch(int memory, uint64_t offset, uint64_t address, uint64_t size);

/* Return how many of `size` bytes from an address on the program may read, or write. Copies
 * none. */
uint64_t storage_readable(int memory, uint64_t address, uint64_t size);
uint64_t storage_writable(int memory, uint64_t address, uint64_t size);

/* Copy from memory to the program. Returns whether all of it was stored. */
int storage_store(int memory, uint64_t offset, uint64_t address, uint64_t size);

#endif
