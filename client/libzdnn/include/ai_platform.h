/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the Embedded Inference Client API 1.1.0, for networks that a server hosts. Written
 * from the API's documentation; names, numbers and layouts are the API's own. Source: X-CUBE-AI
 * 7.0, "Embedded Inference Client API". */
#ifndef AI_PLATFORM_H
#define AI_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define AI_STATIC_ASSERT(holds_, name_) static_assert(holds_, #name_);
#else
#define AI_STATIC_ASSERT(holds_, name_) _Static_assert(holds_, #name_);
#endif

/* Versions, unless a generated <name>_config.h defines others. */
#ifndef AI_PLATFORM_API_MAJOR
#define AI_PLATFORM_API_MAJOR 1
#define AI_PLATFORM_API_MINOR 1
#define AI_PLATFORM_API_MICRO 0
#endif
#ifndef AI_TOOLS_API_VERSION_MAJOR
#define AI_TOOLS_API_VERSION_MAJOR 1
#define AI_TOOLS_API_VERSION_MINOR 4
#define AI_TOOLS_API_VERSION_MICRO 0
#endif
#define AI_VERSION(major_, minor_, micro_) \
  (((ai_u32)(major_) << 24) | ((ai_u32)(minor_) << 16) | ((ai_u32)(micro_) << 8))
#define AI_PLATFORM_API_VERSION \
  AI_VERSION(AI_PLATFORM_API_MAJOR, AI_PLATFORM_API_MINOR, AI_PLATFORM_API_MICRO)
#define AI_TOOLS_API_VERSION \
  AI_VERSION(AI_TOOLS_API_VERSION_MAJOR, AI_TOOLS_API_VERSION_MINOR, AI_TOOLS_API_VERSION_MICRO)

#define AI_CONCAT_ARG(a, b) a##b
#define AI_CONCAT(a, b) AI_CONCAT_ARG(a, b)

/* Declares alignment in bytes; nothing where the compiler has no attribute for it. */
#if defined(__GNUC__) || defined(__clang__)
#define AI_ALIGNED(value_) __attribute__((aligned(value_)))
#else
#define AI_ALIGNED(value_)
#endif

/* Scalars. */
typedef int8_t ai_i8;
typedef uint8_t ai_u8;
typedef int16_t ai_i16;
typedef uint16_t ai_u16;
typedef int32_t ai_i32;
typedef uint32_t ai_u32;
typedef int64_t ai_i64;
typedef uint64_t ai_u64;
typedef float ai_float;
typedef double ai_double;
typedef bool ai_bool;
typedef char ai_char;
typedef int ai_int;
typedef unsigned int ai_uint;
typedef uint32_t ai_size; /* counts of elements and of bytes */
typedef void *ai_ptr;
typedef void *ai_handle; /* networks, and addresses of data */
typedef uint32_t ai_signature;
typedef int32_t ai_buffer_format;
typedef uint8_t ai_custom_type_signature; /* sizeof, bit 7 set for unsigned types */

#define AI_HANDLE_PTR(ptr_) ((ai_handle)(ptr_))
#define AI_HANDLE_NULL AI_HANDLE_PTR(0)

/* Versions. */
typedef struct ai_platform_version_ {
  ai_u8 major;
  ai_u8 minor;
  ai_u8 micro;
  ai_u8 reserved;
} ai_platform_version;

/* Errors. */
typedef enum {
  AI_ERROR_NONE = 0x00,
  AI_ERROR_TOOL_PLATFORM_API_MISMATCH = 0x01,
  AI_ERROR_TYPES_MISMATCH = 0x02,
  AI_ERROR_INVALID_HANDLE = 0x10,
  AI_ERROR_INVALID_STATE = 0x11,
  AI_ERROR_INVALID_INPUT = 0x12,
  AI_ERROR_INVALID_OUTPUT = 0x13,
  AI_ERROR_INVALID_PARAM = 0x14,
  AI_ERROR_INVALID_SIGNATURE = 0x15,
  AI_ERROR_INIT_FAILED = 0x30,
  AI_ERROR_ALLOCATION_FAILED = 0x31,
  AI_ERROR_DEALLOCATION_FAILED = 0x32,
  AI_ERROR_CREATE_FAILED = 0x33,
} ai_error_type;

