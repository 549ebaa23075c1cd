/* SPDX-License-Identifier: Apache-2.0 */
/* One vector, in a process of its own: a program check ends only that. */
#ifndef TESTEE_RUN_H
#define TESTEE_RUN_H

#include "json.h"

typedef struct options {
  bool frames;         /* frames rather than lines */
  bool emulated;       /* the library takes machine and version from the environment */
  const char *machine; /* where this runs, NULL: ask the library */
  const char *file;    /* stem of lines that come from stdin */
  const char *note;    /* of a heading before the answers, NULL: none */
} options;

/* Returns the machine that this is: what the options say, or the library. */
const char *machine_here(const options *chosen);

/* Runs one vector and writes its answer, one JSON object without a newline. `stem` is its file. */
void vector_run(const options *chosen, const char *stem, bool local, const json *vector, FILE *out);

#endif
