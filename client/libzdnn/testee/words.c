/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS ((size_t)1 << 28)

static const char HEX[] = "0123456789abcdefABCDEF";

/* One `word` or `word*count`; `text` moves behind it. */
typedef struct run {
  uint32_t word;
  unsigned width;
  size_t count;
} run;

static bool next_run(const char **text, run *next) {
  size_t digits = strspn(*text, HEX);
  if (digits == 0 || digits > 8 || digits % 2 != 0) return false;
  next->word = (uint32_t)strtoul(*text, NULL, 16);
  next->width = (unsigned)digits / 2;
  next->count = 1;
  *text += digits;
  if (**text == '*') {
    char *end;
    ++*text;
    next->count = strtoul(*text, &end, 10);
    if (end == *text || next->count == 0) return false;
    *text = end;
  }
  bool end = **text == '\0' || **text == ' ';
  *text += strspn(*text, " ");
  return end;
}

bool words_count(const char *text, unsigned *width, size_t *count) {
  run next;
  *count = 0;
  text += strspn(text, " ");
  while (*text != '\0') {
    if (!next_run(&text, &next)) return false;
    if (*width == 0) *width = next.width;
    if (next.width != *width) return false;
    if (next.count > MAX_WORDS - *count) return false;
    *count += next.count;
  }
  return *width == 0 || *width == 1 || *width == 2 || *width == 4;
}

static void store(uint8_t *to, uint32_t word, unsigned width) {
  uint8_t byte = (uint8_t)word;
  uint16_t half = (uint16_t)word;
  memcpy(to, width == 1 ? (void *)&byte : width == 2 ? (void *)&half : (void *)&word, width);
}

static uint32_t load(const uint8_t *from, unsigned width) {
  uint16_t half;
  uint32_t word;
  if (width == 1) return *from;
  if (width == 2) {
    memcpy(&half, from, width);
    return half;
  }
  memcpy(&word, from, width);
  return word;
}

void words_fill(const char *text, unsigned width, void *to) {
  uint8_t *place = to;
  run next;
  text += strspn(text, " ");
  while (*text != '\0' && next_run(&text, &next))
    for (; next.count > 0; next.count--, place += width) store(place, next.word, width);
}

void words_put(FILE *out, const void *from, unsigned width, size_t count) {
  const uint8_t *place = from;
  fputc('"', out);
  for (size_t at = 0; at < count;) {
    uint32_t word = load(place + at * width, width);
    size_t same = 1;
    while (at + same < count && load(place + (at + same) * width, width) == word) same++;
    fprintf(out, "%s%0*" PRIX32, at == 0 ? "" : " ", (int)(2 * width), word);
    if (same > 1) fprintf(out, "*%zu", same);
    at += same;
  }
  fputc('"', out);
}

unsigned cell_bytes(const zdnn_tensor_desc *transformed) {
  if (transformed->type == ZDNN_BINARY_INT8) return 1;
  return transformed->type == ZDNN_BINARY_INT32 ? 4 : 2;
}

/* Sticks are 128 bytes, 32 of them a page. INT8 weights interleave two rows in a stick.
 * Source: zDNN API Reference 1.2.0, "Stickified tensors". */
enum { PAGE = 4096, STICK = 128, ROWS = 32 };

static bool paired(const zdnn_tensor_desc *desc) {
  return desc->format == ZDNN_FORMAT_4DWEIGHTS && desc->type == ZDNN_BINARY_INT8;
}

static uint64_t columns(const zdnn_tensor_desc *desc) {
  uint64_t cells = paired(desc) ? STICK / 2 : STICK / cell_bytes(desc);
  return (desc->dim1 + cells - 1) / cells;
}

static uint64_t row_blocks(const zdnn_tensor_desc *desc) {
  uint64_t rows = paired(desc) ? 2 * ROWS : ROWS;
  return (desc->dim2 + rows - 1) / rows;
}

uint64_t stick_bytes(const zdnn_tensor_desc *desc) {
  uint64_t planes = (uint64_t)desc->dim4 * desc->dim3;
  uint64_t pages = row_blocks(desc) * columns(desc);
  return planes != 0 && pages > UINT64_MAX / PAGE / planes ? UINT64_MAX : planes * pages * PAGE;
}

typedef struct place {
  uint64_t e4, e3, e2, e1;
} place;

static uint64_t offset(const zdnn_tensor_desc *desc, place at) {
  uint64_t pair = paired(desc) ? 2 : 1, width = cell_bytes(desc);
  uint64_t cells = STICK / width / pair, column = at.e1 / cells;
  uint64_t plane = desc->format == ZDNN_FORMAT_4DKERNEL
                       ? (column * desc->dim4 + at.e4) * desc->dim3 + at.e3
                       : (at.e4 * columns(desc) + column) * desc->dim3 + at.e3;
  uint64_t stick = plane * row_blocks(desc) * ROWS + at.e2 / pair;
  return stick * STICK + (at.e1 % cells * pair + at.e2 % pair) * width;
}

static void step(const zdnn_tensor_desc *desc, place *at) {
  if (++at->e1 < desc->dim1) return;
  at->e1 = 0;
  if (++at->e2 < desc->dim2) return;
  at->e2 = 0;
  if (++at->e3 < desc->dim3) return;
  at->e3 = 0;
  at->e4++;
}

bool codes_fit(const char *text, const zdnn_tensor_desc *desc) {
  unsigned width = cell_bytes(desc);
  size_t count;
  return stick_bytes(desc) <= MAX_WORDS && words_count(text, &width, &count) &&
         count == (uint64_t)desc->dim4 * desc->dim3 * desc->dim2 * desc->dim1;
}

void codes_fill(const char *text, const zdnn_tensor_desc *desc, void *sticks) {
  unsigned width = cell_bytes(desc);
  place at = {0, 0, 0, 0};
  run next;
  text += strspn(text, " ");
  while (*text != '\0' && next_run(&text, &next))
    for (; next.count > 0; next.count--, step(desc, &at))
      store((uint8_t *)sticks + offset(desc, at), next.word, width);
}
