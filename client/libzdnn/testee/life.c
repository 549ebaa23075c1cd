/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a ztensor: init, allocate, transform, read back, free. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"
#include "words.h"

enum { ARRAYS = 4 };
#define LARGEST_ARRAY (1ull << 26) /* bytes */
#define IS(name) (strcmp(function, #name) == 0)

static unsigned array_width(const zdnn_ztensor *ztensor) {
  switch (ztensor->pre_transformed_desc->type) {
    case INT8:
      return 1;
    case FP16:
    case BFLOAT:
      return 2;
    default:
      return 4;
  }
}

static uint64_t product(const zdnn_tensor_desc *desc, int dims) {
  const uint32_t all[] = {desc->dim1, desc->dim2, desc->dim3, desc->dim4};
  uint64_t count = 1;
  for (int i = 0; i < dims && count <= LARGEST_ARRAY; i++) count *= all[i];
  return count > LARGEST_ARRAY ? 0 : count;
}

/* Returns how many dimensions of a pre-transformed descriptor count. */
static int rank(const zdnn_tensor_desc *pre) {
  switch (pre->layout) {
    case ZDNN_1D:
      return 1;
    case ZDNN_2D:
    case ZDNN_2DS:
      return 2;
    case ZDNN_3D:
    case ZDNN_3DS:
      return 3;
    default:
      return 4;
  }
}

/* Returns elements that a function may touch in an array of the user. */
static uint64_t touched(const zdnn_ztensor *ztensor) {
  uint64_t theirs = product(ztensor->pre_transformed_desc, rank(ztensor->pre_transformed_desc));
  uint64_t cells = product(ztensor->transformed_desc, 4);
  return theirs > cells ? theirs : cells;
}

static void *zeros(size_t size) {
  void *memory = calloc(size == 0 ? 1 : size, 1);
  if (memory == NULL) abort();
  return memory;
}

/* Makes the arrays of a transform. One that the vector makes too short is zeros beyond its end: C
 * passes no sizes, and reads what the descriptors call for. */
static void arrays_of(const call *step, const zdnn_ztensor *ztensor, void *arrays[ARRAYS]) {
  const json *text = step->data == NULL ? NULL : step->data->first;
  bool gates = text != NULL && text->next != NULL;
  uint64_t least = gates ? product(ztensor->pre_transformed_desc, 3) : touched(ztensor);
  for (int i = 0; i < ARRAYS; i++, text = text == NULL ? NULL : text->next) {
    unsigned width = 0;
    size_t count = 0, needed = least * array_width(ztensor);
    if (text != NULL && (text->kind != JSON_STRING || !words_count(text->text, &width, &count))) {
      fprintf(stderr, "zdnn-testee: data: no words\n");
      exit(EXIT_FAILURE);
    }
    arrays[i] = zeros(count * width > needed ? count * width : needed);
    if (count > 0) words_fill(text->text, width, arrays[i]);
  }
}

static void flags_put(const call *step) {
  static const struct {
    int flag;
    const char *name;
  } flags[] = {{FE_INVALID, "INVALID"}, {FE_OVERFLOW, "OVERFLOW"}, {FE_UNDERFLOW, "UNDERFLOW"}};
  const char *between = "";
  int raised = fetestexcept(FE_ALL_EXCEPT);
  fputs(", \"fp_flags\": [", step->out);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (raised & flags[i].flag) {
      fprintf(step->out, "%s\"%s\"", between, flags[i].name);
      between = ", ";
    }
  fputc(']', step->out);
}

static void to_sticks(const char *function, const call *step) {
  zdnn_ztensor *ztensor = ztensor_of(step, "ztensor");
  zdnn_status status;
  void *a[ARRAYS];
  arrays_of(step, ztensor, a);
  feclearexcept(FE_ALL_EXCEPT);
  if (IS(transform_ztensor))
    status = zdnn_transform_ztensor(ztensor, a[0], a[1], a[2], a[3]);
  else if (IS(transform_ztensor_with_saturation))
    status = zdnn_transform_ztensor_with_saturation(ztensor, a[0]);
  else
    status = zdnn_transform_quantized_ztensor(ztensor, enum_of(step, "saturation_control") != 0,
                                              (int8_t)enum_of(step, "clip_min"),
                                              (int8_t)enum_of(step, "clip_max"), a[0]);
  status_put(step, status);
  flags_put(step);
  for (int i = 0; i < ARRAYS; i++) free(a[i]);
}

