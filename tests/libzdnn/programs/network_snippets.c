/* SPDX-License-Identifier: Apache-2.0 */
/* Snippets for a network of two inputs in the activations and two outputs, completed where they
 * say "...". Prints what they found. Source: X-CUBE-AI 7.0, Embedded Inference Client API, "Typical
 * usages", "Retrieve tensor information", "Helper C-macros", "Base address of the IO buffers",
 * "C-memory layouts", "Versioning and checking". */
#include <stdio.h>
#include <stdint.h>

#include "network.h"
#include "network_data.h"

#define B 2
#define H 2
#define W 2
#define C 3
#define xx_SIZE (H * W * C)

static ai_handle network = AI_HANDLE_NULL;

AI_ALIGNED(32)
static ai_u8 activations[AI_NETWORK_DATA_ACTIVATIONS_SIZE];

/* C-table to store the @ of the input buffers */
static ai_float *in_data[AI_NETWORK_IN_NUM];

/* ai input handlers */
static ai_buffer ai_inputs[AI_NETWORK_IN_NUM] = AI_NETWORK_IN ;

/* ai output handlers */
static ai_buffer ai_outputs[AI_NETWORK_OUT_NUM] = AI_NETWORK_OUT ;

/* data buffer for the output buffers */
static ai_float out_1_data[AI_NETWORK_OUT_1_SIZE];
static ai_float out_2_data[AI_NETWORK_OUT_2_SIZE];

/* C-table to store the @ of the output buffers */
static ai_float* out_data[AI_NETWORK_OUT_NUM] = {
  &out_1_data[0],
  &out_2_data[0]
  };

/* Layouts. */
static ai_float layout_1[xx_SIZE];
static ai_float layout_2[H][C];
static ai_float layout_3[H][W][C];
static ai_float layout_4[B][H][W][C];

#if defined(AI_NETWORK_INPUTS_IN_ACTIVATIONS)
static ai_u8 *in_data_1;
#else
#error "AI_NETWORK_INPUTS_IN_ACTIVATIONS is not defined"
#endif
#if defined(AI_NETWORK_OUTPUTS_IN_ACTIVATIONS)
#error "AI_NETWORK_OUTPUTS_IN_ACTIVATIONS is defined"
#endif

static const ai_size in_sizes[] = AI_NETWORK_IN_SIZE;
static const ai_size out_bytes[] = AI_NETWORK_OUT_SIZE_BYTES;
_Static_assert(AI_NETWORK_DATA__WEIGHTS_SIZE == AI_NETWORK_DATA_WEIGHTS_SIZE, "alias");
_Static_assert(AI_PLATFORM_API_VERSION == 0x01010000 && AI_TOOLS_API_VERSION == 0x01040000, "");

static void aiLogErr(const ai_error err)
{
  printf("E: AI error - type=%d code=%d\r\n", err.type, err.code);
}

static int aiInit(void) {
  ai_network_report report;

  /* 1 - Create and initialize network */
  ai_error err = ai_network_create(&network, AI_NETWORK_DATA_CONFIG);
  const ai_network_params params = AI_NETWORK_PARAMS_INIT(
    AI_NETWORK_DATA_WEIGHTS(ai_network_data_weights_get()),
    AI_NETWORK_DATA_ACTIVATIONS(activations)
  );
  if (err.type != AI_ERROR_NONE || !ai_network_init(network, &params)) {
    aiLogErr(err.type != AI_ERROR_NONE ? err : ai_network_get_error(network));
    return -1;
  }

  /* 2 - Retrieve network infos */
  ai_network_get_info(network, &report);

  /* 3 - Update the ai input handlers with the effective @ of
         the input buffers  */
  for (int i=0; i < AI_NETWORK_IN_NUM; i++) {
    ai_inputs[i].n_batches = 1;
    ai_inputs[i].data = AI_HANDLE_PTR(report.inputs[i].data);
    in_data[i] = (ai_float *)(ai_inputs[i].data);
  }

  /* 4- Update the ai output handlers */
  for (int i=0; i < AI_NETWORK_OUT_NUM; i++) {
    ai_outputs[i].n_batches = 1;
    ai_outputs[i].data = AI_HANDLE_PTR(out_data[i]);
  }
  return 0;
}

