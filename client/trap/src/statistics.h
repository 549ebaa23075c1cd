/* SPDX-License-Identifier: Apache-2.0
 * Counts of this process's work, for `nnpa run --stats`.
 */
#ifndef NNPA_TRAP_STATISTICS_H
#define NNPA_TRAP_STATISTICS_H

#include <stdint.h>

struct statistics {
  uint64_t instructions[256]; /* NNPA, by function code */
  uint64_t traps;             /* signals answered here */
  uint64_t conversions;       /* vector conversions that trapped */
  uint64_t patched_places;    /* conversions that became branches */
  uint64_t nanoseconds;       /* in NNPA, server included */
};

extern struct statistics statistics;

#define COUNT(field) __atomic_fetch_add(&statistics.field, 1, __ATOMIC_RELAXED)

void statistics_clear(void);

/* Append a line at once about a place that looks like STFLE, and whether it was patched. */
void statistics_place(const char *object, uint64_t offset, const char *fate);

/* Append the line of the end once; a second call does nothing. */
void statistics_write(void);

#endif