typedef enum {
  AI_ERROR_CODE_NONE = 0x0000,
  AI_ERROR_CODE_NETWORK = 0x0010,
  AI_ERROR_CODE_NETWORK_PARAMS = 0x0011,
  AI_ERROR_CODE_NETWORK_WEIGHTS = 0x0012,
  AI_ERROR_CODE_NETWORK_ACTIVATIONS = 0x0013,
  AI_ERROR_CODE_LAYER = 0x0014,
  AI_ERROR_CODE_TENSOR = 0x0015,
  AI_ERROR_CODE_ARRAY = 0x0016,
  AI_ERROR_CODE_INVALID_PTR = 0x0017,
  AI_ERROR_CODE_INVALID_SIZE = 0x0018,
  AI_ERROR_CODE_INVALID_FORMAT = 0x0019,
  AI_ERROR_CODE_OUT_OF_RANGE = 0x0020,
  AI_ERROR_CODE_INVALID_BATCH = 0x0021,
  AI_ERROR_CODE_MISSED_INIT = 0x0030,
  AI_ERROR_CODE_IN_USE = 0x0040,
} ai_error_code;

typedef struct ai_error_ {
  ai_u32 type : 8;  /* ai_error_type */
  ai_u32 code : 24; /* ai_error_code */
} ai_error;

/* The format word: bits 0-6 fractional bits + 64, 7-13 bits, 14-16 padding bits, 17-20 type,
 * 21-22 log2 of a divisor, 23 sign, 24 float; above them attributes. */
#define AI_BUFFER_FMT_TYPE_NONE 0x0
#define AI_BUFFER_FMT_TYPE_FLOAT 0x1
#define AI_BUFFER_FMT_TYPE_Q 0x2
#define AI_BUFFER_FMT_TYPE_BOOL 0x3

#define AI_BUFFER_FMT_FLAG_CONST 0x40000000
#define AI_BUFFER_FMT_FLAG_STATIC 0x20000000
#define AI_BUFFER_FMT_FLAG_IS_IO 0x08000000
#define AI_BUFFER_FMT_MASK 0x01FFFFFF

#define AI_BUFFER_FMT_GET(fmt_) ((ai_buffer_format)((fmt_) & AI_BUFFER_FMT_MASK))
#define AI_BUFFER_FMT_BITS_(fmt_, at_, width_) \
  (((ai_u32)(fmt_) >> (at_)) & ((1u << (width_)) - 1u))
#define AI_BUFFER_FMT_GET_TYPE(fmt_) AI_BUFFER_FMT_BITS_(fmt_, 17, 4)
#define AI_BUFFER_FMT_GET_FLOAT(fmt_) AI_BUFFER_FMT_BITS_(fmt_, 24, 1)
#define AI_BUFFER_FMT_GET_SIGN(fmt_) AI_BUFFER_FMT_BITS_(fmt_, 23, 1)
#define AI_BUFFER_FMT_GET_BITS(fmt_) AI_BUFFER_FMT_BITS_(fmt_, 7, 7)
#define AI_BUFFER_FMT_GET_FBITS(fmt_) ((ai_i32)AI_BUFFER_FMT_BITS_(fmt_, 0, 7) - 64)
#define AI_BUFFER_FMT_SAME(a_, b_) (AI_BUFFER_FMT_GET(a_) == AI_BUFFER_FMT_GET(b_))
#define AI_BUFFER_FMT_SET(type_, sign_, float_, bits_, fbits_)                       \
  ((ai_buffer_format)(((ai_u32)(float_) << 24) | ((ai_u32)(sign_) << 23) |           \
                      ((ai_u32)(type_) << 17) | ((ai_u32)(bits_) << 7) | ((fbits_) + 64)))

