/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of getting_started.c that belong to a board: gcc -include board.h. */
#ifndef BOARD_H
#define BOARD_H

/* There is no clock to switch on. */
#define __HAL_RCC_CRC_CLK_ENABLE() ((void)0)

/* Reads the elements of one input from stdin; ends the program when there are no more. */
void acquire_and_process_data(void *in_data);
/* Prints the elements of one output, as C prints floats in hexadecimal. */
void post_process(const void *out_data);
void main_loop();

#endif
