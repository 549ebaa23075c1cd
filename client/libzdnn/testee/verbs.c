/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

#include "names.h"

zdnn_ztensor *ztensor_of(const call *one, const char *operand) {
  const json *named = json_get(json_get(one->arguments, operand), "id");
  slot *found = named == NULL ? NULL : slot_find(*one->slots, json_integer(named));
  if (found != NULL) return &found->ztensor;
  fprintf(stderr, "zdnn-testee: %s: no such ztensor\n", operand);
  exit(EXIT_FAILURE);
}

uint32_t enum_of(const call *one, const char *parameter) {
  return number_of(json_get(one->arguments, parameter));
}

float float_of(const call *one, const char *parameter) {
  return (float)json_number(json_get(one->arguments, parameter));
}

void status_put(const call *one, zdnn_status status) {
  fprintf(one->out, "\"status\": %u", (unsigned)status);
}

static void boolean_put(const call *one, bool value) {
  fprintf(one->out, "\"value\": %s", value ? "true" : "false");
}

static void number_put(const call *one, uint64_t value) {
  fprintf(one->out, "\"value\": %llu", (unsigned long long)value);
}

/* Calls a variadic query with as many codes as the vector has; there are at most eight. */
#define CODES 8
typedef bool query(int count, ...);

static void query_put(const call *one, query *installed, const char *name) {
  int codes[CODES] = {0}, given = 0;
  const json *list = json_get(one->arguments, name), *count = json_get(one->arguments, "count");
  for (const json *code = list == NULL ? NULL : list->first; code != NULL; code = code->next) {
    if (given == CODES) {
      fprintf(stderr, "zdnn-testee: %s: more than %d\n", name, CODES);
      exit(EXIT_FAILURE);
    }
    codes[given++] = (int)number_of(code);
  }
  boolean_put(one, installed(count == NULL ? given : (int)json_integer(count), codes[0], codes[1],
                             codes[2], codes[3], codes[4], codes[5], codes[6], codes[7]));
}

#define IS(name) (strcmp(function, #name) == 0)

static bool query_run(const char *function, const call *one) {
  if (IS(is_nnpa_installed))
    boolean_put(one, zdnn_is_nnpa_installed());
  else if (IS(is_nnpa_function_installed))
    query_put(one, zdnn_is_nnpa_function_installed, "function_codes");
  else if (IS(is_nnpa_parmblk_fmt_installed))
    query_put(one, zdnn_is_nnpa_parmblk_fmt_installed, "format_codes");
  else if (IS(is_nnpa_datatype_installed))
    boolean_put(one, zdnn_is_nnpa_datatype_installed((uint16_t)enum_of(one, "types_bitmask")));
  else if (IS(is_nnpa_layout_fmt_installed))
    boolean_put(one, zdnn_is_nnpa_layout_fmt_installed(enum_of(one, "layout_bitmask")));
  else if (IS(is_nnpa_conversion_installed))
    boolean_put(one, zdnn_is_nnpa_conversion_installed((nnpa_data_type)enum_of(one, "type"),
                                                       (uint16_t)enum_of(one, "format_bitmask")));
  else if (IS(is_version_runnable))
    boolean_put(one, zdnn_is_version_runnable(enum_of(one, "ver_num")));
  else if (IS(get_nnpa_max_dim_idx_size))
    number_put(one, zdnn_get_nnpa_max_dim_idx_size());
  else if (IS(get_max_for_dim))
    number_put(one, zdnn_get_max_for_dim((uint8_t)enum_of(one, "dimension")));
  else if (IS(get_nnpa_max_tensor_size))
    number_put(one, zdnn_get_nnpa_max_tensor_size());
  else if (IS(get_max_runnable_version))
    number_put(one, zdnn_get_max_runnable_version());
  else
    return false;
  return true;
}

bool verb_run(const char *function, const call *one) {
  return query_run(function, one) || life_run(function, one) || operation_run(function, one);
}
