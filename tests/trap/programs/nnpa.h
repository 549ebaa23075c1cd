/* SPDX-License-Identifier: Apache-2.0
 * The instruction, and what the programs of the tests say with it. Values are DLFLOAT16 codes.
 */
#ifndef NNPA_TEST_H
#define NNPA_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE 0x3e00
#define TWO 0x4000
#define THREE 0x4100
#define LARGEST 0x7ffe

struct tensor_descriptor {
  uint8_t layout, type, reserved[6];
  uint32_t dim4, dim3, dim2, dim1;
  uint64_t address;
};

struct parameter_block {
  uint16_t version;
  uint8_t reserved[54];
  uint64_t save_area;
  struct tensor_descriptor outputs[2];
  uint8_t reserved_too[64];
  struct tensor_descriptor inputs[3];
  uint8_t reserved_as_well[96];
  uint32_t parameters[32];
  uint8_t continuation[3584];
};

struct outcome {
  uint64_t general_register_0;
  int condition_code;
};

static inline struct outcome nnpa(unsigned function, void *block)
{
  register uint64_t r0 __asm__("r0") = function;
  register void *r1 __asm__("r1") = block;
  int condition;
  __asm__ volatile(".insn rre,0xb93b0000,0,0\n\tipm %1\n\tsrl %1,28"
                   : "+d"(r0), "=d"(condition)
                   : "d"(r1)
                   : "memory", "cc");
  return (struct outcome){r0, condition};
}

static inline int stfle_has_nnpa(void)
{
  uint64_t list[32] = {0};
  register uint64_t r0 __asm__("r0") = 31;
  __asm__ volatile(".insn s,0xb2b00000,%1" : "+d"(r0), "=Q"(list) : : "cc");
  return (int)(list[165 / 64] >> (63 - 165 % 64) & 1);
}

static inline uint16_t *page_of(uint16_t value)
{
  uint16_t *page = aligned_alloc(4096, 4096);
  for (int i = 0; i < 2048; i++)
    page[i] = value;
  return page;
}

static inline struct tensor_descriptor vector_of(uint16_t *page)
{
  return (struct tensor_descriptor){.dim4 = 1, .dim3 = 1, .dim2 = 1, .dim1 = 64,
                                    .address = (uint64_t)page};
}

/* Describe ADD of two vectors of 64 elements. */
static inline void describe_add(struct parameter_block *block, uint16_t *a, uint16_t *b,
                                uint16_t *sum)
{
  memset(block, 0, sizeof *block);
  block->inputs[0] = vector_of(a);
  block->inputs[1] = vector_of(b);
  block->outputs[0] = vector_of(sum);
}

/* Add two codes by the machine, all 64 elements; returns the sum's first, 0xdead where they differ
 * or the instruction did not end with condition code 0. */
static inline uint16_t add_codes(uint16_t left, uint16_t right)
{
  struct parameter_block *block = aligned_alloc(8, sizeof *block);
  uint16_t *a = page_of(left), *b = page_of(right), *sum = page_of(0);
  describe_add(block, a, b, sum);
  struct outcome outcome = nnpa(16, block);
  uint16_t first = sum[0];
  for (int i = 1; i < 64; i++)
    if (sum[i] != first)
      first = 0xdead;
  if (outcome.condition_code)
    first = 0xdead;
  free(a), free(b), free(sum), free(block);
  return first;
}

#endif
