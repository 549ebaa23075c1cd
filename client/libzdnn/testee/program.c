/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "names.h"
#include "words.h"

enum { PAGE = 4096, SPARE = 128 };
#define LARGEST_BUFFER (1ull << 26) /* what a vector may want allocated, bytes */

bool is_output(const char *operand) {
  static const char *const names[] = {"output",    "output_a",  "output_b", "hn_output",
                                      "cf_output", "dest",      "ztensor"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], operand) == 0) return true;
  return false;
}

void *aligned_zeros(size_t size) {
  void *memory = NULL;
  size_t pages = (size + PAGE - 1) / PAGE;
  if (posix_memalign(&memory, PAGE, (pages == 0 ? 1 : pages) * PAGE) != 0) abort();
  memset(memory, 0, (pages == 0 ? 1 : pages) * PAGE);
  return memory;
}

zdnn_tensor_desc descriptor_of(const json *line) {
  zdnn_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.layout = (zdnn_data_layouts)number_of(json_get(line, "layout"));
  desc.format = (zdnn_data_formats)number_of(json_get(line, "format"));
  desc.type = (zdnn_data_types)number_of(json_get(line, "type"));
  desc.dim4 = (uint32_t)json_integer(json_get(line, "dim4"));
  desc.dim3 = (uint32_t)json_integer(json_get(line, "dim3"));
  desc.dim2 = (uint32_t)json_integer(json_get(line, "dim2"));
  desc.dim1 = (uint32_t)json_integer(json_get(line, "dim1"));
  return desc;
}

void descriptor_put(FILE *out, const zdnn_tensor_desc *desc) {
  fprintf(out, "{\"layout\": %u, \"format\": %u, \"type\": %u, ", (unsigned)desc->layout,
          (unsigned)desc->format, (unsigned)desc->type);
  fprintf(out, "\"dim4\": %u, \"dim3\": %u, \"dim2\": %u, \"dim1\": %u}", desc->dim4, desc->dim3,
          desc->dim2, desc->dim1);
}

slot *slot_find(slot *slots, int64_t id) {
  while (slots != NULL && slots->id != id) slots = slots->next;
  return slots;
}

slot *slot_make(slot **slots, int64_t id) {
  slot *found = slot_find(*slots, id);
  if (found != NULL) return found;
  found = calloc(1, sizeof *found);
  if (found == NULL) abort();
  found->id = id;
  found->next = *slots;
  *slots = found;
  return found;
}

static bool reads(const char *function, const char *operand) {
  return !is_output(operand) ||
         (strcmp(operand, "ztensor") == 0 && (strcmp(function, "transform_origtensor") == 0 ||
                                              strcmp(function, "getrange_ztensor") == 0));
}

/* Tells whether some step of the vector writes a tensor. */
static bool written(const json *vector, int64_t id) {
  const json *step = json_get(vector, "steps");
  for (step = step == NULL ? NULL : step->first; step != NULL; step = step->next) {
    const json *arm = json_get(step, "operation");
    for (arm = arm == NULL ? NULL : arm->first; arm != NULL; arm = arm->next)
      for (const json *one = arm->first; one != NULL; one = one->next) {
        const json *named = json_get(one, "id");
        if (named != NULL && json_integer(named) == id && !reads(arm->name, one->name))
          return true;
      }
  }
  return false;
}

static void fill(slot *one, const json *line, bool zeros) {
  uint64_t size = stick_bytes(&one->transformed);
  const char *codes = json_text(line, "codes", NULL), *memory = json_text(line, "memory", NULL);
  unsigned width = cell_bytes(&one->transformed);
  size_t count = 0;
  bool none = codes == NULL && memory == NULL;
  bool null = json_get(line, "null_buffer") != NULL &&
              json_get(line, "null_buffer")->kind == JSON_TRUE;
  if (null || (none && (!zeros || size > LARGEST_BUFFER || size == 0))) return;
  if (memory != NULL ? !words_count(memory, &width, &count) || count * width != size
                     : codes != NULL && !codes_fit(codes, &one->transformed)) {
    fprintf(stderr, "zdnn-testee: tensors: contents that are not of the tensor's size\n");
    exit(EXIT_FAILURE);
  }
  one->memory = one->ztensor.buffer = aligned_zeros(size + SPARE);
  if (memory != NULL)
    words_fill(memory, width, one->memory);
  else if (codes != NULL)
    codes_fill(codes, &one->transformed, one->memory);
}

slot *program_of(const json *vector) {
  slot *slots = NULL;
  const json *line = json_get(vector, "tensors");
  for (line = line == NULL ? NULL : line->first; line != NULL; line = line->next) {
    slot *one = slot_make(&slots, strtoll(line->name, NULL, 10));
    const json *claimed = json_get(line, "buffer_size");
    if (claimed != NULL && claimed->kind != JSON_NUMBER) claimed = NULL;
    one->pre = descriptor_of(json_get(line, "pre_transformed_desc"));
    one->transformed = descriptor_of(json_get(line, "transformed_desc"));
    one->ztensor.pre_transformed_desc = &one->pre;
    one->ztensor.transformed_desc = &one->transformed;
    one->ztensor.buffer_size =
        claimed == NULL ? stick_bytes(&one->transformed) : strtoull(claimed->text, NULL, 10);
    one->ztensor.is_transformed = json_integer(json_get(line, "is_transformed")) != 0;
    one->ztensor.rec_scale = (float)json_number(json_get(line, "rec_scale"));
    one->ztensor.offset = (float)json_number(json_get(line, "offset"));
    fill(one, line, written(vector, one->id));
  }
  return slots;
}

void program_free(slot *slots) {
  while (slots != NULL) {
    slot *next = slots->next;
    if (slots->memory == NULL && slots->ztensor.buffer != NULL)
      zdnn_free_ztensor_buffer(&slots->ztensor);
    free(slots->memory);
    free(slots);
    slots = next;
  }
}

void slot_put(FILE *out, const slot *seen) {
  const zdnn_ztensor *ztensor = &seen->ztensor;
  unsigned width = cell_bytes(&seen->transformed);
  fprintf(out, "{\"is_transformed\": %s, \"buffer_size\": %llu, \"rec_scale\": ",
          ztensor->is_transformed ? "true" : "false", (unsigned long long)ztensor->buffer_size);
  json_put_float(out, ztensor->rec_scale);
  fputs(", \"offset\": ", out);
  json_put_float(out, ztensor->offset);
  if (ztensor->buffer != NULL) {
    fputs(", \"memory\": ", out);
    words_put(out, ztensor->buffer, width, stick_bytes(&seen->transformed) / width);
  }
  fputc('}', out);
}

void slots_shift(slot *slots, const json *arguments, int bytes) {
  for (; slots != NULL; slots = slots->next) {
    bool named = false;
    for (const json *one = arguments->first; one != NULL; one = one->next)
      named = named || (json_get(one, "id") && json_integer(json_get(one, "id")) == slots->id);
    if (!named || slots->memory == NULL) continue;
    size_t size = stick_bytes(&slots->transformed);
    uint8_t *from = slots->ztensor.buffer;
    memmove(from + bytes, from, size);
    slots->ztensor.buffer = from + bytes;
  }
}
