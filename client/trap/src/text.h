/* SPDX-License-Identifier: Apache-2.0
 * Lines of text without a C library: for standard error, metadata and statistics.
 */
#ifndef NNPA_TRAP_TEXT_H
#define NNPA_TRAP_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
  size_t size;
  char characters[1000];
};

void text_add(struct text *text, const char *words);
void text_add_bytes(struct text *text, const char *bytes, size_t size);
void text_add_decimal(struct text *text, uint64_t number);
void text_add_hexadecimal(struct text *text, uint64_t number, int digits);

/* Write a text to a descriptor in one system call. */
void text_write(int descriptor, const struct text *text);

/* One line on standard error: "nnpa-trap: WHAT, instruction at 0xADDRESS". */
void complain(const char *what, uint64_t address);

int same_text(const char *left, const char *right);
size_t length_of(const char *words);

#endif
