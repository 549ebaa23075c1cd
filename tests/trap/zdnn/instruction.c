/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction: its parameter block, its condition code, its statuses. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

typedef struct tensor_descriptor {
  uint8_t layout, type, reserved[6];
  uint32_t dim4, dim3, dim2, dim1;
  uint64_t address;
} tensor_descriptor;

typedef struct parameter_block {
  uint16_t version;
  uint8_t flags[54];
  uint64_t save_area;
  tensor_descriptor outputs[2];
  uint8_t reserved[64];
  tensor_descriptor inputs[3];
  uint8_t reserved_too[96];
  uint32_t parameters[16];
  uint8_t reserved_as_well[64];
  uint8_t continuation[3584];
} parameter_block;

_Static_assert(sizeof(parameter_block) == 4096, "the block is 4096 bytes");

/* Appends the function code to the file of NNPA_TEST_ISSUED, if there is one. */
static void note(unsigned function) {
  const char *path = getenv("NNPA_TEST_ISSUED");
  if (path == NULL) return;
  char line[16];
  int length = snprintf(line, sizeof line, "%u\n", function);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0 || write(file, line, (size_t)length) != length) abort();
  close(file);
}

/* Returns general register 0; continues while the machine has done a part only. */
static uint64_t issue(unsigned function, void *block, unsigned *condition_code) {
  note(function); /* a call would change the registers below */
  register uint64_t r0 __asm__("r0") = function;
  register void *r1 __asm__("r1") = block;
  unsigned condition;
  __asm__ volatile(
      "0:\n\t.insn rre,0xb93b0000,0,0\n\t"
      "jo 0b\n\t"
      "ipm %1\n\tsrl %1,28"
      : "+d"(r0), "=&d"(condition)
      : "d"(r1)
      : "memory", "cc");
  *condition_code = condition & 3;
  return r0;
}

void query_available_functions(uint8_t stored[256]) {
  uint64_t block[32];
  unsigned condition_code;
  memset(block, 0, sizeof block);
  issue(NNPA_QAF, block, &condition_code);
  memcpy(stored, block, sizeof block);
}

static void describe(tensor_descriptor *described, const zdnn_ztensor *ztensor) {
  if (ztensor == NULL) return;
  const zdnn_tensor_desc *desc = ztensor->transformed_desc;
  described->layout = (uint8_t)desc->format;
  described->type = (uint8_t)desc->type;
  described->dim4 = desc->dim4;
  described->dim3 = desc->dim3;
  described->dim2 = desc->dim2;
  described->dim1 = desc->dim1;
  described->address = (uintptr_t)ztensor->buffer;
}

static void populate(parameter_block *block, const request *asked, void *save_area) {
  memset(block, 0, sizeof *block);
  block->version = (uint16_t)asked->format;
  block->save_area = (uintptr_t)save_area;
  for (int i = 0; i < 2; i++) describe(&block->outputs[i], asked->outputs[i]);
  for (int i = 0; i < 3; i++) describe(&block->inputs[i], asked->inputs[i]);
  memcpy(block->parameters, asked->parameters, sizeof asked->parameters);
}

/* Maps register 0 to a status. Bits 0-15 are the response code, 24-31 the exception flags. */
static zdnn_status status_of(uint64_t r0, unsigned condition_code) {
  unsigned flags = r0 >> 32 & 0xff;
  if (condition_code != 0) return (zdnn_status)(ZDNN_HW_ERROR + (unsigned)(r0 >> 48));
  if (flags & 0x80) return ZDNN_ELEMENT_RANGE_VIOLATION;
  return flags == 0 ? ZDNN_OK : ZDNN_UNSUPPORTED_AIU_EXCEPTION;
}

zdnn_status perform(const request *asked) {
  parameter_block block __attribute__((aligned(8)));
  bool saves = asked->function == NNPA_SOFTMAX || asked->function == NNPA_REDUCE;
  void *own = NULL;
  unsigned condition_code;
  if (!format_installed(asked->format)) return ZDNN_UNAVAILABLE_FUNCTION;
  if (saves && asked->save_area == NULL) {
    own = aligned_pages(SAVE_AREA);
    if (own == NULL) return ZDNN_ALLOCATION_FAILURE;
  }
  populate(&block, asked, own != NULL ? own : asked->save_area);
  uint64_t r0 = issue(asked->function, &block, &condition_code);
  free(own);
  zdnn_status status = status_of(r0, condition_code);
  if (status != ZDNN_OK && status != ZDNN_ELEMENT_RANGE_VIOLATION) return status;
  asked->outputs[0]->is_transformed = true;
  if (asked->function == NNPA_LSTMACT) asked->outputs[1]->is_transformed = true;
  return status;
}
