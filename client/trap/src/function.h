/* SPDX-License-Identifier: Apache-2.0
 * Tells instructions of a function from data and from parts of instructions.
 */
#ifndef NNPA_TRAP_FUNCTION_H
#define NNPA_TRAP_FUNCTION_H

#include "object.h"

enum proof {
  UNPROVEN,    /* it may be one, or data between the instructions */
  INSTRUCTION, /* control reaches it from the function's entry */
  PART,        /* it is a part of an instruction */
};

/* Follow a function of an object from its first byte. Returns 0 where it is not a sequence of
 * instructions. */
int function_follow(uint64_t first, uint64_t end, const struct object *object);

/* Return what is known of a place in the function that was followed last. */
enum proof function_proof(uint64_t address);

#endif
