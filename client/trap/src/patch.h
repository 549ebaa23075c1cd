/* SPDX-License-Identifier: Apache-2.0
 * Vector conversions that trapped: computed, and replaced by a branch to a stub.
 */
#ifndef NNPA_TRAP_PATCH_H
#define NNPA_TRAP_PATCH_H

#include "frame.h"

/* Carry out the conversion at an address, and patch it, if possible, so that it does not trap
 * again. Returns 0 if there is no conversion. */
int answer_conversion(struct frame *frame, uint64_t address);

#endif
