/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mli_api.h - fixed-point kernels of embARC MLI 1.x and utility functions of MLI 2.0, on any host.
 *
 * Names, numbers and fields are taken from the embARC Machine Learning Inference Library
 * documentation, "Common Group" (1.x) and "Utility Functions" (2.0); the text is this project's.
 * Both generations share the mli_tensor of 2.0. Link libmli.so.0 or libmli.a.
 */
#ifndef MLI_API_H
#define MLI_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLI_MAX_RANK 4

/* The status of a call. A build of debug level RELEASE always returns MLI_STATUS_OK. */
typedef enum {
  MLI_STATUS_OK = 0,
  MLI_STATUS_BAD_TENSOR = 1,
  MLI_STATUS_SHAPE_MISMATCH = 2,
  MLI_STATUS_INCOMPATEBLE_TENSORS = 3,
  MLI_STATUS_BAD_FUNC_CFG = 4,
  MLI_STATUS_NOT_ENGH_MEM = 5,
  MLI_STATUS_NOT_SUPPORTED = 6,
  MLI_STATUS_SPEC_PARAM_MISMATCH = 7,
  MLI_STATUS_ARGUMENT_ERROR = 8,
  MLI_STATUS_LENGTH_ERROR = 9,
  MLI_STATUS_SIZE_MISMATCH = 10,
  MLI_STATUS_RANK_MISMATCH = 11,
  MLI_STATUS_TYPE_MISMATCH = 12,
  MLI_STATUS_MEM_BANK_MISMATCH = 13,
  MLI_STATUS_MISALIGNMENT_ERROR = 14,
  MLI_STATUS_LARGE_ENUM = 0x02000000
} mli_status;

/* Type of an element, with the numbers of 2.0. FX_4 and FP_16 are names that no function takes. */
typedef enum {
  MLI_EL_FX_4 = 0x004,
  MLI_EL_FX_8 = 0x008,
  MLI_EL_FX_16 = 0x010,
  MLI_EL_SA_8 = 0x108,
  MLI_EL_SA_32 = 0x120,
  MLI_EL_FP_16 = 0x210,
  MLI_EL_FP_32 = 0x220,
  MLI_EL_LARGE_ENUM = 0x02000000
} mli_element_type;

/* Containers of the parameters of a signed asymmetric tensor: int16 scale, int16 zero point. */
typedef enum { MLI_EL_PARAM_SC16_ZP16 = 0 } mli_element_params_type;

/* Memory, or one value in its place. */
typedef struct {
  uint32_t capacity; /* bytes at the pointer; 0 for a value */
  union {
    void *void_p;
    int8_t *pi8;
    int16_t *pi16;
    int32_t *pi32;
    float *pf32;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    float f32;
  } mem;
} mli_data_container;

/* How numbers stand for values; the element type says which member holds. */
typedef union {
  /* MLI_EL_FX_*: value = x / 2^frac_bits. uint8 in 1.x, int8 in 2.0: -128..255 here. */
  struct {
    int16_t frac_bits;
  } fx;
  /*
   * MLI_EL_SA_*: value = (x - zero_point) * scale / 2^scale_frac_bits, with scale > 0.
   * dim < 0: each is one value, in mem.i16, mem.i16, mem.i8. dim >= 0: each is an array with a value
   * per slice of that dimension, in mem.pi16, mem.pi16, mem.pi8, of `capacity` bytes.
   */
  struct {
    mli_element_params_type type;
    mli_data_container zero_point;
    mli_data_container scale;
    int32_t dim;
    mli_data_container scale_frac_bits;
  } sa;
} mli_element_params;

/* Elements in memory, which a slice may share. */
typedef struct {
  mli_data_container data;           /* the first element; no value in place of the pointer */
  int32_t mem_stride[MLI_MAX_RANK];  /* elements between neighbours; 0: derived from the shape */
  uint32_t shape[MLI_MAX_RANK];      /* outermost dimension first */
  uint32_t rank;                     /* entries of shape and mem_stride that count */
  mli_element_type el_type;
  mli_element_params el_params;
} mli_tensor;

/* Which frames a recurrent cell reads and which outputs it keeps. */
typedef enum {
  RNN_ONE_TO_ONE = 0,     /* the whole input is one frame */
  RNN_BATCH_TO_BATCH = 1, /* shape[0] frames, all outputs */
  RNN_BATCH_TO_LAST = 2   /* shape[0] frames, the last output */
} mli_rnn_mode;

/* Activation of the output of a recurrent cell. */
typedef enum { RNN_ACT_NONE = 0, RNN_ACT_TANH = 1, RNN_ACT_SIGM = 2 } mli_rnn_out_activation;

/* Configuration of a recurrent cell. */
typedef struct {
  mli_rnn_mode mode;
  mli_rnn_out_activation act;
  mli_tensor *ir_tsr; /* intermediate results: 4*M elements for LSTM, M for basic RNN to last */
} mli_rnn_cell_cfg;

typedef mli_rnn_cell_cfg mli_lstm_cell_cfg;

/* A slice: start and size per dimension of the input, and the rank of the slice. */
typedef struct {
  uint32_t offset[MLI_MAX_RANK];
  uint32_t size[MLI_MAX_RANK];
  uint32_t sub_tensor_rank;
} mli_sub_tensor_cfg;

typedef mli_sub_tensor_cfg mli_subtensor_cfg;

/*
 * Fully connected layer: out[m] = sum of in[n] * weights[m][n] + bias[m].
 * in: N elements of any shape. weights [M, N], bias [M]. out needs data and frac_bits; shape [M],
 * rank and el_type are written. out may overlap nothing.
 */
