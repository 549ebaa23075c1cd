/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that only C can have: variadic ones, FILE streams, <fenv.h>, the loader's
 * constructor. */
#include "zdnn.h"

#include <execinfo.h>
#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ARRAYS 4
#define MAX_FRAMES 30 /* frames of the library's diagnosis */

_Static_assert(sizeof(zdnn_tensor_desc) == 28, "zdnn_tensor_desc");
_Static_assert(sizeof(zdnn_ztensor) == 64, "zdnn_ztensor");
_Static_assert(offsetof(zdnn_ztensor, rec_scale) == 36, "zdnn_ztensor.rec_scale");
_Static_assert(sizeof(zdnn_status) == 4 && sizeof(zdnn_data_types) == 4, "enums");

/* The core, src/. */
void nnpa_load(void);
void nnpa_unload(void);
int nnpa_layout_rank(uint32_t layout);
int nnpa_layout_arrays(uint32_t layout);
bool nnpa_has_function(int code);
bool nnpa_has_parmblk_format(int number);
zdnn_status nnpa_transform(zdnn_ztensor *ztensor, const void *const *data);
zdnn_status nnpa_transform_with_saturation(zdnn_ztensor *ztensor, const void *const *data);

/* Functions that the core calls. */
void nnpa_print(bool to_stderr, const char *text, size_t size);
void nnpa_backtrace(void);
void nnpa_raise_flags(uint32_t flags);

__attribute__((constructor)) static void load(void) { nnpa_load(); }

__attribute__((destructor)) static void unload(void) { nnpa_unload(); }

void nnpa_print(bool to_stderr, const char *text, size_t size) {
  FILE *stream = to_stderr ? stderr : stdout;
  flockfile(stream);
  fwrite(text, 1, size, stream);
  putc_unlocked('\n', stream);
  funlockfile(stream);
}

void nnpa_backtrace(void) {
  void *frames[MAX_FRAMES];
  int count = backtrace(frames, MAX_FRAMES);
  char **names = backtrace_symbols(frames, count);
  for (int i = 0; names != NULL && i < count; i++) {
    printf("%s\n", names[i]);
  }
  free(names);
}

/* Bits as in FpFlags of the wire contract. */
void nnpa_raise_flags(uint32_t flags) {
  int raised = 0;
  raised |= flags & 1 ? FE_INVALID : 0;
  raised |= flags & 2 ? FE_OVERFLOW : 0;
  raised |= flags & 4 ? FE_UNDERFLOW : 0;
  feclearexcept(FE_ALL_EXCEPT);
  feraiseexcept(raised);
  if (!(flags & 8)) {
    feclearexcept(FE_INEXACT); /* some machines raise it along with overflow and underflow */
  } else {
    feraiseexcept(FE_INEXACT);
  }
}

void zdnn_init_pre_transformed_desc(zdnn_data_layouts layout, zdnn_data_types type,
                                    zdnn_tensor_desc *pre_tfrmd_desc, ...) {
  if (pre_tfrmd_desc == NULL) {
    return;
  }
  pre_tfrmd_desc->layout = layout;
  pre_tfrmd_desc->type = type;
  uint32_t *sizes[] = {&pre_tfrmd_desc->dim4, &pre_tfrmd_desc->dim3, &pre_tfrmd_desc->dim2,
                       &pre_tfrmd_desc->dim1};
  va_list dims;
  va_start(dims, pre_tfrmd_desc);
  for (int i = 4 - nnpa_layout_rank(layout); i < 4; i++) {
    *sizes[i] = va_arg(dims, uint32_t);
  }
  va_end(dims);
}

zdnn_status zdnn_transform_ztensor(zdnn_ztensor *ztensor, ...) {
  const void *data[MAX_ARRAYS] = {NULL};
  va_list arrays;
  va_start(arrays, ztensor);
  int count = nnpa_layout_arrays(ztensor->transformed_desc->layout);
  for (int i = 0; i < count; i++) {
    data[i] = va_arg(arrays, const void *);
  }
  va_end(arrays);
  return nnpa_transform(ztensor, data);
}

zdnn_status zdnn_transform_ztensor_with_saturation(zdnn_ztensor *ztensor, ...) {
  va_list arrays;
  va_start(arrays, ztensor);
  const void *data[MAX_ARRAYS] = {va_arg(arrays, const void *)};
  va_end(arrays);
  return nnpa_transform_with_saturation(ztensor, data);
}

bool zdnn_is_nnpa_function_installed(int count, ...) {
  bool all = true;
  va_list codes;
  va_start(codes, count);
  for (int i = 0; all && i < count; i++) {
    all = nnpa_has_function(va_arg(codes, int));
  }
  va_end(codes);
  return all;
}

bool zdnn_is_nnpa_parmblk_fmt_installed(int count, ...) {
  bool all = true;
  va_list formats;
  va_start(formats, count);
  for (int i = 0; all && i < count; i++) {
    all = nnpa_has_parmblk_format(va_arg(formats, int));
  }
  va_end(formats);
  return all;
}