enum {
  AI_BUFFER_FORMAT_NONE = 0x00000040,
  AI_BUFFER_FORMAT_FLOAT = 0x01821040,
  AI_BUFFER_FORMAT_U8 = 0x00040440,
  AI_BUFFER_FORMAT_U16 = 0x00040840,
  AI_BUFFER_FORMAT_S8 = 0x00840440,
  AI_BUFFER_FORMAT_S16 = 0x00840840,
  AI_BUFFER_FORMAT_Q = 0x00840040,
  AI_BUFFER_FORMAT_Q7 = 0x00840447,
  AI_BUFFER_FORMAT_Q15 = 0x0084084F,
  AI_BUFFER_FORMAT_UQ = 0x00040040,
  AI_BUFFER_FORMAT_UQ7 = 0x00040447,
  AI_BUFFER_FORMAT_UQ15 = 0x0004084F,
  AI_BUFFER_FORMAT_BOOL = 0x00060440,
};

/* Scale and zero point. */
#define AI_BUFFER_META_HAS_INTQ_INFO 0x1
#define AI_BUFFER_META_FLAG_SCALE_FLOAT 0x1
#define AI_BUFFER_META_FLAG_ZEROPOINT_U8 0x2
#define AI_BUFFER_META_FLAG_ZEROPOINT_S8 0x4

typedef struct ai_intq_info_ {
  ai_float *scale;
  ai_handle zeropoint; /* ai_i8 or ai_u8 */
} ai_intq_info;

typedef struct ai_intq_info_list_ {
  ai_u16 flags;
  ai_u16 size; /* 1: one for the tensor */
  ai_intq_info *info;
} ai_intq_info_list;

typedef struct ai_buffer_meta_info_ {
  ai_u32 flags;
  ai_intq_info_list *intq_info;
} ai_buffer_meta_info;

#define AI_BUFFER_META_INFO(buffer_) ((buffer_)->meta_info)
#define AI_BUFFER_META_INFO_INTQ(meta_) (ai_buffer_intq_(meta_))
#define AI_BUFFER_META_INFO_INTQ_GET_SIZE(meta_) (ai_buffer_intq_size_(meta_))
#define AI_BUFFER_META_INFO_INTQ_GET_SCALE(meta_, pos_) (ai_buffer_scale_((meta_), (pos_)))
#define AI_BUFFER_META_INFO_INTQ_GET_ZEROPOINT(meta_, pos_) (ai_buffer_zeropoint_((meta_), (pos_)))

static inline ai_intq_info_list *ai_buffer_intq_(const ai_buffer_meta_info *meta) {
  return meta != NULL && (meta->flags & AI_BUFFER_META_HAS_INTQ_INFO) ? meta->intq_info : NULL;
}

static inline ai_u16 ai_buffer_intq_size_(const ai_buffer_meta_info *meta) {
  const ai_intq_info_list *list = ai_buffer_intq_(meta);
  return list != NULL ? list->size : (ai_u16)0;
}

static inline ai_float ai_buffer_scale_(const ai_buffer_meta_info *meta, ai_size pos) {
  return pos < ai_buffer_intq_size_(meta) ? meta->intq_info->info->scale[pos] : 0.0f;
}

static inline ai_i32 ai_buffer_zeropoint_(const ai_buffer_meta_info *meta, ai_size pos) {
  if (pos >= ai_buffer_intq_size_(meta)) {
    return 0;
  }
  const ai_intq_info_list *list = meta->intq_info;
  return list->flags & AI_BUFFER_META_FLAG_ZEROPOINT_U8
             ? (ai_i32)((const ai_u8 *)list->info->zeropoint)[pos]
             : (ai_i32)((const ai_i8 *)list->info->zeropoint)[pos];
}

/* Buffers: channels are innermost, batches outermost. */
typedef struct ai_buffer_ {
  ai_buffer_format format;
  ai_u16 n_batches;
  ai_u16 height;
  ai_u16 width;
  ai_u32 channels;
  ai_handle data;
  ai_buffer_meta_info *meta_info; /* only in a report */
} ai_buffer;