mli_status mli_krn_fully_connected_fx8(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, mli_tensor *out);
mli_status mli_krn_fully_connected_fx16(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, mli_tensor *out);
mli_status mli_krn_fully_connected_fx8w16d(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias, mli_tensor *out);

/*
 * LSTM cell without peepholes. weights [4, M, N+M] and bias [4, M] in the order i, g, f, o;
 * prev_out [M]; cell [M] is updated; cfg->ir_tsr receives the gates of the last frame. out: shape
 * [M], or [frames, M] from batch to batch, rank, el_type, frac_bits (7 or 15; of prev_out without
 * activation) are written. out may share memory with prev_out, else nothing overlaps.
 */
mli_status mli_krn_lstm_cell_fx8(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_lstm_cell_cfg *cfg, mli_tensor *cell, mli_tensor *out);
mli_status mli_krn_lstm_cell_fx16(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_lstm_cell_cfg *cfg, mli_tensor *cell, mli_tensor *out);
mli_status mli_krn_lstm_cell_fx8w16d(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_lstm_cell_cfg *cfg, mli_tensor *cell, mli_tensor *out);

/*
 * Recurrent cell without memory. weights [M, N+M] and bias [M], or from one to one also stacked,
 * [L, M, N+M] and [L, M]; prev_out [M]. out: shape (the bias's, or [frames, M]), rank, el_type, and
 * with an activation frac_bits (7 or 15) are written. From batch to last the data of cfg->ir_tsr
 * change, and out may share memory with prev_out; else nothing overlaps.
 */
mli_status mli_krn_basic_rnn_cell_fx8(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_rnn_cell_cfg *cfg, mli_tensor *out);
mli_status mli_krn_basic_rnn_cell_fx16(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_rnn_cell_cfg *cfg, mli_tensor *out);
mli_status mli_krn_basic_rnn_cell_fx8w16d(
    const mli_tensor *in, const mli_tensor *prev_out, const mli_tensor *weights,
    const mli_tensor *bias, const mli_rnn_cell_cfg *cfg, mli_tensor *out);

/*
 * Hyperbolic tangent and sigmoid, which the recurrent cells use. Every field of out but data is
 * written; frac_bits are 7 or 15. in and out may begin at the same address.
 */
mli_status mli_krn_tanh_fx8(const mli_tensor *in, mli_tensor *out);
mli_status mli_krn_tanh_fx16(const mli_tensor *in, mli_tensor *out);
mli_status mli_krn_sigm_fx8(const mli_tensor *in, mli_tensor *out);
mli_status mli_krn_sigm_fx16(const mli_tensor *in, mli_tensor *out);

/*
 * Converts each element to the element type and parameters of dst, at the strides of dst; shape and
 * rank are written. In place where containers have equal size. The safx form takes no MLI_EL_FP_32.
 */
mli_status mli_hlp_convert_tensor(const mli_tensor *src, mli_tensor *dst);
mli_status mli_hlp_convert_tensor_safx(const mli_tensor *src, mli_tensor *dst);

/* Bytes of an element; 0 for a type that no function takes. */
uint32_t mli_hlp_tensor_element_size(const mli_tensor *in);

/* Elements from dimension start_dim on, modulo 2^32; 1 for start_dim = rank, 0 beyond. */
uint32_t mli_hlp_count_elem_num(const mli_tensor *in, uint32_t start_dim);

/*
 * Scale, fractional bits of the scale (of the elements, for FX), zero point, of slice idx where
 * they are per slice; 0 without a tensor, or without such a slice. 1, 0 and 0 where a type has
 * none. The documentation has no idx, the library has one: it may be left out, and is 0 then.
 */
#ifdef __cplusplus
int16_t mli_hlp_tensor_scale(const mli_tensor *in, uint32_t idx = 0);
int16_t mli_hlp_tensor_scale_shift(const mli_tensor *in, uint32_t idx = 0);
int16_t mli_hlp_tensor_zero_offset(const mli_tensor *in, uint32_t idx = 0);
#else
int16_t mli_hlp_tensor_scale(const mli_tensor *in, uint32_t idx);
int16_t mli_hlp_tensor_scale_shift(const mli_tensor *in, uint32_t idx);
int16_t mli_hlp_tensor_zero_offset(const mli_tensor *in, uint32_t idx);
#define MLI_IN_AND_IDX(in, idx, ...) (in), (idx)
#define mli_hlp_tensor_scale(...) mli_hlp_tensor_scale(MLI_IN_AND_IDX(__VA_ARGS__, 0, 0))
#define mli_hlp_tensor_scale_shift(...) \
  mli_hlp_tensor_scale_shift(MLI_IN_AND_IDX(__VA_ARGS__, 0, 0))
#define mli_hlp_tensor_zero_offset(...) \
  mli_hlp_tensor_zero_offset(MLI_IN_AND_IDX(__VA_ARGS__, 0, 0))
#endif

/*
 * Points out at a slice of in, without a copy: all fields of out are written. Dimensions of size 1
 * are dropped, the first ones first, until sub_tensor_rank are left.
 */
mli_status mli_hlp_subtensor(
    const mli_tensor *in, const mli_subtensor_cfg *cfg, mli_tensor *out);

/* The library's name of mli_hlp_subtensor. */
mli_status mli_hlp_create_subtensor(
    const mli_tensor *in, const mli_sub_tensor_cfg *cfg, mli_tensor *out);

#ifdef __cplusplus
}
#endif

#endif /* MLI_API_H */
