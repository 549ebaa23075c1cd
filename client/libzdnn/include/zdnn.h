/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zdnn.h - the interface of IBM's zDNN 1.2.0, for programs that run without a mainframe.
 *
 * Names, numbers and layouts are taken from the zDNN API Reference 1.2.0; the text is this
 * project's.
 * Programs compiled with this header link libzdnn.so.0 (or libzdnn.a), and their operations run on
 * the emulated accelerator behind ZDNN_SERVER. They compile unchanged against IBM's own library.
 */
#ifndef ZDNN_H
#define ZDNN_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZDNN_VERSION "1.2.0"
#define ZDNN_VERNUM 0x010200 /* 0x00[major][minor][patch] */
#define ZDNN_VER_MAJOR 1
#define ZDNN_VER_MINOR 2
#define ZDNN_VER_PATCH 0

/* Classes of statuses, the upper half of the number. A warning is success: outputs are valid. */
#define ZDNN_WARNING 0x00020000
#define ZDNN_PARAMETER_ERROR 0x00040000
#define ZDNN_DATA_ERROR 0x00100000
#define ZDNN_HW_ERROR 0x000c0000

/* Bytes of a save area that a caller may lend to softmax and reduce, on a 4 KiB boundary. */
#define ZDNN_SOFTMAX_SAVEAREA_SIZE 8192
#define ZDNN_8K_SAVEAREA_SIZE 8192

/* Bit `pos` of a field of `field_size` bits, counted from its most significant bit. */
#define MSB_BITMASK(field_size, pos) (1u << ((field_size) - 1u - (pos)))

// generated: begin enums

/* Statuses of zDNN. */
typedef enum zdnn_status {
  ZDNN_OK = 0,
  ZDNN_ELEMENT_RANGE_VIOLATION = 0x00020001,
  ZDNN_INVALID_SHAPE = 0x00040001,
  ZDNN_INVALID_LAYOUT = 0x00040002,
  ZDNN_INVALID_TYPE = 0x00040003,
  ZDNN_INVALID_FORMAT = 0x00040004,
  ZDNN_INVALID_DIRECTION = 0x00040005,
  ZDNN_INVALID_CONCAT_INFO = 0x00040006,
  ZDNN_INVALID_STRIDE_PADDING = 0x00040007,
  ZDNN_INVALID_STRIDES = 0x00040008,
  ZDNN_MISALIGNED_PARMBLOCK = 0x00040009,
  ZDNN_INVALID_CLIPPING_VALUE = 0x0004000A,
  ZDNN_INVALID_ADJUSTMENT_FACTOR = 0x0004000B,
  ZDNN_INVALID_EPSILON = 0x0004000C,
  ZDNN_INVALID_TRANSFORM_TYPE = 0x0004000D,
  ZDNN_INVALID_BETA = 0x0004000E,
  ZDNN_INVALID_GAMMA = 0x0004000F,
  ZDNN_INVALID_BESSEL_CORRECTION = 0x00040010,
  ZDNN_INVALID_SCALE = 0x00040011,
  ZDNN_INVALID_OFFSET = 0x00040012,
  ZDNN_ALLOCATION_FAILURE = 0x00100001,
  ZDNN_INVALID_BUFFER = 0x00100002,
  ZDNN_CONVERT_FAILURE = 0x00100003,
  ZDNN_INVALID_STATE = 0x00100004,
  ZDNN_UNSUPPORTED_AIU_EXCEPTION = 0x00100005,
  ZDNN_UNSUPPORTED_PARMBLOCK = 0x000C0001,
  ZDNN_UNAVAILABLE_FUNCTION = 0x000C0002,
  ZDNN_UNSUPPORTED_FORMAT = 0x000C0010,
  ZDNN_UNSUPPORTED_TYPE = 0x000C0011,
  ZDNN_EXCEEDS_MDIS = 0x000C0012,
  ZDNN_EXCEEDS_MTS = 0x000C0013,
  ZDNN_MISALIGNED_TENSOR = 0x000C0014,
  ZDNN_MISALIGNED_SAVEAREA = 0x000C0015,
  ZDNN_FUNC_RC_F000 = 0x000CF000,
  ZDNN_FUNC_RC_F001 = 0x000CF001,
  ZDNN_FUNC_RC_F002 = 0x000CF002,
  ZDNN_FUNC_RC_F003 = 0x000CF003,
  ZDNN_FUNC_RC_F004 = 0x000CF004,
  ZDNN_FUNC_RC_F005 = 0x000CF005,
  ZDNN_FUNC_RC_F006 = 0x000CF006,
  ZDNN_FUNC_RC_F007 = 0x000CF007,
  ZDNN_FUNC_RC_F008 = 0x000CF008,
  ZDNN_FUNC_RC_F009 = 0x000CF009
} zdnn_status;

