/* SPDX-License-Identifier: Apache-2.0
 * The file that a segment of code comes from: its load address, and its unwind information.
 */
#ifndef NNPA_TRAP_OBJECT_H
#define NNPA_TRAP_OBJECT_H

#include "code.h"

struct object {
  uint64_t start;             /* address of the file's header in memory; 0 for none */
  uint64_t bias;              /* address in memory less the one in the file */
  uint64_t frames, frame_end; /* .eh_frame in memory, and how far it can reach; 0 for none */
};

/* Describe the file that code was mapped from; `start` is the mapping of the file's first byte.
 * Returns 0 where the two do not fit. */
int object_of(const struct segment *code, const struct segment *start, struct object *object);

/* Return whether some bytes of memory come from the file. */
int object_has(const struct object *object, uint64_t address, uint64_t size);

#endif
