/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small library with zDNN's interface for s390x. It issues the NNPA instruction and the vector
 * conversions itself, as IBM's library does. Source: zDNN API Reference 1.2.0.
 */
#ifndef SMALL_ZDNN_LIBRARY_H
#define SMALL_ZDNN_LIBRARY_H

#include <stdarg.h>

#include "zdnn.h"

enum { PAGE = 4096, STICK = 128, ROWS = 32, SAVE_AREA = 8192, PARAMETERS = 10 };

/* One instruction: what goes into its parameter block. Absent tensors are NULL. */
typedef struct request {
  unsigned function, format;
  const zdnn_ztensor *inputs[3];
  zdnn_ztensor *outputs[2];
  uint32_t parameters[PARAMETERS]; /* function-specific parameters 1 to 10 */
  void *save_area;
} request;

/* Issues the instruction; sets is_transformed of what it has written. instruction.c */
zdnn_status perform(const request *asked);
/* Stores 256 bytes of NNPA-QAF. instruction.c */
void query_available_functions(uint8_t stored[256]);

/* machine.c */
bool function_installed(unsigned code);
bool format_installed(unsigned format);

/* DLFLOAT16 and other types, by the vector instructions. convert.c */
uint16_t dlfloat_of(float value);
/* Returns the value of an argument: 0 stays 0, whatever its sign. */
uint16_t scalar_of(float value);
float float_of_dlfloat(uint16_t code);
/* Converts eight elements of a program, `step` elements apart, of which `count` are there. */
void to_dlfloat(uint16_t codes[8], zdnn_data_types type, const void *from, size_t step,
                unsigned count, bool saturate);
void from_dlfloat(void *to, zdnn_data_types type, size_t step, const uint16_t codes[8],
                  unsigned count);

/* Where things are. stick.c */
typedef struct place {
  uint64_t e4, e3, e2, e1;
} place;
uint64_t cell_offset(const zdnn_tensor_desc *transformed, place at);
unsigned cells_of_stick(const zdnn_tensor_desc *transformed);
unsigned dims_of_layout(zdnn_data_layouts layout);
unsigned bytes_of_type(zdnn_data_types type);
uint64_t padded(uint64_t columns);
void *aligned_pages(uint64_t bytes);

/* Verification of descriptors. checks.c */
zdnn_status verify_for_allocation(const zdnn_tensor_desc *transformed);
zdnn_status verify_dimensions(const zdnn_tensor_desc *transformed);
zdnn_status verify_for_sticks(const zdnn_ztensor *ztensor);
zdnn_status verify_for_array(const zdnn_ztensor *ztensor);
bool one_of(unsigned value, unsigned count, ...);

/* Conversion of a whole tensor. software.c */
typedef struct array {
  const zdnn_tensor_desc *pre, *transformed;
  uint8_t *sticks;
} array;
zdnn_status sticks_by_software(const array *target, const void *data, bool saturate);
zdnn_status array_by_software(const array *source, void *data);
/* Conversion of a whole tensor, where the machine's own may serve. transform.c */
zdnn_status sticks_of_data(const array *target, const void *data, bool saturate);
/* Concatenated gates, one array each. concatenated.c */
zdnn_status sticks_of_gates(zdnn_ztensor *ztensor, unsigned gates, va_list arrays);

/* Returns the function that a pair of stacks takes. operations.c */
unsigned matmul_function(const zdnn_ztensor *a, const zdnn_ztensor *b);

#endif
