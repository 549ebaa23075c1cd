/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "linux.h"

size_t length_of(const char *words)
{
  size_t size = 0;
  while (words[size])
    size++;
  return size;
}

int same_text(const char *left, const char *right)
{
  while (*left && *left == *right)
    left++, right++;
  return *left == *right;
}

void text_add_bytes(struct text *text, const char *bytes, size_t size)
{
  for (size_t i = 0; i < size && text->size < sizeof text->characters; i++)
    text->characters[text->size++] = bytes[i];
}

void text_add(struct text *text, const char *words)
{
  text_add_bytes(text, words, length_of(words));
}

void text_add_decimal(struct text *text, uint64_t number)
{
  char digits[20];
  size_t place = sizeof digits;
  do {
    digits[--place] = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  text_add_bytes(text, digits + place, sizeof digits - place);
}

void text_add_hexadecimal(struct text *text, uint64_t number, int digits)
{
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    text_add_bytes(text, &"0123456789abcdef"[number >> shift & 15], 1);
}

void text_write(int descriptor, const struct text *text)
{
  SYS3(NR_WRITE, descriptor, text->characters, text->size);
}

void complain(const char *what, uint64_t address)
{
  struct text line = {.size = 0};
  text_add(&line, "nnpa-trap: ");
  text_add(&line, what);
  if (address) {
    text_add(&line, ", instruction at 0x");
    text_add_hexadecimal(&line, address, 16);
  }
  text_add(&line, "\n");
  text_write(2, &line);
}
