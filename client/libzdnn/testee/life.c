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
static void arrays_of(const call *one, const zdnn_ztensor *ztensor, void *arrays[ARRAYS]) {
  const json *text = one->data == NULL ? NULL : one->data->first;
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

static void flags_put(const call *one) {
  static const struct {
    int flag;
    const char *name;
  } flags[] = {{FE_INVALID, "INVALID"}, {FE_OVERFLOW, "OVERFLOW"}, {FE_UNDERFLOW, "UNDERFLOW"}};
  const char *between = "";
  int raised = fetestexcept(FE_ALL_EXCEPT);
  fputs(", \"fp_flags\": [", one->out);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (raised & flags[i].flag) {
      fprintf(one->out, "%s\"%s\"", between, flags[i].name);
      between = ", ";
    }
  fputc(']', one->out);
}

static void to_sticks(const char *function, const call *one) {
  zdnn_ztensor *ztensor = ztensor_of(one, "ztensor");
  zdnn_status status;
  void *a[ARRAYS];
  arrays_of(one, ztensor, a);
  feclearexcept(FE_ALL_EXCEPT);
  if (IS(transform_ztensor))
    status = zdnn_transform_ztensor(ztensor, a[0], a[1], a[2], a[3]);
  else if (IS(transform_ztensor_with_saturation))
    status = zdnn_transform_ztensor_with_saturation(ztensor, a[0]);
  else
    status = zdnn_transform_quantized_ztensor(ztensor, enum_of(one, "saturation_control") != 0,
                                              (int8_t)enum_of(one, "clip_min"),
                                              (int8_t)enum_of(one, "clip_max"), a[0]);
  status_put(one, status);
  flags_put(one);
  for (int i = 0; i < ARRAYS; i++) free(a[i]);
}

static void to_array(const call *one) {
  zdnn_ztensor *ztensor = ztensor_of(one, "ztensor");
  unsigned width = array_width(ztensor);
  void *array = zeros(touched(ztensor) * width);
  feclearexcept(FE_ALL_EXCEPT);
  zdnn_status status = zdnn_transform_origtensor(ztensor, array);
  status_put(one, status);
  flags_put(one);
  if (status == ZDNN_OK || status == ZDNN_CONVERT_FAILURE ||
      ((uint32_t)status & 0xFFFF0000u) == ZDNN_WARNING) {
    const zdnn_tensor_desc *pre = ztensor->pre_transformed_desc;
    fputs(", \"data_out\": ", one->out);
    words_put(one->out, array, width, product(pre, rank(pre)));
  }
  free(array);
}

static void reshape(const call *one) {
  zdnn_ztensor *src = ztensor_of(one, "src"), *dest = ztensor_of(one, "dest");
  feclearexcept(FE_ALL_EXCEPT);
  status_put(one, zdnn_reshape_ztensor(src, dest));
  flags_put(one);
}

static void range_put(const call *one) {
  float limits[2] = {0, 0};
  zdnn_status status = zdnn_getrange_ztensor(ztensor_of(one, "ztensor"), &limits[0], &limits[1]);
  status_put(one, status);
  if (status != ZDNN_OK) return;
  fputs(", \"range\": [", one->out);
  words_put(one->out, &limits[0], 4, 1);
  fputs(", ", one->out);
  words_put(one->out, &limits[1], 4, 1);
  fputc(']', one->out);
}

static void init(const char *function, const call *one) {
  slot *made = slot_make(one->slots, json_integer(json_get(one->arguments, "ztensor")));
  made->pre = descriptor_of(json_get(one->arguments, "pre_transformed_desc"));
  made->transformed = descriptor_of(json_get(one->arguments, "transformed_desc"));
  memset(&made->ztensor, 0, sizeof made->ztensor); /* zDNN leaves buffer and size as they are */
  if (IS(init_ztensor))
    zdnn_init_ztensor(&made->pre, &made->transformed, &made->ztensor);
  else
    zdnn_init_quantized_ztensor(&made->pre, &made->transformed, float_of(one, "scale"),
                                float_of(one, "offset"), &made->ztensor);
  status_put(one, ZDNN_OK);
}

static void release(const call *one) {
  zdnn_ztensor *ztensor = ztensor_of(one, "ztensor");
  zdnn_status status = zdnn_free_ztensor_buffer(ztensor);
  if (status == ZDNN_OK) ztensor->buffer = NULL;
  status_put(one, status);
}

bool life_run(const char *function, const call *one) {
  if (IS(transform_ztensor) || IS(transform_ztensor_with_saturation) ||
      IS(transform_quantized_ztensor))
    to_sticks(function, one);
  else if (IS(transform_origtensor))
    to_array(one);
  else if (IS(reshape_ztensor))
    reshape(one);
  else if (IS(getrange_ztensor))
    range_put(one);
  else if (IS(init_ztensor) || IS(init_quantized_ztensor))
    init(function, one);
  else if (IS(allochelper_ztensor))
    status_put(one, zdnn_allochelper_ztensor(ztensor_of(one, "ztensor")));
  else if (IS(free_ztensor_buffer))
    release(one);
  else if (IS(reset_ztensor))
    zdnn_reset_ztensor(ztensor_of(one, "ztensor")), status_put(one, ZDNN_OK);
  else if (IS(init))
    zdnn_init(), status_put(one, ZDNN_OK);
  else if (IS(refresh_nnpa_query_result))
    status_put(one, zdnn_refresh_nnpa_query_result());
  else
    return false;
  return true;
}
