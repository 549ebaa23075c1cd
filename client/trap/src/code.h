/* SPDX-License-Identifier: Apache-2.0
 * The program's code: where its segments are, and changes to instructions in them.
 */
#ifndef NNPA_TRAP_CODE_H
#define NNPA_TRAP_CODE_H

#include <stdint.h>

#define MAX_PATH 1024

struct segment {
  uint64_t first, end;  /* addresses */
  uint64_t offset;      /* in the file */
  int protection;       /* PROT_R and so on */
  char path[MAX_PATH];  /* of the file; empty for none, or if it is too long */
};

typedef int segment_visitor(const struct segment *segment, void *context);

/* Visit the mappings of this process until a visitor returns other than 0, and return that. */
int visit_segments(segment_visitor *visitor, void *context);

/* Give the pages of some bytes a protection; returns 0 if the system refuses. The caller holds
 * the lock. */
int code_protect(uint64_t address, uint64_t size, int protection);

/* Make some bytes of code writable; the caller holds the lock. Returns their present protection,
 * -1 if the system refuses. */
int code_open(uint64_t address, uint64_t size);

/* One thread of the process changes code at a time. A copy of a process inherits no lock. */
void code_lock(void);
void code_unlock(void);

#endif
