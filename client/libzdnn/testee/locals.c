/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that look at descriptors and numbers only. */
#include <string.h>

#include "names.h"
#include "verbs.h"
#include "words.h"

#define IS(name) (strcmp(function, #name) == 0)

static void described(FILE *out, zdnn_status status, const zdnn_tensor_desc *desc) {
  if (status != ZDNN_OK) {
    fprintf(out, "\"status\": %u", (unsigned)status);
    return;
  }
  fputs("\"result\": ", out);
  descriptor_put(out, desc);
}

static void init_pre(const json *arguments, FILE *out) {
  const json *list = json_get(arguments, "dims");
  uint32_t dims[4] = {0, 0, 0, 0};
  int count = 0;
  for (const json *size = list == NULL ? NULL : list->first; size != NULL && count < 4;
       size = size->next)
    dims[count++] = number_of(size);
  zdnn_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  zdnn_init_pre_transformed_desc((zdnn_data_layouts)number_of(json_get(arguments, "layout")),
                                 (zdnn_data_types)number_of(json_get(arguments, "type")), &desc,
                                 dims[0], dims[1], dims[2], dims[3]);
  described(out, ZDNN_OK, &desc);
}

static bool generate(const char *function, const json *arguments, FILE *out) {
  zdnn_tensor_desc pre = descriptor_of(json_get(arguments, "pre_transformed_desc")), target;
  zdnn_status status;
  memset(&target, 0, sizeof target);
  if (IS(generate_transformed_desc))
    status = zdnn_generate_transformed_desc(&pre, &target);
  else if (IS(generate_quantized_transformed_desc))
    status = zdnn_generate_quantized_transformed_desc(
        &pre, (zdnn_quantized_transform_types)number_of(json_get(arguments, "transform_type")),
        &target);
  else if (IS(generate_transformed_desc_concatenated))
    status = zdnn_generate_transformed_desc_concatenated(
        &pre, number_of(json_get(arguments, "info")), &target);
  else
    return false;
  described(out, status, &target);
  return true;
}

static void limit(const char *function, const json *arguments, FILE *out) {
  zdnn_data_types to = (zdnn_data_types)number_of(json_get(arguments, "transformed_type"));
  zdnn_data_types from = (zdnn_data_types)number_of(json_get(arguments, "pre_transformed_type"));
  uint32_t word = 0; /* room for any type; on return its first bytes are the limit */
  zdnn_status status =
      IS(get_max_limit) ? zdnn_get_max_limit(to, from, &word) : zdnn_get_min_limit(to, from, &word);
  unsigned width = from == INT8 ? 1 : from == FP16 || from == BFLOAT ? 2 : 4;
  if (status != ZDNN_OK) {
    fprintf(out, "\"status\": %u", (unsigned)status);
    return;
  }
  fputs("\"result\": ", out);
  words_put(out, &word, width, 1);
}

bool local_run(const char *function, const json *arguments, FILE *out) {
  if (generate(function, arguments, out)) return true;
  if (IS(init_pre_transformed_desc)) {
    init_pre(arguments, out);
  } else if (IS(get_max_limit) || IS(get_min_limit)) {
    limit(function, arguments, out);
  } else if (IS(getsize_ztensor)) {
    zdnn_tensor_desc desc = descriptor_of(json_get(arguments, "transformed_desc"));
    fprintf(out, "\"result\": %llu", (unsigned long long)zdnn_getsize_ztensor(&desc));
  } else if (IS(get_status_message)) {
    fputs("\"result\": ", out);
    json_put_text(out, zdnn_get_status_message(
                           (zdnn_status)number_of(json_get(arguments, "status"))));
  } else if (IS(is_quantized_ztensor)) {
    zdnn_ztensor ztensor;
    memset(&ztensor, 0, sizeof ztensor);
    ztensor.rec_scale = (float)json_number(json_get(arguments, "rec_scale"));
    fprintf(out, "\"result\": %s", zdnn_is_quantized_ztensor(&ztensor) ? "true" : "false");
  } else if (IS(get_library_version)) {
    fprintf(out, "\"result\": %u", (unsigned)zdnn_get_library_version());
  } else if (IS(get_library_version_str)) {
    fputs("\"result\": ", out);
    json_put_text(out, zdnn_get_library_version_str());
  } else {
    return false;
  }
  return true;
}
