/* SPDX-License-Identifier: Apache-2.0
 * Prints what three functions that nothing proves find. */
#include <stdio.h>

int without_unwind(void), with_tail(void), by_address(void);

int main(void)
{
  printf("%d %d %d\n", without_unwind(), with_tail(), by_address());
  return 0;
}
