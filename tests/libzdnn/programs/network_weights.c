/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are split, and changed in place: prints outputs with the model's and with others. */
#include <stdio.h>
#include <string.h>

#include "network.h"
#include "network_data.h"

static ai_u8 activations[AI_NETWORK_DATA_ACTIVATIONS_SIZE];

static int outputs(ai_handle net, ai_handle weights) {
  const ai_network_params params = AI_NETWORK_PARAMS_INIT(
      AI_NETWORK_DATA_WEIGHTS(weights), AI_NETWORK_DATA_ACTIVATIONS(activations));
  ai_network_report report;
  if (!ai_network_init(net, &params) || !ai_network_get_info(net, &report)) {
    return 0;
  }
  ai_float *x = report.inputs[0].data, *y = report.outputs[0].data;
  for (int i = 0; i < AI_NETWORK_IN_1_SIZE; i++) {
    x[i] = (ai_float)(i + 1);
  }
  if (ai_network_run(net, report.inputs, report.outputs) != 1) {
    return 0;
  }
  for (int i = 0; i < AI_NETWORK_OUT_1_SIZE; i++) {
    printf("%s%a", i == 0 ? "" : " ", y[i]);
  }
  putchar('\n');
  return 1;
}

int main(void) {
  static const ai_float bias[] = {1.0f, 2.0f, 3.0f};
  const ai_u8 *const *table = ai_network_data_weights_get();
  const ai_u8 *others[] = {table[0], (const ai_u8 *)bias};
  ai_handle net;
  if (ai_network_create(&net, AI_NETWORK_DATA_CONFIG).type != AI_ERROR_NONE) {
    return 1;
  }
  int good = outputs(net, AI_HANDLE_PTR(table)) && outputs(net, AI_HANDLE_PTR(others));
  return !good || ai_network_destroy(net) != AI_HANDLE_NULL;
}
