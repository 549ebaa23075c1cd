/* SPDX-License-Identifier: Apache-2.0 */
/* A ztensor whose sticks are memory of the program, and no allocation is made for. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

#define PAGE 4096
#define ROOM (256 * PAGE)

/* A ztensor, its descriptors and its sticks. */
struct tensor {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor ztensor;
};

/* Ends the program where a call does not answer ZDNN_OK. */
#define MUST(call) must(call, #call)

static inline void must(zdnn_status status, const char *call) {
  if (status != ZDNN_OK) {
    printf("%s: %08x\n", call, status);
    exit(1);
  }
}

/* Returns zeroed sticks of the next `size` bytes of this program's own memory. */
static inline void *next_sticks(uint64_t size) {
  static _Alignas(PAGE) char room[ROOM];
  static uint64_t used;
  void *sticks = room + used;
  used += (size + PAGE - 1) / PAGE * PAGE;
  if (used > ROOM) {
    puts("too little room");
    exit(1);
  }
  return sticks;
}

/* Makes the ztensor of descriptors that are there, its sticks in memory of the program. */
static inline void give_sticks(struct tensor *tensor) {
  zdnn_init_ztensor(&tensor->pre, &tensor->desc, &tensor->ztensor);
  tensor->ztensor.buffer_size = zdnn_getsize_ztensor(&tensor->desc);
  tensor->ztensor.buffer = next_sticks(tensor->ztensor.buffer_size);
}

#endif
