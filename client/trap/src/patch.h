/* SPDX-License-Identifier: Apache-2.0
 * Vector conversions that trapped: computed, and replaced by a branch to a stub.
 */
#ifndef NNPA_TRAP_PATCH_H
#define NNPA_TRAP_PATCH_H

#include "frame.h"

/* Carry out the conversion at an address, and have it not trap again where that can be. Returns 0
 * where there is no conversion. */
int answer_conversion(struct frame *frame, uint64_t address);

#endif