#define AI_BUFFER_FORMAT(buffer_) AI_BUFFER_FMT_GET((buffer_)->format)
#define AI_BUFFER_HEIGHT(buffer_) ((buffer_)->height)
#define AI_BUFFER_WIDTH(buffer_) ((buffer_)->width)
#define AI_BUFFER_CHANNELS(buffer_) ((buffer_)->channels)
#define AI_BUFFER_N_BATCHES(buffer_) ((buffer_)->n_batches)
#define AI_BUFFER_DATA(buffer_, type_) ((type_ *)((buffer_)->data))
/* Elements of one batch, and bytes of `count_` elements. */
#define AI_BUFFER_SIZE(buffer_) \
  ((ai_size)(buffer_)->width * (buffer_)->height * (buffer_)->channels)
#define AI_BUFFER_BYTE_SIZE(count_, fmt_) \
  ((((ai_size)(count_)) * AI_BUFFER_FMT_GET_BITS(fmt_) + 4) >> 3)
#define AI_BUFFER_OBJ_INIT(format_, h_, w_, ch_, n_batches_, data_)                     \
  {(ai_buffer_format)(format_), (ai_u16)(n_batches_), (ai_u16)(h_), (ai_u16)(w_),       \
   (ai_u32)(ch_), AI_HANDLE_PTR(data_), NULL}

/* Parameters of init: weights first, activations second. */
typedef struct ai_network_params_ {
  ai_buffer params;
  ai_buffer activations;
} ai_network_params;

#define AI_NETWORK_PARAMS_INIT(params_, activations_) {params_, activations_}

/* The description of a network. */
typedef struct ai_network_report_ {
  const char *model_name;
  const char *model_signature; /* 32 hex digits */
  const char *model_datetime;
  const char *compile_datetime;
  const char *runtime_revision;
  ai_platform_version runtime_version;
  const char *tool_revision;
  ai_platform_version tool_version;
  ai_platform_version tool_api_version;
  ai_platform_version api_version;
  ai_platform_version interface_api_version;
  ai_u32 n_macc;
  ai_u16 n_inputs;
  ai_u16 n_outputs;
  ai_buffer *inputs;
  ai_buffer *outputs;
  ai_buffer activations;
  ai_buffer params;
  ai_u32 n_nodes;
  ai_signature signature;
} ai_network_report;

AI_STATIC_ASSERT(sizeof(ai_error) == 4 && sizeof(ai_platform_version) == 4, ai_words)
#if UINTPTR_MAX > 0xFFFFFFFFu
AI_STATIC_ASSERT(sizeof(ai_buffer) == 32, ai_buffer)
AI_STATIC_ASSERT(offsetof(ai_buffer, n_batches) == 4, ai_buffer_n_batches)
AI_STATIC_ASSERT(offsetof(ai_buffer, height) == 6, ai_buffer_height)
AI_STATIC_ASSERT(offsetof(ai_buffer, width) == 8, ai_buffer_width)
AI_STATIC_ASSERT(offsetof(ai_buffer, channels) == 12, ai_buffer_channels)
AI_STATIC_ASSERT(offsetof(ai_buffer, data) == 16, ai_buffer_data)
AI_STATIC_ASSERT(offsetof(ai_buffer, meta_info) == 24, ai_buffer_meta_info)
AI_STATIC_ASSERT(sizeof(ai_network_params) == 64, ai_network_params)
AI_STATIC_ASSERT(sizeof(ai_network_report) == 168, ai_network_report)
AI_STATIC_ASSERT(offsetof(ai_network_report, runtime_version) == 40, ai_report_runtime_version)
AI_STATIC_ASSERT(offsetof(ai_network_report, tool_revision) == 48, ai_report_tool_revision)
AI_STATIC_ASSERT(offsetof(ai_network_report, n_macc) == 72, ai_report_n_macc)
AI_STATIC_ASSERT(offsetof(ai_network_report, inputs) == 80, ai_report_inputs)
AI_STATIC_ASSERT(offsetof(ai_network_report, activations) == 96, ai_report_activations)
AI_STATIC_ASSERT(offsetof(ai_network_report, params) == 128, ai_report_params)
AI_STATIC_ASSERT(offsetof(ai_network_report, n_nodes) == 160, ai_report_n_nodes)
#endif

#ifdef __cplusplus
}
#endif

#endif