/* Paddings of pooling and convolution. */
typedef enum zdnn_pool_padding {
  VALID_PADDING = 0,
  SAME_PADDING = 1
} zdnn_pool_padding;

/* Operations of matmul_op, matmul_transpose_op and quantized_matmul_op. */
typedef enum zdnn_matmul_ops {
  MATMUL_OP_ADDITION = 0,
  MATMUL_OP_GREATER = 1,
  MATMUL_OP_GREATER_EQUAL = 2,
  MATMUL_OP_EQUAL = 3,
  MATMUL_OP_NOT_EQUAL = 4,
  MATMUL_OP_LESSER_EQUAL = 5,
  MATMUL_OP_LESSER = 6
} zdnn_matmul_ops;

/* Operations of matmul_bcast_op. */
typedef enum zdnn_matmul_bcast_ops {
  MATMUL_BCAST_OP_ADDITION = 0,
  MATMUL_BCAST_OP_GREATER = 1,
  MATMUL_BCAST_OP_GREATER_EQUAL = 2,
  MATMUL_BCAST_OP_EQUAL = 3,
  MATMUL_BCAST_OP_NOT_EQUAL = 4,
  MATMUL_BCAST_OP_LESSER_EQUAL = 5,
  MATMUL_BCAST_OP_LESSER = 6
} zdnn_matmul_bcast_ops;

/* Functions that softmax applies to its result. */
typedef enum zdnn_softmax_act {
  SOFTMAX_ACT_NONE = 0,
  SOFTMAX_ACT_LOG = 1
} zdnn_softmax_act;

/* Activations that conv2d applies to its result. */
typedef enum zdnn_conv2d_act {
  CONV2D_ACT_NONE = 0,
  CONV2D_ACT_RELU = 1
} zdnn_conv2d_act;

/* Operations of reduce. */
typedef enum zdnn_reduce_ops {
  REDUCE_OP_MINIMUM = 0,
  REDUCE_OP_MINIMUM_IDX = 1,
  REDUCE_OP_MAXIMUM = 2,
  REDUCE_OP_MAXIMUM_IDX = 3
} zdnn_reduce_ops;

/* Divisors of the variance. */
typedef enum zdnn_moments_bessel {
  MOMENTS_BESSEL_POPULATION = 0,
  MOMENTS_BESSEL_SAMPLE = 1
} zdnn_moments_bessel;

/* Directions of recurrent layers. */
typedef enum lstm_gru_direction {
  FWD = 0,
  BWD = 1,
  BIDIR = 2
} lstm_gru_direction;

/* Functions of the NNPA instruction. */
typedef enum nnpa_function_code {
  NNPA_QAF = 0,
  NNPA_ADD = 16,
  NNPA_SUB = 17,
  NNPA_MUL = 18,
  NNPA_DIV = 19,
  NNPA_MIN = 20,
  NNPA_MAX = 21,
  NNPA_LOG = 32,
  NNPA_EXP = 33,
  NNPA_SQRT = 34,
  NNPA_INVSQRT = 35,
  NNPA_RELU = 49,
  NNPA_TANH = 50,
  NNPA_SIGMOID = 51,
  NNPA_SOFTMAX = 52,
  NNPA_GELU = 53,
  NNPA_BATCHNORMALIZATION = 64,
  NNPA_MOMENTS = 65,
  NNPA_LAYERNORM = 66,
  NNPA_NORM = 67,
  NNPA_MAXPOOL2D = 80,
  NNPA_AVGPOOL2D = 81,
  NNPA_LSTMACT = 96,
  NNPA_GRUACT = 97,
  NNPA_CONVOLUTION = 112,
  NNPA_MATMUL_OP = 113,
  NNPA_MATMUL_OP_BCAST23 = 114,
  NNPA_MATMUL_OP_BCAST1 = 115,
  NNPA_TRANSFORM = 240,
  NNPA_REDUCE = 241
} nnpa_function_code;

/* Formats of the NNPA parameter block. */
typedef enum nnpa_parmblk_format {
  NNPA_PARMBLKFORMAT_0 = 0,
  NNPA_PARMBLKFORMAT_1 = 1
} nnpa_parmblk_format;

