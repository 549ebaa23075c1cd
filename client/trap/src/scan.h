/* SPDX-License-Identifier: Apache-2.0
 * The places where the program asks by STFLE, made to trap. Code that is not STFLE stays as it is.
 */
#ifndef NNPA_TRAP_SCAN_H
#define NNPA_TRAP_SCAN_H

#include <stdint.h>

/* Look through executable segments that were not seen before. */
void scan(void);

/* Whether an address lies in a segment that was looked through. */
int scan_knows(uint64_t address);

#endif
