/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

#include "names.h"

zdnn_ztensor *ztensor_of(const call *step, const char *operand) {
  const json *named = json_get(json_get(step->arguments, operand), "id");
  slot *target = named == NULL ? NULL : slot_find(*step->slots, json_integer(named));
  if (target != NULL) return &target->ztensor;
  fprintf(stderr, "zdnn-testee: %s: no such ztensor\n", operand);
  exit(EXIT_FAILURE);
}

uint32_t enum_of(const call *step, const char *parameter) {
  return number_of(json_get(step->arguments, parameter));
}

float float_of(const call *step, const char *parameter) {
  return (float)json_number(json_get(step->arguments, parameter));
}

void status_put(const call *step, zdnn_status status) {
  fprintf(step->out, "\"status\": %u", (unsigned)status);
}

static void boolean_put(const call *step, bool value) {
  fprintf(step->out, "\"value\": %s", value ? "true" : "false");
}

static void number_put(const call *step, uint64_t value) {
  fprintf(step->out, "\"value\": %llu", (unsigned long long)value);
}

/* Calls a variadic query with as many codes as the vector has; there are at most eight. */
#define CODES 8
typedef bool query(int count, ...);

static void query_put(const call *step, query *installed, const char *name) {
  int codes[CODES] = {0}, used = 0;
  const json *list = json_get(step->arguments, name), *count = json_get(step->arguments, "count");
  for (const json *code = list == NULL ? NULL : list->first; code != NULL; code = code->next) {
    if (used == CODES) {
      fprintf(stderr, "zdnn-testee: %s: more than %d\n", name, CODES);
      exit(EXIT_FAILURE);
    }
    codes[used++] = (int)number_of(code);
  }
  boolean_put(step, installed(count == NULL ? used : (int)json_integer(count), codes[0], codes[1],
                             codes[2], codes[3], codes[4], codes[5], codes[6], codes[7]));
}

#define IS(name) (strcmp(function, #name) == 0)

static bool query_run(const char *function, const call *step) {
  if (IS(is_nnpa_installed))
    boolean_put(step, zdnn_is_nnpa_installed());
  else if (IS(is_nnpa_function_installed))
    query_put(step, zdnn_is_nnpa_function_installed, "function_codes");
  else if (IS(is_nnpa_parmblk_fmt_installed))
    query_put(step, zdnn_is_nnpa_parmblk_fmt_installed, "format_codes");
  else if (IS(is_nnpa_datatype_installed))
    boolean_put(step, zdnn_is_nnpa_datatype_installed((uint16_t)enum_of(step, "types_bitmask")));
  else if (IS(is_nnpa_layout_fmt_installed))
    boolean_put(step, zdnn_is_nnpa_layout_fmt_installed(enum_of(step, "layout_bitmask")));
  else if (IS(is_nnpa_conversion_installed))
    boolean_put(step, zdnn_is_nnpa_conversion_installed((nnpa_data_type)enum_of(step, "type"),
                                                       (uint16_t)enum_of(step, "format_bitmask")));
  else if (IS(is_version_runnable))
    boolean_put(step, zdnn_is_version_runnable(enum_of(step, "ver_num")));
  else if (IS(get_nnpa_max_dim_idx_size))
    number_put(step, zdnn_get_nnpa_max_dim_idx_size());
  else if (IS(get_max_for_dim))
    number_put(step, zdnn_get_max_for_dim((uint8_t)enum_of(step, "dimension")));
  else if (IS(get_nnpa_max_tensor_size))
    number_put(step, zdnn_get_nnpa_max_tensor_size());
  else if (IS(get_max_runnable_version))
    number_put(step, zdnn_get_max_runnable_version());
  else
    return false;
  return true;
}

bool verb_run(const char *function, const call *step) {
  return query_run(function, step) || life_run(function, step) || operation_run(function, step);
}