/* Types of the NNPA instruction. */
typedef enum nnpa_data_type {
  NNPA_DATATYPE_1 = 0,
  NNPA_32_BIT_BINARY_FP_SHORT = 6,
  NNPA_8_BIT_BINARY_INT = 8,
  NNPA_32_BIT_BINARY_INT = 10
} nnpa_data_type;

/* Layout formats of the NNPA instruction. */
typedef enum nnpa_layout_format {
  NNPA_LAYOUTFMT_4DFEATURE = 0,
  NNPA_LAYOUTFMT_4DKERNEL = 1,
  NNPA_LAYOUTFMT_4DWEIGHTS = 2,
  NNPA_LAYOUTFMT_4DGENERIC = 31
} nnpa_layout_format;

/* Formats that DLFLOAT16 converts from and to. */
typedef enum nnpa_bfp_format {
  NNPA_BFPFMT_TINY = 1,
  NNPA_BFPFMT_SHORT = 2
} nnpa_bfp_format;

/* Layouts of tensors. */
typedef enum zdnn_data_layouts {
  ZDNN_1D = 0,
  ZDNN_2D = 1,
  ZDNN_2DS = 2,
  ZDNN_3D = 3,
  ZDNN_3DS = 4,
  ZDNN_ZRH = 5,
  ZDNN_4D = 6,
  ZDNN_4DS = 7,
  ZDNN_NHWC = 8,
  ZDNN_NCHW = 9,
  ZDNN_FICO = 10,
  ZDNN_HWCK = 11,
  ZDNN_BIDIR_ZRH = 12,
  ZDNN_BIDIR_FICO = 13
} zdnn_data_layouts;

/* Formats of transformed data. */
typedef enum zdnn_data_formats {
  ZDNN_FORMAT_4DFEATURE = 0,
  ZDNN_FORMAT_4DKERNEL = 1,
  ZDNN_FORMAT_4DWEIGHTS = 2,
  ZDNN_FORMAT_4DGENERIC = 31
} zdnn_data_formats;

/* Types of elements. */
typedef enum zdnn_data_types {
  ZDNN_DLFLOAT16 = 0,
  ZDNN_BINARY_FP32 = 6,
  ZDNN_BINARY_INT8 = 8,
  ZDNN_BINARY_INT32 = 10,
  INT8 = 251,
  INT32 = 252,
  BFLOAT = 253,
  FP16 = 254,
  FP32 = 255
} zdnn_data_types;

/* Kinds of quantized transformed tensors. */
typedef enum zdnn_quantized_transform_types {
  QUANTIZED_DLFLOAT16 = 0,
  QUANTIZED_INT8 = 1,
  QUANTIZED_WEIGHTS_INT8 = 2
} zdnn_quantized_transform_types;

// generated: end

/* What follows a product in NNPA_MATMUL_OP. */
typedef enum nnpa_matmul_operations {
  NNPA_MATMUL_OP_ADDITION = 0,
  NNPA_MATMUL_OP_COMP_HIGH = 1,
  NNPA_MATMUL_OP_COMP_NOT_LOW = 2,
  NNPA_MATMUL_OP_COMP_EQUAL = 3,
  NNPA_MATMUL_OP_COMP_NOT_EQUAL = 4,
  NNPA_MATMUL_OP_COMP_NOT_HIGH = 5,
  NNPA_MATMUL_OP_COMP_LOW = 6
} nnpa_matmul_operations;

/* What follows a product in NNPA_MATMUL_OP_BCAST23 and _BCAST1. */
typedef enum nnpa_matmul_bcast_operations {
  NNPA_MATMUL_BCAST_OP_ADDITION = 0,
  NNPA_MATMUL_BCAST_OP_COMP_HIGH = 1,
  NNPA_MATMUL_BCAST_OP_COMP_NOT_LOW = 2,
  NNPA_MATMUL_BCAST_OP_COMP_EQUAL = 3,
  NNPA_MATMUL_BCAST_OP_COMP_NOT_EQUAL = 4,
  NNPA_MATMUL_BCAST_OP_COMP_NOT_HIGH = 5,
  NNPA_MATMUL_BCAST_OP_COMP_LOW = 6
} nnpa_matmul_bcast_operations;

/* What follows NNPA_SOFTMAX. */
typedef enum nnpa_softmax_act {
  NNPA_SOFTMAX_NONE = 0,
  NNPA_SOFTMAX_LOG = 1
} nnpa_softmax_act;

