/* SPDX-License-Identifier: Apache-2.0
 * The functions that an object's unwind information names.
 */
#ifndef NNPA_TRAP_UNWIND_H
#define NNPA_TRAP_UNWIND_H

#include "object.h"

typedef void function_visitor(uint64_t first, uint64_t end, void *context);

/* Visit the range of each FDE in .eh_frame. */
void visit_functions(const struct object *object, function_visitor *visitor, void *context);

#endif
