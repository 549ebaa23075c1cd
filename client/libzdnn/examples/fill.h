/* SPDX-License-Identifier: Apache-2.0 */
/* What the example programs leave out: numbers to work on, and a print of the result. */
#ifndef FILL_H
#define FILL_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Element i is ((i + start) * 7 modulo 23, less 11) / 32. */
static inline void fill_fractions(void *data, uint64_t bytes, uint64_t start) {
  for (uint64_t i = 0; i < bytes / sizeof(float); i++) {
    ((float *)data)[i] = (float)((int)((i + start) * 7 % 23) - 11) / 32;
  }
}

/* Element i is (i + start) * 5 modulo 13, less 6, as FP32. */
static inline void fill_integers(void *data, uint64_t bytes, uint64_t start) {
  for (uint64_t i = 0; i < bytes / sizeof(float); i++) {
    ((float *)data)[i] = (float)((int)((i + start) * 5 % 13) - 6);
  }
}

/* The same as INT8. */
static inline void fill_int8(void *data, uint64_t bytes, uint64_t start) {
  for (uint64_t i = 0; i < bytes; i++) {
    ((int8_t *)data)[i] = (int8_t)((int)((i + start) * 5 % 13) - 6);
  }
}

/* Prints FP32 elements as bits, one a line. */
static inline void print_bits(const void *data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(float); i++) {
    uint32_t bits;
    memcpy(&bits, (const char *)data + i * sizeof bits, sizeof bits);
    printf("%08" PRIX32 "\n", bits);
  }
}

#endif
