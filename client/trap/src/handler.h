/* SPDX-License-Identifier: Apache-2.0
 * The handler of SIGILL, which answers the instructions that the processor lacks.
 */
#ifndef NNPA_TRAP_HANDLER_H
#define NNPA_TRAP_HANDLER_H

/* Install it, and open SIGILL for this thread. */
void handler_install(void);

#endif
