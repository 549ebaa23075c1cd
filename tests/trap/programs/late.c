/* SPDX-License-Identifier: Apache-2.0
 * A library that comes by dlopen, with instructions of its own. */
#include "nnpa.h"

int late_has_nnpa(void)
{
  return stfle_has_nnpa();
}

uint16_t late_add(uint16_t left, uint16_t right)
{
  return add_codes(left, right);
}
