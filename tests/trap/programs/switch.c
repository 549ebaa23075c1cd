/* SPDX-License-Identifier: Apache-2.0
 * Asks by STFLE in a case of a switch, to which only a table of addresses leads. */
#include "nnpa.h"

static __attribute__((noinline)) int chosen(int word)
{
  switch (word) {
  case 'a': return stfle_has_nnpa();
  case 'b': return puts("b");
  case 'c': return printf("%d\n", 3);
  case 'd': return putchar(word);
  case 'e': return fflush(stdout);
  case 'f': return printf("%s\n", "f");
  default: return 2;
  }
}

int main(int count, char **words)
{
  (void)count;
  printf("%d\n", chosen(words[1][0]));
  return 0;
}
