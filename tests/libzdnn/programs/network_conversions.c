/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of an int8 network: floats on stdin, what the network gives on stdout, as integers
 * and as floats. Source: X-CUBE-AI 7.0, Embedded Inference Client API, "float32 to 8b data type
 * conversion", "8b to float32 data type conversion", "Helper C-macros". */
#include <stdio.h>
#include <stdint.h>

#include <network.h>
#include "network_data.h"

#define _MIN(x_, y_) \
    ( ((x_)<(y_)) ? (x_) : (y_) )

#define _MAX(x_, y_) \
    ( ((x_)>(y_)) ? (x_) : (y_) )

#define _CLAMP(x_, min_, max_, type_) \
    (type_) (_MIN(_MAX(x_, min_), max_))

#define _ROUND(v_, type_) \
    (type_) ( ((v_)<0) ? ((v_)-0.5f) : ((v_)+0.5f) )

static ai_handle network;
static ai_u8 activations[AI_NETWORK_DATA_ACTIVATIONS_SIZE];

const ai_buffer *get_input_desc(int idx)
{
  ai_network_report report;
  ai_network_get_info(network, &report);
  return &report.inputs[idx];
}

const ai_buffer *get_output_desc(int idx)
{
  ai_network_report report;
  ai_network_get_info(network, &report);
  return &report.outputs[idx];
}

ai_float input_f[AI_NETWORK_IN_1_SIZE];
ai_i8 input_q[AI_NETWORK_IN_1_SIZE]; /* or ai_u8 */
ai_u8 input_u[AI_NETWORK_IN_1_SIZE];
ai_i8 output_q[AI_NETWORK_OUT_1_SIZE]; /* or ai_u8 */
ai_float output_f[AI_NETWORK_OUT_1_SIZE];

static void quantize(void)
{
  const ai_buffer *input = get_input_desc(0);
  ai_float scale  = AI_BUFFER_META_INFO_INTQ_GET_SCALE(input->meta_info, 0);
  const ai_i32 zp = AI_BUFFER_META_INFO_INTQ_GET_ZEROPOINT(input->meta_info, 0);

  scale = 1.0f / scale;

  /* Loop */
  for (int i=0; i < AI_NETWORK_IN_1_SIZE; i++)
  {
    const ai_i32 tmp_ = zp + _ROUND(input_f[i] * scale, ai_i32);
    /* for ai_u8 */
    input_u[i] = _CLAMP(tmp_, 0, 255, ai_u8);
    /* for ai_i8 */
    input_q[i] = _CLAMP(tmp_, -128, 127, ai_i8);
  }
}

static void dequantize(void)
{
  const ai_buffer *output = get_output_desc(0);
  ai_float scale  = AI_BUFFER_META_INFO_INTQ_GET_SCALE(output->meta_info, 0);
  const ai_i32 zp = AI_BUFFER_META_INFO_INTQ_GET_ZEROPOINT(output->meta_info, 0);

  /* Loop */
  for (int i=0; i<AI_NETWORK_OUT_1_SIZE; i++)
  {
    output_f[i] = scale * ((ai_float)(output_q[i]) - zp);
  }
}

static void meta(void)
{
  /* Fetch run-time network descriptor. This is MANDATORY
     to retrieve the meta parameters. They are NOT available
     through the definition of the AI_<NAME>_IN/OUT macro.
  */
  ai_network_report report;
  ai_network_get_info(network, &report);

  /* Set the descriptor of the first input tensor (index 0) */
  const ai_buffer *input = &report.inputs[0];

  /* Extract format of the tensor */
  const ai_buffer_format fmt_1 = AI_BUFFER_FORMAT(input);

  /* Extract the data type */
  const uint32_t type = AI_BUFFER_FMT_GET_TYPE(fmt_1); /* -> AI_BUFFER_FMT_TYPE_Q */

  /* Extract sign and number of bits */
  const ai_size sign = AI_BUFFER_FMT_GET_SIGN(fmt_1);  /* -> 1 or 0*/
  const ai_size bits = AI_BUFFER_FMT_GET_BITS(fmt_1);  /* -> 8 */

  /* Extract scale/zero_point values (only pos=0 is currently supported, per-tensor) */
  const ai_float scale = AI_BUFFER_META_INFO_INTQ_GET_SCALE(input->meta_info, 0);
  const int zero_point = AI_BUFFER_META_INFO_INTQ_GET_ZEROPOINT(input->meta_info, 0);
  printf("%u %u %u %a %d\n", type, sign, bits, scale, zero_point);
}

int main(void) {
  ai_buffer in[] = AI_NETWORK_IN, out[] = AI_NETWORK_OUT;
  const ai_network_params params = AI_NETWORK_PARAMS_INIT(
    AI_NETWORK_DATA_WEIGHTS(ai_network_data_weights_get()),
    AI_NETWORK_DATA_ACTIVATIONS(activations)
  );
  if (ai_network_create(&network, NULL).type != 0 || !ai_network_init(network, &params)) {
    return 1;
  }
  meta();
  for (int i = 0; i < AI_NETWORK_IN_1_SIZE; i++) {
    if (scanf("%f", &input_f[i]) != 1) {
      return 1;
    }
  }
  quantize();
  in[0].data = input_q;
  out[0].data = output_q;
  if (ai_network_run(network, in, out) != 1) {
    return 1;
  }
  dequantize();
  for (int i = 0; i < AI_NETWORK_IN_1_SIZE; i++) {
    printf("%d %u %d %a\n", input_q[i], input_u[i], output_q[i], output_f[i]);
  }
  return ai_network_destroy(network) != AI_HANDLE_NULL;
}
