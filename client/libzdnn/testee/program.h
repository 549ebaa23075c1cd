/* SPDX-License-Identifier: Apache-2.0 */
/* The ztensors of a vector, as a C program holds them: structures and aligned memory of its own. */
#ifndef TESTEE_PROGRAM_H
#define TESTEE_PROGRAM_H

#include "json.h"
#include "zdnn.h"

typedef struct slot {
  int64_t id;
  zdnn_tensor_desc pre, transformed;
  zdnn_ztensor ztensor;
  void *memory; /* what this program has allocated, unlike zdnn_allochelper_ztensor */
  struct slot *next;
} slot;

/* Reads a descriptor; NULL gives zeros. */
zdnn_tensor_desc descriptor_of(const json *line);
void descriptor_put(FILE *out, const zdnn_tensor_desc *desc);

/* Makes the ztensors of a vector. */
slot *program_of(const json *vector);
void program_free(slot *slots);
/* Returns the ztensor of an id, or NULL. */
slot *slot_find(slot *slots, int64_t id);
/* Returns the ztensor of an id; creates an empty one at first use. */
slot *slot_make(slot **slots, int64_t id);
/* Tells what the program sees of a ztensor. */
void slot_put(FILE *out, const slot *seen);

/* Moves the buffers of an operation's ztensors off their 4 KiB boundary, or back. */
void slots_shift(slot *slots, const json *arguments, int bytes);
/* Returns the name of an operand that functions write. */
bool is_output(const char *operand);

/* Allocates zeroed memory on a 4 KiB boundary, or ends the program. */
void *aligned_zeros(size_t size);

#endif
