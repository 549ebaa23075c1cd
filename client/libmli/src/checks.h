/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of several functions on their tensors, and the answer to a violated condition. */
#ifndef CHECKS_H
#define CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "build.h"
#include "mli_api.h"

#if defined(__GNUC__)
#define PRINTS(text, values) __attribute__((format(printf, text, values)))
#else
#define PRINTS(text, values)
#endif

/* Returns from the function that it stands in, with the status of the numbered constraint. The
 * text names field, value and limit; it is printed where a build of level ASSERT or more aborts. */
#define REQUIRE(holds, status, constraint, ...) \
  do { \
    if (!(holds)) return refuse(status, constraint, __VA_ARGS__); \
  } while (0)

/* Returns from the function that it stands in, unless a check passed. */
#define PASS(check) \
  do { \
    const mli_status checked = (check); \
    if (checked != MLI_STATUS_OK) return checked; \
  } while (0)

/* Answers a violated constraint: the status, or from ASSERT on a line on stderr and abort. */
mli_status refuse(mli_status status, const char *constraint, const char *text, ...) PRINTS(3, 4);

/* Prints a remark of a function that succeeds, in a build of level DEBUG or more. */
void remark(const char *constraint, const char *text, ...) PRINTS(2, 3);

/* Returns the status as the caller of the build sees it: always OK under RELEASE. */
mli_status answer(mli_status status);

/* Sizes saturate at 2^62, which is more than any capacity. */
uint64_t times(uint64_t a, uint64_t b);

/* Bytes of an element; 0 for a type without support. */
uint32_t element_size(mli_element_type type);
bool is_fx(mli_element_type type);
bool is_sa(mli_element_type type);

/* Elements of dimensions first..last-1; 1 for none. */
uint64_t product(const uint32_t *shape, uint32_t first, uint32_t last);
/* Elements as the 1.x kernels count them: 0 for rank 0. */
uint64_t count(const mli_tensor *tensor);
/* Bytes that a dense tensor of its own shape occupies. */
uint64_t used_bytes(const mli_tensor *tensor);
/* Strides with every 0 replaced: innermost 1, else the next stride times the next extent. */
void derive_strides(
    const uint32_t *shape, const int32_t *strides, uint32_t rank, uint64_t *derived);
/* Bytes from the first element of a tensor to the end of the last element of a shape in it. */
uint64_t reach_bytes(const mli_tensor *tensor, const uint32_t *shape, uint32_t rank);

/* Values per parameter of an SA tensor: 1 for the whole tensor, else the least length of the
 * three arrays. */
uint32_t sa_length(const mli_tensor *tensor);
int16_t sa_zero_point(const mli_tensor *tensor, uint32_t slice);
int16_t sa_scale(const mli_tensor *tensor, uint32_t slice);
int8_t sa_scale_frac_bits(const mli_tensor *tensor, uint32_t slice);

mli_status require_tensor(const mli_tensor *tensor, const char *name, const char *constraint);
mli_status require_data(const mli_tensor *tensor, const char *name, const char *constraint);
/* tensor_c1 to tensor_c8: a valid input tensor. */
mli_status require_valid(const mli_tensor *tensor, const char *name);
/* tensor_c3 to tensor_c6, for a tensor that is to hold this shape. */
mli_status require_layout(
    const mli_tensor *tensor, const char *name, const uint32_t *shape, uint32_t rank);
mli_status require_capacity(
    const mli_tensor *tensor, const char *name, uint64_t bytes, const char *constraint);
/* Parameters are of the type's kind, and cover the quantised axis. */
mli_status require_el_params(
    const mli_tensor *tensor, const char *name, const uint32_t *shape, uint32_t rank,
    const char *constraint);
bool is_inner_dense(const mli_tensor *tensor, uint32_t rank);
mli_status require_contiguous(const mli_tensor *tensor, const char *name, const char *constraint);
mli_status require_contiguous_output(
    const mli_tensor *out, uint32_t rank, const char *constraint);
/* A dimension or rank equals the number that the other tensors require. */
mli_status require_equal(
    const char *constraint, const char *field, uint64_t value, uint64_t limit);
/* 0..255, the unsigned byte of the 1.x kernels. */
mli_status require_frac_bits(const mli_tensor *tensor, const char *name, const char *constraint);
/* Bias has at most the fractional bits of the products; a RELEASE build rounds it. */
mli_status require_bias_precision(
    const mli_tensor *in, const mli_tensor *weights, const mli_tensor *bias,
    const char *constraint);
mli_status require_fx_type(
    const mli_tensor *tensor, const char *name, mli_element_type type, const char *constraint);

/* The bytes that a function uses of a tensor. */
typedef struct {
  const char *name;
  const mli_tensor *tensor;
  uint64_t bytes;
} extent;

bool is_shared(const extent *a, const extent *b);
/* No written extent overlaps another one; out and prev_out may where they are `shareable`. */
mli_status require_apart(
    const extent *written, size_t n_written, const extent *read, size_t n_read, bool shareable,
    const char *constraint);

#endif