/* What NNPA_REDUCE finds. */
typedef enum nnpa_reduce_operations {
  NNPA_REDUCE_OP_MINIMUM = 0,
  NNPA_REDUCE_OP_MINIMUM_IDX = 1,
  NNPA_REDUCE_OP_MAXIMUM = 2,
  NNPA_REDUCE_OP_MAXIMUM_IDX = 3
} nnpa_reduce_operations;

/* Masks for zdnn_is_nnpa_datatype_installed. */
typedef enum zdnn_query_datatypes {
  QUERY_DATATYPE_INTERNAL1 = MSB_BITMASK(16, NNPA_DATATYPE_1),
  QUERY_DATATYPE_BINARY_FP32 = MSB_BITMASK(16, NNPA_32_BIT_BINARY_FP_SHORT),
  QUERY_DATATYPE_BINARY_INT8 = MSB_BITMASK(16, NNPA_8_BIT_BINARY_INT),
  QUERY_DATATYPE_BINARY_INT32 = MSB_BITMASK(16, NNPA_32_BIT_BINARY_INT)
} zdnn_query_datatypes;

/* Masks for zdnn_is_nnpa_layout_fmt_installed. */
__extension__ typedef enum zdnn_query_layoutfmts {
  QUERY_LAYOUTFMT_4DFEATURE = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DFEATURE),
  QUERY_LAYOUTFMT_4DKERNEL = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DKERNEL),
  QUERY_LAYOUTFMT_4DWEIGHTS = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DWEIGHTS),
  QUERY_LAYOUTFMT_4DGENERIC = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DGENERIC)
} zdnn_query_layoutfmts;

/* Masks for zdnn_is_nnpa_conversion_installed. */
typedef enum zdnn_query_bfpfmts {
  QUERY_BFPFMT_TINY = MSB_BITMASK(16, NNPA_BFPFMT_TINY),
  QUERY_BFPFMT_SHORT = MSB_BITMASK(16, NNPA_BFPFMT_SHORT)
} zdnn_query_bfpfmts;

/* The sum of one RNN_TYPE_, one PREV_LAYER_ and one USAGE_, of a concatenated descriptor. */
typedef uint32_t zdnn_concat_info;

#define BITSHIFT_RNN_TYPE 24
#define BITSHIFT_PREV_LAYER 16
#define BITSHIFT_USAGE 8

#define RNN_TYPE_LSTM (0u << BITSHIFT_RNN_TYPE)
#define RNN_TYPE_GRU (1u << BITSHIFT_RNN_TYPE)
#define PREV_LAYER_UNI (0u << BITSHIFT_PREV_LAYER)
#define PREV_LAYER_NONE PREV_LAYER_UNI
#define PREV_LAYER_BIDIR (1u << BITSHIFT_PREV_LAYER)
#define USAGE_WEIGHTS (0u << BITSHIFT_USAGE)
#define USAGE_HIDDEN_WEIGHTS (1u << BITSHIFT_USAGE)
#define USAGE_BIASES (2u << BITSHIFT_USAGE)
#define USAGE_HIDDEN_BIASES (3u << BITSHIFT_USAGE)

#define CONCAT_RNN_TYPE(info) ((info) & (0xFFu << BITSHIFT_RNN_TYPE))
#define CONCAT_PREV_LAYER(info) ((info) & (0xFFu << BITSHIFT_PREV_LAYER))
#define CONCAT_USAGE(info) ((info) & (0xFFu << BITSHIFT_USAGE))

/* Describes a tensor: 28 bytes. Dimensions are elements, dim1 is innermost. */
typedef struct zdnn_tensor_desc {
  zdnn_data_layouts layout;
  zdnn_data_formats format; /* of sticks; not set in a pre-transformed descriptor */
  zdnn_data_types type;
  uint32_t dim4;
  uint32_t dim3;
  uint32_t dim2;
  uint32_t dim1;
} zdnn_tensor_desc;

/* A tensor: 64 bytes. Descriptors are borrowed and read at every call. */
typedef struct zdnn_ztensor {
  zdnn_tensor_desc *pre_transformed_desc;
  zdnn_tensor_desc *transformed_desc;
  uint64_t buffer_size; /* bytes */
  void *buffer;         /* sticks, on a 4 KiB boundary, elements in native byte order */
  bool is_transformed;
  char reserved[3];
  float rec_scale; /* 1 / scale, 0: not quantized */
  float offset;
  char reserved2[20];
} zdnn_ztensor;

/* Empty parentheses are the interface: in C before C23 they accept any arguments. */
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wstrict-prototypes"
#elif defined(__GNUC__) && !defined(__cplusplus)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#endif


