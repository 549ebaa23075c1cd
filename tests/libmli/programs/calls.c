/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls INPUT OUTPUT: makes the calls that INPUT describes, and writes what each left behind.
 *
 * Both files are 32-bit words of this machine and memory images; tests/libmli/calls.py is the other
 * side. Each memory is malloc's, of its exact size, so that a sanitizer sees one byte too far.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mli_api.h"

enum { IN, PREV_OUT, WEIGHTS, BIAS, CELL, OUT, IR, SLOTS, MEMORIES = SLOTS, TEXT = 96 };
enum { NO_PARAMS, FX, SA };
enum { ABSENT = -1, PRESENT = -2 };

typedef struct {
  mli_tensor tensor, *pointer;
  int kind, same_as;
} slot;

typedef struct {
  slot slots[SLOTS];
  char *memories[MEMORIES];
  uint32_t bytes[MEMORIES], n_memories;
  int32_t cfg_given, mode, act, number;
  mli_sub_tensor_cfg slice;
} call;

static FILE *input, *output;
static sigjmp_buf before_call;

static int32_t get(void) {
  int32_t word;
  if (fread(&word, sizeof word, 1, input) != 1) {
    fprintf(stdout, "input ends inside a call\n");
    exit(2);
  }
  return word;
}

static void put(int64_t value) {
  const int32_t word = (int32_t)value;
  fwrite(&word, sizeof word, 1, output);
}

static void get_memories(call *c) {
  c->n_memories = (uint32_t)get();
  for (uint32_t i = 0; i < c->n_memories; i++) {
    c->bytes[i] = (uint32_t)get();
    c->memories[i] = malloc(c->bytes[i]);
    if (fread(c->memories[i], 1, c->bytes[i], input) != c->bytes[i]) exit(2);
  }
}

static void get_sa(mli_element_params *params) {
  const int32_t dim = get();
  const uint32_t n = (uint32_t)get();
  int16_t *zero = malloc(2 * n), *scale = malloc(2 * n);
  int8_t *bits = malloc(n);
  for (uint32_t i = 0; i < n; i++) {
    zero[i] = (int16_t)get();
    scale[i] = (int16_t)get();
    bits[i] = (int8_t)get();
  }
  params->sa.type = MLI_EL_PARAM_SC16_ZP16;
  params->sa.dim = dim;
  params->sa.zero_point = (mli_data_container){2 * n, {.pi16 = zero}};
  params->sa.scale = (mli_data_container){2 * n, {.pi16 = scale}};
  params->sa.scale_frac_bits = (mli_data_container){n, {.pi8 = bits}};
  if (dim >= 0) return;
  params->sa.zero_point = (mli_data_container){0, {.i16 = zero[0]}};
  params->sa.scale = (mli_data_container){0, {.i16 = scale[0]}};
  params->sa.scale_frac_bits = (mli_data_container){0, {.i8 = bits[0]}};
  free(zero), free(scale), free(bits);
}

static void get_slot(call *c, slot *s) {
  memset(s, 0, sizeof *s);
  s->same_as = get();
  if (s->same_as == ABSENT) return;
  if (s->same_as >= 0) {
    s->pointer = &c->slots[s->same_as].tensor;
    return;
  }
  mli_tensor *t = s->pointer = &s->tensor;
  const int32_t memory = get(), offset = get();
  t->data.mem.void_p = memory < 0 ? NULL : c->memories[memory] + offset;
  t->data.capacity = (uint32_t)get();
  t->rank = (uint32_t)get();
  for (int d = 0; d < MLI_MAX_RANK; d++) t->shape[d] = (uint32_t)get();
  for (int d = 0; d < MLI_MAX_RANK; d++) t->mem_stride[d] = get();
  t->el_type = (mli_element_type)get();
  s->kind = get();
  if (s->kind == FX) t->el_params.fx.frac_bits = (int16_t)get();
  if (s->kind == SA) get_sa(&t->el_params);
}

static void get_arguments(call *c) {
  c->cfg_given = get();
  c->mode = get();
  c->act = get();
  c->number = get();
  for (int d = 0; d < MLI_MAX_RANK; d++) c->slice.offset[d] = (uint32_t)get();
  for (int d = 0; d < MLI_MAX_RANK; d++) c->slice.size[d] = (uint32_t)get();
  c->slice.sub_tensor_rank = (uint32_t)get();
}

