/* SPDX-License-Identifier: Apache-2.0
 * The program's code: where its segments are, and changes to instructions in them.
 */
#ifndef NNPA_TRAP_CODE_H
#define NNPA_TRAP_CODE_H

#include <stdint.h>

struct segment {
  uint64_t first, end; /* addresses */
  int protection;      /* PROT_R and so on */
};

typedef int segment_visitor(const struct segment *segment, void *context);

/* Visit the mappings of this process until a visitor returns other than 0, and return that. */
int visit_segments(segment_visitor *visitor, void *context);

/* Make some bytes of code writable, and give them their own protection back. Returns 0 where the
 * system refuses. Only who holds the lock may call them. */
int code_open(uint64_t address, uint64_t size, struct segment *segment);
void code_close(uint64_t address, uint64_t size, const struct segment *segment);

/* One thread of the process changes code at a time. A copy of a process inherits no lock. */
void code_lock(void);
void code_unlock(void);

#endif
