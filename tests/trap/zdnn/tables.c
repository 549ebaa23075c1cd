/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of statuses, and limits of types. */
#include <string.h>

#include "library.h"

#define TEXT(status, text) {status, #status ": " text}

const char *zdnn_get_status_message(zdnn_status status) {
  static const struct {
    zdnn_status status;
    const char *text;
  } messages[] = {
      TEXT(ZDNN_OK, "Success."),
      TEXT(ZDNN_ELEMENT_RANGE_VIOLATION, "One or more output tensor values were not valid."),
      TEXT(ZDNN_UNAVAILABLE_FUNCTION,
           "Specified NNPA function is not defined or installed on the machine."),
      TEXT(ZDNN_CONVERT_FAILURE, "Floating point data conversion failure."),
  };
  for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
    if (messages[i].status == status) return messages[i].text;
  return "(Status string is not defined.)";
}

/* Greatest and least value of one type in another, as bits of `type`. */
static const struct {
  zdnn_data_types transformed, type;
  uint32_t greatest, least;
} LIMITS[] = {
    {ZDNN_DLFLOAT16, FP32, 0x4fff8000, 0xcfff8000},
    {ZDNN_DLFLOAT16, FP16, 0x7bff, 0xfbff},
    {ZDNN_DLFLOAT16, BFLOAT, 0x4fff, 0xcfff},
    {ZDNN_BINARY_INT8, FP32, 0x42fe0000, 0xc3000000},
    {ZDNN_BINARY_INT8, FP16, 0x57f0, 0xd800},
    {ZDNN_BINARY_INT8, BFLOAT, 0x42fe, 0xc300},
    {ZDNN_BINARY_INT8, INT8, 0x7f, 0x80},
    {ZDNN_BINARY_INT32, INT32, 0x7fffffff, 0x80000000},
};

static zdnn_status limit(zdnn_data_types transformed, zdnn_data_types type, bool greatest,
                         void *to) {
  for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++) {
    if (LIMITS[i].transformed != transformed || LIMITS[i].type != type) continue;
    uint32_t bits = greatest ? LIMITS[i].greatest : LIMITS[i].least;
    unsigned bytes = bytes_of_type(type);
    memcpy(to, (uint8_t *)&bits + sizeof bits - bytes, bytes);
    return ZDNN_OK;
  }
  return ZDNN_INVALID_TYPE;
}

zdnn_status zdnn_get_max_limit(zdnn_data_types transformed_type,
                               zdnn_data_types pre_transformed_type, void *to) {
  return limit(transformed_type, pre_transformed_type, true, to);
}

zdnn_status zdnn_get_min_limit(zdnn_data_types transformed_type,
                               zdnn_data_types pre_transformed_type, void *to) {
  return limit(transformed_type, pre_transformed_type, false, to);
}