typedef mli_status dense(const mli_tensor *, const mli_tensor *, const mli_tensor *, mli_tensor *);
typedef mli_status recurrent(
    const mli_tensor *, const mli_tensor *, const mli_tensor *, const mli_tensor *,
    const mli_rnn_cell_cfg *, mli_tensor *);
typedef mli_status lstm(
    const mli_tensor *, const mli_tensor *, const mli_tensor *, const mli_tensor *,
    const mli_lstm_cell_cfg *, mli_tensor *, mli_tensor *);
typedef mli_status unary(const mli_tensor *, mli_tensor *);

static dense *const DENSE[] = {
    mli_krn_fully_connected_fx8, mli_krn_fully_connected_fx16, mli_krn_fully_connected_fx8w16d};
static recurrent *const RECURRENT[] = {
    mli_krn_basic_rnn_cell_fx8, mli_krn_basic_rnn_cell_fx16, mli_krn_basic_rnn_cell_fx8w16d};
static lstm *const LSTM[] = {
    mli_krn_lstm_cell_fx8, mli_krn_lstm_cell_fx16, mli_krn_lstm_cell_fx8w16d};
static unary *const UNARY[] = {
    mli_krn_tanh_fx8, mli_krn_tanh_fx16, mli_krn_sigm_fx8, mli_krn_sigm_fx16,
    mli_hlp_convert_tensor, mli_hlp_convert_tensor_safx};

/* The functions in the order of calls.py. */
static int64_t make(int function, call *c) {
  slot *s = c->slots;
  const mli_tensor *in = s[IN].pointer, *w = s[WEIGHTS].pointer, *b = s[BIAS].pointer;
  const mli_tensor *h = s[PREV_OUT].pointer;
  mli_tensor *out = s[OUT].pointer;
  const mli_rnn_cell_cfg cell = {
      (mli_rnn_mode)c->mode, (mli_rnn_out_activation)c->act, s[IR].pointer};
  const mli_rnn_cell_cfg *cfg = c->cfg_given ? &cell : NULL;
  const uint32_t number = (uint32_t)c->number;
  if (function < 3) return DENSE[function](in, w, b, out);
  if (function < 6) return RECURRENT[function - 3](in, h, w, b, cfg, out);
  if (function < 9) return LSTM[function - 6](in, h, w, b, cfg, s[CELL].pointer, out);
  if (function < 15) return UNARY[function - 9](in, out);
  switch (function) {
    case 15: return mli_hlp_subtensor(in, c->cfg_given ? &c->slice : NULL, out);
    case 16: return mli_hlp_create_subtensor(in, c->cfg_given ? &c->slice : NULL, out);
    case 17: return mli_hlp_tensor_element_size(in);
    case 18: return mli_hlp_count_elem_num(in, number);
    case 19: return number ? mli_hlp_tensor_scale(in, number) : mli_hlp_tensor_scale(in);
    case 20:
      return number ? mli_hlp_tensor_scale_shift(in, number) : mli_hlp_tensor_scale_shift(in);
    default:
      return number ? mli_hlp_tensor_zero_offset(in, number) : mli_hlp_tensor_zero_offset(in);
  }
}

static void put_place(const call *c, const char *data) {
  for (uint32_t i = 0; i < c->n_memories; i++) {
    if (data && data >= c->memories[i] && data <= c->memories[i] + c->bytes[i]) {
      put(i);
      put(data - c->memories[i]);
      return;
    }
  }
  put(-1);
  put(0);
}

static void put_sa(const mli_tensor *t) {
  const int32_t dim = t->el_params.sa.dim;
  const uint32_t n = dim < 0 ? 1 : t->el_params.sa.scale_frac_bits.capacity;
  put(dim);
  put(n);
  put(dim < 0 || (t->el_params.sa.scale.capacity == 2 * n &&
                  t->el_params.sa.zero_point.capacity == 2 * n));
  for (uint32_t i = 0; i < n; i++) {
    put(dim < 0 ? t->el_params.sa.zero_point.mem.i16 : t->el_params.sa.zero_point.mem.pi16[i]);
    put(dim < 0 ? t->el_params.sa.scale.mem.i16 : t->el_params.sa.scale.mem.pi16[i]);
    put(dim < 0 ? t->el_params.sa.scale_frac_bits.mem.i8
                : t->el_params.sa.scale_frac_bits.mem.pi8[i]);
  }
}