static void to_array(const call *step) {
  zdnn_ztensor *ztensor = ztensor_of(step, "ztensor");
  unsigned width = array_width(ztensor);
  void *array = zeros(touched(ztensor) * width);
  feclearexcept(FE_ALL_EXCEPT);
  zdnn_status status = zdnn_transform_origtensor(ztensor, array);
  status_put(step, status);
  flags_put(step);
  if (status == ZDNN_OK || status == ZDNN_CONVERT_FAILURE ||
      ((uint32_t)status & 0xFFFF0000u) == ZDNN_WARNING) {
    const zdnn_tensor_desc *pre = ztensor->pre_transformed_desc;
    fputs(", \"data_out\": ", step->out);
    words_put(step->out, array, width, product(pre, rank(pre)));
  }
  free(array);
}

static void reshape(const call *step) {
  zdnn_ztensor *src = ztensor_of(step, "src"), *dest = ztensor_of(step, "dest");
  feclearexcept(FE_ALL_EXCEPT);
  status_put(step, zdnn_reshape_ztensor(src, dest));
  flags_put(step);
}

static void range_put(const call *step) {
  float limits[2] = {0, 0};
  zdnn_status status = zdnn_getrange_ztensor(ztensor_of(step, "ztensor"), &limits[0], &limits[1]);
  status_put(step, status);
  if (status != ZDNN_OK) return;
  fputs(", \"range\": [", step->out);
  words_put(step->out, &limits[0], 4, 1);
  fputs(", ", step->out);
  words_put(step->out, &limits[1], 4, 1);
  fputc(']', step->out);
}

static void init(const char *function, const call *step) {
  slot *fresh = slot_make(step->slots, json_integer(json_get(step->arguments, "ztensor")));
  fresh->pre = descriptor_of(json_get(step->arguments, "pre_transformed_desc"));
  fresh->transformed = descriptor_of(json_get(step->arguments, "transformed_desc"));
  memset(&fresh->ztensor, 0, sizeof fresh->ztensor); /* zDNN leaves buffer and size */
  if (IS(init_ztensor))
    zdnn_init_ztensor(&fresh->pre, &fresh->transformed, &fresh->ztensor);
  else
    zdnn_init_quantized_ztensor(&fresh->pre, &fresh->transformed, float_of(step, "scale"),
                                float_of(step, "offset"), &fresh->ztensor);
  status_put(step, ZDNN_OK);
}

static void release(const call *step) {
  zdnn_ztensor *ztensor = ztensor_of(step, "ztensor");
  zdnn_status status = zdnn_free_ztensor_buffer(ztensor);
  if (status == ZDNN_OK) ztensor->buffer = NULL;
  status_put(step, status);
}

bool life_run(const char *function, const call *step) {
  if (IS(transform_ztensor) || IS(transform_ztensor_with_saturation) ||
      IS(transform_quantized_ztensor))
    to_sticks(function, step);
  else if (IS(transform_origtensor))
    to_array(step);
  else if (IS(reshape_ztensor))
    reshape(step);
  else if (IS(getrange_ztensor))
    range_put(step);
  else if (IS(init_ztensor) || IS(init_quantized_ztensor))
    init(function, step);
  else if (IS(allochelper_ztensor))
    status_put(step, zdnn_allochelper_ztensor(ztensor_of(step, "ztensor")));
  else if (IS(free_ztensor_buffer))
    release(step);
  else if (IS(reset_ztensor))
    zdnn_reset_ztensor(ztensor_of(step, "ztensor")), status_put(step, ZDNN_OK);
  else if (IS(init))
    zdnn_init(), status_put(step, ZDNN_OK);
  else if (IS(refresh_nnpa_query_result))
    status_put(step, zdnn_refresh_nnpa_query_result());
  else
    return false;
  return true;
}
