/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of zDNN by name. */
#ifndef TESTEE_VERBS_H
#define TESTEE_VERBS_H

#include "program.h"

/* One call of a vector: its arguments by C's names, and the ztensors of the program. */
typedef struct call {
  slot **slots;
  const json *arguments;
  const json *data;
  void *area; /* for save_area and work_area */
  FILE *out;
} call;

/* Runs a function and writes `"status": ...` or `"value": ...` and what else C shows. Returns false
 * if there is no such function. */
bool verb_run(const char *function, const call *step);
/* Runs a function that needs no ztensors' contents, and writes `"result": ...` or `"status": ...`. */
bool local_run(const char *function, const json *arguments, FILE *out);

/* Returns an argument that is a ztensor, or a number. */
zdnn_ztensor *ztensor_of(const call *step, const char *operand);
uint32_t enum_of(const call *step, const char *parameter);
float float_of(const call *step, const char *parameter);
/* Writes the outcome of a function that returns a status. */
void status_put(const call *step, zdnn_status status);

/* Operations of the machine, and of the library's life cycle. */
bool operation_run(const char *function, const call *step);
bool life_run(const char *function, const call *step);

#endif
