/* SPDX-License-Identifier: Apache-2.0
 * Finds the STFLE instructions of the program and makes them trap. Other code is not changed.
 */
#ifndef NNPA_TRAP_SCAN_H
#define NNPA_TRAP_SCAN_H

#include <stdint.h>

/* Scan executable segments that were not scanned before. */
void scan(void);

/* Return whether an address lies in a segment that was scanned. */
int scan_knows(uint64_t address);

#endif