/* Environment and descriptors. */
void zdnn_init();
void zdnn_init_pre_transformed_desc(zdnn_data_layouts layout, zdnn_data_types type,
    zdnn_tensor_desc *pre_tfrmd_desc, ...);
zdnn_status zdnn_generate_transformed_desc(const zdnn_tensor_desc *pre_tfrmd_desc,
    zdnn_tensor_desc *tfrmd_desc);
zdnn_status zdnn_generate_quantized_transformed_desc(const zdnn_tensor_desc *pre_tfrmd_desc,
    zdnn_quantized_transform_types transform_type, zdnn_tensor_desc *tfrmd_desc);
zdnn_status zdnn_generate_transformed_desc_concatenated(const zdnn_tensor_desc *pre_tfrmd_desc,
    zdnn_concat_info info, zdnn_tensor_desc *tfrmd_desc);

/* Life of a ztensor. */
zdnn_status zdnn_allochelper_ztensor(zdnn_ztensor *ztensor);
zdnn_status zdnn_free_ztensor_buffer(const zdnn_ztensor *ztensor);
void zdnn_init_ztensor(zdnn_tensor_desc *pre_tfrmd_desc, zdnn_tensor_desc *tfrmd_desc,
    zdnn_ztensor *output);
void zdnn_init_quantized_ztensor(zdnn_tensor_desc *pre_tfrmd_desc, zdnn_tensor_desc *tfrmd_desc,
    float scale, float offset, zdnn_ztensor *output);
zdnn_status zdnn_init_ztensor_with_malloc(zdnn_tensor_desc *pre_tfrmd_desc,
    zdnn_tensor_desc *tfrmd_desc, zdnn_ztensor *output);
zdnn_status zdnn_init_quantized_ztensor_with_malloc(zdnn_tensor_desc *pre_tfrmd_desc,
    zdnn_tensor_desc *tfrmd_desc, float scale, float offset, zdnn_ztensor *output);
bool zdnn_is_quantized_ztensor(zdnn_ztensor *ztensor);
void zdnn_reset_ztensor(zdnn_ztensor *ztensor);
uint64_t zdnn_getsize_ztensor(const zdnn_tensor_desc *tfrmd_desc);
zdnn_status zdnn_getrange_ztensor(const zdnn_ztensor *ztensor, float *min, float *max);

/* Queries of the machine. */
bool zdnn_is_nnpa_installed();
bool zdnn_is_nnpa_function_installed(int count, ...);
bool zdnn_is_nnpa_parmblk_fmt_installed(int count, ...);
bool zdnn_is_nnpa_datatype_installed(uint16_t types_bitmask);
bool zdnn_is_nnpa_layout_fmt_installed(uint32_t layout_bitmask);
bool zdnn_is_nnpa_conversion_installed(nnpa_data_type type, uint16_t format_bitmask);
uint32_t zdnn_get_nnpa_max_dim_idx_size();
uint32_t zdnn_get_max_for_dim(uint8_t dimension);
uint64_t zdnn_get_nnpa_max_tensor_size();
zdnn_status zdnn_refresh_nnpa_query_result();
bool zdnn_is_version_runnable(uint32_t ver_num);
uint32_t zdnn_get_max_runnable_version();

// generated: begin operations

