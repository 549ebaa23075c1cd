/* SPDX-License-Identifier: Apache-2.0 */
#include "activation.h"

#include "activation_tables.h"
#include "dense.h"
#include "fixedpoint.h"
#include "walk.h"

const table TANH = {TANH_ENTRIES, 178, 89, 4};
const table SIGM = {SIGM_ENTRIES, 180, 90, 3};

const table *table_of(mli_rnn_out_activation act) {
  return act == RNN_ACT_TANH ? &TANH : act == RNN_ACT_SIGM ? &SIGM : NULL;
}

/* Interpolates with one rounding; the fraction stays as it is where the index is clamped. */
static int64_t interpolate(const table *function, int64_t x, int shift) {
  const int64_t index = clamp(shift_right(x, shift) + function->zero, 0, function->length - 2);
  const int64_t fraction = x - shift_right(x, shift) * (INT64_C(1) << shift);
  const int64_t here = function->entries[index], after = function->entries[index + 1];
  return here - round_shift((here - after) * fraction, shift);
}

int64_t evaluate(const table *function, int64_t x, int in_bits, int io_bits) {
  const int shift = in_bits - function->frac_bits;
  int64_t y;
  if (shift > 0) {
    y = interpolate(function, shift_right(x, larger(shift - 15, 0)), (int)smaller(shift, 15));
  } else {
    const int64_t index = shift_left_saturated(x, -shift, 16) + function->zero;
    y = function->entries[clamp(index, 0, function->length - 1)];
  }
  return io_bits == 16 ? y : saturate(round_shift(y, 8), 8);
}

/* Constraints 1 to 7. */
static mli_status check(const mli_tensor *in, const mli_tensor *out, const variant *kind) {
  PASS(require_valid(in, "in"));
  PASS(require_fx_type(in, "in", kind->io, "activation_c2"));
  PASS(require_frac_bits(in, "in", "activation_c3"));
  PASS(require_tensor(out, "out", "activation_c4"));
  PASS(require_data(out, "out", "activation_c4"));
  const uint64_t reach = reach_bytes(in, in->shape, in->rank);
  PASS(require_capacity(in, "in", reach, "activation_c5"));
  PASS(require_capacity(out, "out", reach, "activation_c6"));
  if (in->data.mem.void_p == out->data.mem.void_p) return MLI_STATUS_OK;
  const extent written[] = {{"out", out, reach}}, read[] = {{"in", in, reach}};
  return require_apart(written, 1, read, 1, false, "activation_c7");
}

static mli_status activate(
    const table *function, const mli_tensor *in, mli_tensor *out, const variant *kind) {
  PASS(check(in, out, kind));
  const int in_bits = frac_bits(in);
  walk place = walk_over(in->shape, in->rank);
  const layout from = layout_of(in, &place);
  layout to = from;
  to.data = out->data.mem.void_p;
  do {
    const int64_t x = load(element(&from, &place), from.size, 0);
    store(element(&to, &place), to.size, 0, evaluate(function, x, in_bits, io_bits(kind)));
  } while (advance(&place));
  fill(out, in->shape, in->rank, kind);
  for (uint32_t d = 0; d < MLI_MAX_RANK; d++) {
    out->mem_stride[d] = d < in->rank ? in->mem_stride[d] : 0;
  }
  out->el_params.fx.frac_bits = (int16_t)(io_bits(kind) - 1);
  return MLI_STATUS_OK;
}

#define ACTIVATION_KERNEL(name, function, kind) \
  mli_status mli_krn_##name(const mli_tensor *in, mli_tensor *out) { \
    return answer(activate(&function, in, out, &kind)); \
  }

ACTIVATION_KERNEL(tanh_fx8, TANH, FX8)
ACTIVATION_KERNEL(tanh_fx16, TANH, FX16)
ACTIVATION_KERNEL(sigm_fx8, SIGM, FX8)
ACTIVATION_KERNEL(sigm_fx16, SIGM, FX16)
