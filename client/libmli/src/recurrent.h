/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and arithmetic that the LSTM cell and the basic RNN cell of MLI 1.x share. */
#ifndef RECURRENT_H
#define RECURRENT_H

#include "dense.h"

/* The arguments of both cells, and the frames in them once shapes are known. */
typedef struct {
  const mli_tensor *in, *prev_out, *weights, *bias;
  const mli_rnn_cell_cfg *cfg;
  mli_tensor *out;
  const variant *kind;
} call;

/* Frames of the input, and elements of one. */
uint64_t frames_of(const call *arguments);
uint64_t frame_length(const call *arguments);
/* Frames that reach the output. */
uint64_t outputs_of(const call *arguments);

/* in, prev_out, weights and bias are valid: tensor_c1 to tensor_c8. */
mli_status require_valid_inputs(const call *arguments);
mli_status require_contiguous_inputs(const call *arguments, const char *constraint);
/* Mode and activation are values of their enumerations. */
mli_status require_known_cfg(const mli_rnn_cell_cfg *cfg, const char *constraint);
/* The batch modes take two dimensions or more, the first being the frames. */
mli_status require_sequence(const call *arguments, const char *constraint);
/* Two tensors have one element type. */
mli_status require_one_type(
    const mli_tensor *a, const char *a_name, const mli_tensor *b, const char *b_name,
    const char *constraint);
/* The types of the variant, and 0..255 fractional bits: tensor_c9. */
mli_status require_variant(const call *arguments, const char *constraint);
/* Makes the remark of the condition on out.frac_bits without activation; the status stays OK. */
void remark_out_frac_bits(const call *arguments, const char *constraint);

/* All dense results of one frame, with out_bits fractional bits, from a state of M io elements. */
mli_status dense_step(
    const call *arguments, uint64_t frame, const void *state, int out_bits, void *results,
    const char *constraint);

#endif
