/* SPDX-License-Identifier: Apache-2.0
 * The operands of each function, and how much storage a tensor takes.
 */
#ifndef NNPA_TRAP_TENSORS_H
#define NNPA_TRAP_TENSORS_H

#include <stdint.h>

enum role { INPUT_1 = 1, INPUT_2, INPUT_3, OUTPUT_1 = 17, OUTPUT_2, SAVE_AREA = 33 };

#define SAVE_AREA_SIZE 8192U

struct operand {
  enum role role;
  uint64_t address;
  uint64_t size; /* 0 if the machine takes no tensor of this descriptor */
};

/* List the operands that a function has by its parameter block; returns how many, 6 at most. */
int operands_of(uint8_t code, const uint8_t *block, struct operand *operands);

#endif