/* Elementwise operations. */
zdnn_status zdnn_add(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_sub(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_mul(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_div(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_min(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_max(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_log(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_exp(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_sqrt(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_invsqrt(const zdnn_ztensor *input, float epsilon, zdnn_ztensor *output);

/* Activations. */
zdnn_status zdnn_relu(const zdnn_ztensor *input, const void *clipping_value, zdnn_ztensor *output);
zdnn_status zdnn_leaky_relu(const zdnn_ztensor *input, const void *clipping_value,
    float adjustment_factor, zdnn_ztensor *output);
zdnn_status zdnn_tanh(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_sigmoid(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_softmax(const zdnn_ztensor *input, void *save_area, zdnn_softmax_act act_func,
    zdnn_ztensor *output);
zdnn_status zdnn_softmax_mask(const zdnn_ztensor *input, void *save_area, zdnn_softmax_act act_func,
    uint32_t softmax_mask, zdnn_ztensor *output);
zdnn_status zdnn_gelu(const zdnn_ztensor *input, zdnn_ztensor *output);

/* Normalization and reduction. */
zdnn_status zdnn_batchnorm(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, zdnn_ztensor *output);
zdnn_status zdnn_norm(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    zdnn_ztensor *output);
zdnn_status zdnn_moments(const zdnn_ztensor *input, zdnn_moments_bessel bessel_correction_type,
    zdnn_ztensor *output_a, zdnn_ztensor *output_b);
zdnn_status zdnn_layernorm(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, float beta_value, float gamma_value, float epsilon_value,
    zdnn_ztensor *output);
zdnn_status zdnn_meanreduce2d(const zdnn_ztensor *input, zdnn_ztensor *output);
zdnn_status zdnn_reduce(const zdnn_ztensor *input, void *save_area, zdnn_reduce_ops op_type,
    zdnn_ztensor *output);

/* Matrix products. */
zdnn_status zdnn_matmul_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, zdnn_matmul_ops op_type, zdnn_ztensor *output);
zdnn_status zdnn_matmul_bcast_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, zdnn_matmul_bcast_ops op_type, zdnn_ztensor *output);
zdnn_status zdnn_matmul_transpose_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, bool transpose_a, bool transpose_b, zdnn_matmul_ops op_type,
    zdnn_ztensor *output);
zdnn_status zdnn_quantized_matmul_op(const zdnn_ztensor *input_a, const zdnn_ztensor *input_b,
    const zdnn_ztensor *input_c, zdnn_matmul_ops op_type, int8_t clip_min, int8_t clip_max,
    bool disable_clipping, bool dequantize, bool pre_computed, void *work_area,
    zdnn_ztensor *output);

/* Pooling and convolution. */
zdnn_status zdnn_avgpool2d(const zdnn_ztensor *input, zdnn_pool_padding padding_type,
    uint32_t kernel_height, uint32_t kernel_width, uint32_t stride_height, uint32_t stride_width,
    zdnn_ztensor *output);
zdnn_status zdnn_maxpool2d(const zdnn_ztensor *input, zdnn_pool_padding padding_type,
    uint32_t kernel_height, uint32_t kernel_width, uint32_t stride_height, uint32_t stride_width,
    zdnn_ztensor *output);
zdnn_status zdnn_conv2d(const zdnn_ztensor *input, const zdnn_ztensor *kernel,
    const zdnn_ztensor *bias, zdnn_pool_padding padding_type, uint32_t stride_height,
    uint32_t stride_width, zdnn_conv2d_act act_func, const void *clipping_value,
    zdnn_ztensor *output);

/* Recurrent layers. work_area may be NULL. */
zdnn_status zdnn_lstm(const zdnn_ztensor *input, const zdnn_ztensor *h0, const zdnn_ztensor *c0,
    const zdnn_ztensor *weights, const zdnn_ztensor *biases, const zdnn_ztensor *hidden_weights,
    const zdnn_ztensor *hidden_biases, lstm_gru_direction direction, void *work_area,
    zdnn_ztensor *hn_output, zdnn_ztensor *cf_output);
zdnn_status zdnn_gru(const zdnn_ztensor *input, const zdnn_ztensor *h0, const zdnn_ztensor *weights,
    const zdnn_ztensor *biases, const zdnn_ztensor *hidden_weights,
    const zdnn_ztensor *hidden_biases, lstm_gru_direction direction, void *work_area,
    zdnn_ztensor *hn_output);

// generated: end

/* User data to sticks and back; variadic: one array, or one per gate. */
zdnn_status zdnn_transform_ztensor(zdnn_ztensor *ztensor, ...);
zdnn_status zdnn_transform_ztensor_with_saturation(zdnn_ztensor *ztensor, ...);
zdnn_status zdnn_transform_quantized_ztensor(zdnn_ztensor *ztensor, bool saturation_control,
    int8_t clip_min, int8_t clip_max, const void *data);
zdnn_status zdnn_transform_origtensor(const zdnn_ztensor *ztensor, void *out_buf);
zdnn_status zdnn_reshape_ztensor(const zdnn_ztensor *src, zdnn_ztensor *dest);

/* Versions, messages, limits. */
char *zdnn_get_library_version_str();
uint32_t zdnn_get_library_version();
const char *zdnn_get_status_message(zdnn_status status);
zdnn_status zdnn_get_max_limit(zdnn_data_types transformed_type,
    zdnn_data_types pre_transformed_type, void *limit);
zdnn_status zdnn_get_min_limit(zdnn_data_types transformed_type,
    zdnn_data_types pre_transformed_type, void *limit);

#if defined(__clang__)
#pragma clang diagnostic pop
#elif defined(__GNUC__) && !defined(__cplusplus)
#pragma GCC diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