static void put_tensor(const call *c, const mli_tensor *t, int has_sa) {
  put_place(c, t->data.mem.void_p);
  put(t->data.capacity);
  put(t->rank);
  for (uint32_t d = 0; d < MLI_MAX_RANK; d++) put(d < t->rank ? t->shape[d] : 0);
  for (uint32_t d = 0; d < MLI_MAX_RANK; d++) put(d < t->rank ? t->mem_stride[d] : 0);
  put(t->el_type);
  if (t->el_type == MLI_EL_FX_8 || t->el_type == MLI_EL_FX_16) put(t->el_params.fx.frac_bits);
  if (has_sa && (t->el_type == MLI_EL_SA_8 || t->el_type == MLI_EL_SA_32)) put_sa(t);
}

static void put_call(int function, const call *c, int64_t returned, const char *line) {
  const long start = ftell(output);
  char text[TEXT] = {0};
  const char *end = strstr(line, " is ");
  if (end) memcpy(text, line, end - line < TEXT ? (size_t)(end - line) : TEXT);
  put(0); /* the length, once it is known */
  put(returned);
  fwrite(text, 1, sizeof text, output);
  for (int i = 0; i < SLOTS; i++) {
    const slot *s = &c->slots[i];
    const int copied = i == OUT && (function == 15 || function == 16);
    if (s->same_as != PRESENT) continue;
    put_tensor(c, &s->tensor, (copied ? c->slots[IN].kind : s->kind) == SA);
  }
  for (uint32_t i = 0; i < c->n_memories; i++) fwrite(c->memories[i], 1, c->bytes[i], output);
  const long end_of_call = ftell(output);
  fseek(output, start, SEEK_SET);
  put(end_of_call - start - 4);
  fseek(output, end_of_call, SEEK_SET);
}

static void free_call(call *c, mli_data_container (*arrays)[3]) {
  for (uint32_t i = 0; i < c->n_memories; i++) free(c->memories[i]);
  for (int i = 0; i < SLOTS; i++) {
    for (int k = 0; k < 3; k++) free(arrays[i][k].capacity ? arrays[i][k].mem.void_p : NULL);
  }
}

/* Parameter arrays as they were before the call, which may move the pointers. */
static void keep_arrays(const call *c, mli_data_container (*arrays)[3]) {
  memset(arrays, 0, SLOTS * sizeof *arrays);
  for (int i = 0; i < SLOTS; i++) {
    const mli_element_params *params = &c->slots[i].tensor.el_params;
    if (c->slots[i].kind != SA) continue;
    arrays[i][0] = params->sa.zero_point;
    arrays[i][1] = params->sa.scale;
    arrays[i][2] = params->sa.scale_frac_bits;
  }
}

static void on_abort(int signal) { siglongjmp(before_call, signal); }

int main(int argc, char **argv) {
  char *line = NULL;
  size_t length = 0;
  input = argc == 3 ? fopen(argv[1], "rb") : NULL;
  output = argc == 3 ? fopen(argv[2], "wb") : NULL;
  if (!input || !output) return 2;
  signal(SIGABRT, on_abort);
  stderr = open_memstream(&line, &length); /* sanitizers write to the descriptor */
  for (int32_t function; fread(&function, sizeof function, 1, input) == 1;) {
    static call c;
    static mli_data_container arrays[SLOTS][3];
    get_memories(&c);
    for (int i = 0; i < SLOTS; i++) get_slot(&c, &c.slots[i]);
    get_arguments(&c);
    keep_arrays(&c, arrays);
    rewind(stderr);
    volatile int64_t returned = INT32_MIN;
    if (sigsetjmp(before_call, 1) == 0) returned = make(function, &c);
    fputc(0, stderr);
    fflush(stderr);
    put_call(function, &c, returned, line);
    free_call(&c, arrays);
  }
  return fclose(output);
}
