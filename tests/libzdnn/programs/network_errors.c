/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal that C can bring about, as "what: result type code". */
#include <stdio.h>
#include <string.h>

#include "network.h"
#include "network_data.h"

static ai_u8 activations[AI_NETWORK_DATA_ACTIVATIONS_SIZE];
static ai_float x[2 * AI_NETWORK_IN_1_SIZE], y[2 * AI_NETWORK_OUT_1_SIZE];

static void told(const char *what, int result, ai_error err) {
  printf("%s: %d %02x %02x\n", what, result, err.type, err.code);
}

static void init(const char *what, ai_handle net, const ai_network_params *params) {
  int result = ai_network_init(net, params);
  told(what, result, ai_network_get_error(net));
}

static void run(const char *what, ai_handle net, const ai_buffer *in, ai_buffer *out) {
  int result = ai_network_run(net, in, out);
  told(what, result, ai_network_get_error(net));
}

static void inits(ai_handle net) {
  ai_handle weights = ai_network_data_weights_get();
  const ai_network_params good = AI_NETWORK_PARAMS_INIT(
      AI_NETWORK_DATA_WEIGHTS(weights), AI_NETWORK_DATA_ACTIVATIONS(activations));
  ai_network_params bad = good;
  init("no params", net, NULL);
  bad.params.data = NULL;
  init("no weights", net, &bad);
  bad = good;
  bad.params.channels--;
  init("few weights", net, &bad);
  bad = good;
  bad.activations.data = NULL;
  init("no activations", net, &bad);
  bad = good;
  bad.activations.channels--;
  init("few activations", net, &bad);
  bad.params.data = NULL;
  (void)ai_network_init(net, &bad);
  (void)ai_network_run(net, NULL, NULL);
  told("first error stays", 0, ai_network_get_error(net));
  told("and is cleared", 0, ai_network_get_error(net));
  bad = good;
  memset(&bad.params, 0, sizeof bad.params);
  init("default weights", net, &bad);
  init("init", net, &good);
}

static void runs(ai_handle net) {
  ai_buffer in[] = AI_NETWORK_IN, out[] = AI_NETWORK_OUT;
  run("no input array", net, NULL, out);
  run("no input data", net, in, out);
  in[0].data = x;
  run("no output array", net, in, NULL);
  run("no output data", net, in, out);
  out[0].data = y;
  in[0].channels++;
  run("input shape", net, in, out);
  in[0].channels--;
  in[0].format = AI_BUFFER_FORMAT_S8;
  run("input format", net, in, out);
  in[0].format = AI_BUFFER_FORMAT_FLOAT;
  out[0].height++;
  run("output shape", net, in, out);
  out[0].height--;
  in[0].n_batches = 0;
  run("no batches", net, in, out);
  in[0].n_batches = 2;
  run("other batches", net, in, out);
  out[0].n_batches = 2;
  run("two batches", net, in, out);
  told("forward", ai_network_forward(net, in), ai_network_get_error(net));
}

int main(void) {
  ai_buffer in[] = AI_NETWORK_IN, out[] = AI_NETWORK_OUT;
  ai_handle net = AI_HANDLE_NULL, again = AI_HANDLE_NULL;
  ai_network_report report;
  told("no handle", 0, ai_network_create(NULL, NULL));
  told("create", 0, ai_network_create(&net, AI_NETWORK_DATA_CONFIG));
  told("create again", again == AI_HANDLE_NULL, ai_network_create(&again, NULL));
  in[0].data = x;
  out[0].data = y;
  run("before init", net, in, out);
  inits(net);
  runs(net);
  told("no report", ai_network_get_info(net, NULL), ai_network_get_error(net));
  told("destroy", ai_network_destroy(net) == AI_HANDLE_NULL, ai_network_get_error(net));
  told("destroyed", ai_network_destroy(net) == net, ai_network_get_error(net));
  told("info of none", ai_network_get_info(net, &report), ai_network_get_error(net));
  run("run of none", net, in, out);
  init("init of none", net, NULL);
  return 0;
}