static void tensors(void) {
  /* Use the generated macro to set the buffer input descriptors */
  const ai_buffer input[] = AI_NETWORK_IN;

  /* Extract format of the first input tensor (index 0) */
  const ai_buffer_format fmt_1 = AI_BUFFER_FORMAT(&input[0]);

  /* Extract height, width and channels of the first input tensor */
  const ai_u16 height_1 = AI_BUFFER_HEIGHT(&input[0]);
  const ai_u16 width_1 = AI_BUFFER_WIDTH(&input[0]);
  const ai_u16 ch_1 = AI_BUFFER_CHANNELS(&input[0]);
  const ai_u16 size_1 = AI_BUFFER_SIZE(&input[0]); /* number of item*/
  const ai_u32 size_in_bytes_1 = AI_BUFFER_BYTE_SIZE(size_1, fmt_1);

  const uint32_t type = AI_BUFFER_FMT_GET_TYPE(fmt_1); /* -> AI_BUFFER_FMT_TYPE_FLOAT */
  const ai_size sign = AI_BUFFER_FMT_GET_SIGN(fmt_1);   /* -> 1 */
  const ai_size bits = AI_BUFFER_FMT_GET_BITS(fmt_1);   /* -> 32 */
  const ai_size N = AI_BUFFER_FMT_GET_FBITS(fmt_1);     /* -> 0 */
  const ai_buffer_meta_info * meta_info = AI_BUFFER_META_INFO(&input[0]);
  printf("%d %d %d %d %u\n", height_1, width_1, ch_1, size_1, size_in_bytes_1);
  printf("%u %u %u %u %u %d\n", type, AI_BUFFER_FMT_GET_FLOAT(fmt_1), sign, bits, N,
         AI_BUFFER_META_INFO_INTQ(meta_info) == NULL);
}

static void base_address(void) {
  ai_network_report report;
  ai_network_get_info(network, &report);

#if defined(AI_NETWORK_INPUTS_IN_ACTIVATIONS)
  /* Set the descriptor of the first input tensor (index 0) */
  const ai_buffer *input = &report.inputs[0];
  /* Retrieve the @ of the input buffer */
  in_data_1 = (ai_u8 *)input->data;
#endif
  printf("%d %d\n", in_data_1 >= activations && in_data_1 < activations + sizeof activations,
         report.outputs[0].data == NULL);
  printf("%s %s %d.%d.%d %d.%d.%d %d.%d.%d\n", report.model_name, report.model_signature,
         report.tool_version.major, report.tool_version.minor, report.tool_version.micro,
         report.tool_api_version.major, report.tool_api_version.minor,
         report.tool_api_version.micro, report.api_version.major, report.api_version.minor,
         report.api_version.micro);
}

int main(void) {
  if (aiInit() != 0) {
    return 1;
  }
  tensors();
  base_address();
  for (int i = 0; i < AI_NETWORK_IN_1_SIZE; i++) {
    in_data[0][i] = (ai_float)i;
    in_data[1][i] = 2.5f - (ai_float)i;
  }
  printf("%d\n", ai_network_run(network, &ai_inputs[0], &ai_outputs[0]));
  for (int i = 0; i < AI_NETWORK_OUT_1_SIZE; i++) {
    printf("%a %a\n", out_1_data[i], out_2_data[i]);
  }
  printf("%u %u %zu %zu %zu %zu\n", in_sizes[1], out_bytes[1], sizeof layout_1, sizeof layout_2,
         sizeof layout_3, sizeof layout_4);
  return ai_network_destroy(network) != AI_HANDLE_NULL;
}
