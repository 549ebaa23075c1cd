/* SPDX-License-Identifier: Apache-2.0 */
/* libnnpa_network: networks that a server hosts, for C that `nnpa network generate` wrote.
 * Programs call ai_<name>_create and its like instead. */
#ifndef NNPA_NETWORK_H
#define NNPA_NETWORK_H

#include "ai_platform.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NNPA_NETWORK_TYPES 10 /* ai_i8 to ai_u64, ai_float, ai_size */

/* The tables of a generated network, in static memory. */
typedef struct nnpa_network_model_ {
  const ai_u8 *header; /* nnpa.network.v1.CreateNetworkHeader without session */
  ai_u32 header_size;
  const ai_u8 *model; /* the ONNX file */
  ai_u64 model_size;
  const char *signature; /* 32 hex digits, checked by init */
  ai_platform_version tools_api_version;
  ai_custom_type_signature type_sizes[NNPA_NETWORK_TYPES];
  const ai_u8 *weights_sha256; /* of the weights that the model file has, 32 bytes */
  ai_u32 weights_size;
  ai_u32 n_pieces; /* split weights; 0: one array */
  const ai_u32 *piece_sizes;
} nnpa_network_model;

/* A type's entry of type_sizes. */
#define NNPA_NETWORK_TYPE(type_) \
  ((ai_custom_type_signature)(sizeof(type_) | ((type_)-1 > (type_)0 ? 0x80u : 0u)))

/* ai_<name>_create, _init, _run, _forward, _get_error, _get_info, _destroy. */
ai_error nnpa_network_create(ai_handle *network, const nnpa_network_model *model,
                             const ai_buffer *network_config);
ai_bool nnpa_network_init(ai_handle network, const ai_network_params *params);
ai_i32 nnpa_network_run(ai_handle network, const ai_buffer *input, ai_buffer *output);
ai_i32 nnpa_network_forward(ai_handle network, const ai_buffer *input);
ai_error nnpa_network_get_error(ai_handle network);
ai_bool nnpa_network_get_info(ai_handle network, ai_network_report *report);
ai_handle nnpa_network_destroy(ai_handle network);

#ifdef __cplusplus
}
#endif

#endif
