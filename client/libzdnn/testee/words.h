/* SPDX-License-Identifier: Apache-2.0 */
/* Words: hexadecimal, most significant digit first, `3E00*64` being 64 times 3E00. In memory a
 * word is an unsigned integer of its width, in the machine's own byte order. */
#ifndef TESTEE_WORDS_H
#define TESTEE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "zdnn.h"

/* Counts the words of a text. Returns false if it is not one, or its words are not `width` bytes
 * each; a width of 0 is set to that of the first word. */
bool words_count(const char *text, unsigned *width, size_t *count);
/* Writes words that words_count has accepted, `width` bytes each. */
void words_fill(const char *text, unsigned width, void *to);
/* Writes `count` words of memory as text with quotes. */
void words_put(FILE *out, const void *from, unsigned width, size_t count);

/* Bytes of one cell of sticks. */
unsigned cell_bytes(const zdnn_tensor_desc *transformed);
/* Bytes of the sticks, whatever the descriptor says; 0 if it has a zero dimension. */
uint64_t stick_bytes(const zdnn_tensor_desc *transformed);
/* Returns whether a text has as many words as there are cells. */
bool codes_fit(const char *text, const zdnn_tensor_desc *transformed);
/* Lays words that fit, in row-major order of the transformed dimensions, into zeroed sticks. */
void codes_fill(const char *text, const zdnn_tensor_desc *transformed, void *sticks);

#endif
