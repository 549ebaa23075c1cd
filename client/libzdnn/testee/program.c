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
  slot *target = slot_find(*slots, id);
  if (target != NULL) return target;
  target = calloc(1, sizeof *target);
  if (target == NULL) abort();
  target->id = id;
  target->next = *slots;
  *slots = target;
  return target;
}

static bool reads(const char *function, const char *operand) {
  return !is_output(operand) ||
         (strcmp(operand, "ztensor") == 0 && (strcmp(function, "transform_origtensor") == 0 ||
                                              strcmp(function, "getrange_ztensor") == 0));
}

/* Returns whether an argument is the ztensor of an id. */
static bool names(const json *argument, int64_t id) {
  const json *reference = json_get(argument, "id");
  return reference != NULL && json_integer(reference) == id;
}

/* Returns whether a step of the vector writes a tensor. */
static bool written(const json *vector, int64_t id) {
  const json *step = json_get(vector, "steps");
  for (step = step == NULL ? NULL : step->first; step != NULL; step = step->next) {
    const json *arm = json_get(step, "operation");
    for (arm = arm == NULL ? NULL : arm->first; arm != NULL; arm = arm->next)
      for (const json *argument = arm->first; argument != NULL; argument = argument->next)
        if (names(argument, id) && !reads(arm->name, argument->name)) return true;
  }
  return false;
}

static void fill(slot *target, const json *line, bool zeros) {
  uint64_t size = stick_bytes(&target->transformed);
  const char *codes = json_text(line, "codes", NULL), *memory = json_text(line, "memory", NULL);
  unsigned width = cell_bytes(&target->transformed);
  size_t count = 0;
  bool none = codes == NULL && memory == NULL;
  bool null = json_get(line, "null_buffer") != NULL &&
              json_get(line, "null_buffer")->kind == JSON_TRUE;
  if (null || (none && (!zeros || size > LARGEST_BUFFER || size == 0))) return;
  if (memory != NULL ? !words_count(memory, &width, &count) || count * width != size
                     : codes != NULL && !codes_fit(codes, &target->transformed)) {
    fprintf(stderr, "zdnn-testee: tensors: contents that are not of the tensor's size\n");
    exit(EXIT_FAILURE);
  }
  target->memory = target->ztensor.buffer = aligned_zeros(size + SPARE);
  if (memory != NULL)
    words_fill(memory, width, target->memory);
  else if (codes != NULL)
    codes_fill(codes, &target->transformed, target->memory);
}

slot *program_of(const json *vector) {
  slot *slots = NULL;
  const json *line = json_get(vector, "tensors");
  for (line = line == NULL ? NULL : line->first; line != NULL; line = line->next) {
    slot *target = slot_make(&slots, strtoll(line->name, NULL, 10));
    const json *claimed = json_get(line, "buffer_size");
    if (claimed != NULL && claimed->kind != JSON_NUMBER) claimed = NULL;
    target->pre = descriptor_of(json_get(line, "pre_transformed_desc"));
    target->transformed = descriptor_of(json_get(line, "transformed_desc"));
    target->ztensor.pre_transformed_desc = &target->pre;
    target->ztensor.transformed_desc = &target->transformed;
    target->ztensor.buffer_size =
        claimed == NULL ? stick_bytes(&target->transformed) : strtoull(claimed->text, NULL, 10);
    target->ztensor.is_transformed = json_integer(json_get(line, "is_transformed")) != 0;
    target->ztensor.rec_scale = (float)json_number(json_get(line, "rec_scale"));
    target->ztensor.offset = (float)json_number(json_get(line, "offset"));
    fill(target, line, written(vector, target->id));
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
    for (const json *argument = arguments->first; argument != NULL; argument = argument->next)
      named = named || names(argument, slots->id);
    if (!named || slots->memory == NULL) continue;
    size_t size = stick_bytes(&slots->transformed);
    uint8_t *from = slots->ztensor.buffer;
    memmove(from + bytes, from, size);
    slots->ztensor.buffer = from + bytes;
  }
}
