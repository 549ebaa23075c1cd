/* SPDX-License-Identifier: Apache-2.0
 * The handler of SIGILL, which answers the instructions that the processor lacks.
 */
#ifndef NNPA_TRAP_HANDLER_H
#define NNPA_TRAP_HANDLER_H

/* Begin to answer in this process: mark the facility behind these variables, and in the code that
 * is there, install the handler, and open SIGILL for this thread. */
void begin_answering(char **environment);

#endif
