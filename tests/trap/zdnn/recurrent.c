/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU: a product for all timesteps, then a product and an activation for each. */
#include <stdlib.h>

#include "library.h"

/* One direction of a layer. */
typedef struct layer {
  bool lstm;
  zdnn_ztensor input, h0, c0, weights, biases, hidden_weights, hidden_biases;
  uint8_t *hn, *cf;     /* the first slab of each */
  uint64_t hn_step;     /* bytes from one timestep's slab to the next; 0: the last only */
  uint8_t *work;
} layer;

typedef struct tensor {
  zdnn_tensor_desc desc;
  zdnn_ztensor ztensor;
} tensor;

static zdnn_ztensor *shape(tensor *made, uint32_t dim4, uint32_t dim2, uint32_t dim1,
                           void *buffer) {
  made->desc = (zdnn_tensor_desc){.layout = ZDNN_NHWC, .format = ZDNN_FORMAT_4DFEATURE,
                                  .type = ZDNN_DLFLOAT16, .dim4 = dim4, .dim3 = 1, .dim2 = dim2,
                                  .dim1 = dim1};
  made->ztensor = (zdnn_ztensor){.transformed_desc = &made->desc, .buffer = buffer};
  made->ztensor.buffer_size = zdnn_getsize_ztensor(&made->desc);
  return &made->ztensor;
}

static uint64_t size_of(uint32_t dim4, uint32_t dim2, uint32_t dim1) {
  tensor made;
  return shape(&made, dim4, dim2, dim1, NULL)->buffer_size;
}

static zdnn_status product(unsigned function, const zdnn_ztensor *a, const zdnn_ztensor *b,
                           const zdnn_ztensor *c, zdnn_ztensor *output) {
  return perform(&(request){.function = function, .inputs = {a, b, c}, .outputs = {output}});
}

/* What a layer is made of, in elements and bytes. */
typedef struct sizes {
  uint32_t steps, batch, hidden, gates, columns; /* columns: of all gates, padded */
  uint64_t fused, bias_add, slab;
} sizes;

static sizes sizes_of(const layer *which) {
  const zdnn_tensor_desc *input = which->input.transformed_desc;
  sizes s = {.steps = input->dim4, .batch = input->dim2};
  s.hidden = which->h0.transformed_desc->dim1;
  s.gates = which->lstm ? 4 : 3;
  s.columns = s.gates * (uint32_t)padded(s.hidden);
  s.fused = size_of(s.steps, s.batch, s.columns);
  s.bias_add = size_of(1, s.batch, s.columns);
  s.slab = size_of(1, s.batch, s.hidden);
  return s;
}

static uint64_t work_bytes(const sizes *s) {
  uint32_t between = s->steps < 1 ? 0 : s->steps - 1;
  return s->fused + s->bias_add + (between < 2 ? between : 2) * s->slab;
}

/* Returns where a state that only the next step reads is kept: two slabs by turns. */
static uint8_t *between(const layer *which, const sizes *s, uint32_t done) {
  return which->work + s->fused + s->bias_add + done % 2 * s->slab;
}

static zdnn_status activate(const layer *which, zdnn_ztensor *fused, zdnn_ztensor *bias_add,
                            zdnn_ztensor *state, zdnn_ztensor *h, zdnn_ztensor *c) {
  request asked = {.function = which->lstm ? NNPA_LSTMACT : NNPA_GRUACT,
                   .inputs = {fused, bias_add, state},
                   .outputs = {h, which->lstm ? c : NULL}};
  return perform(&asked);
}

static zdnn_status layer_run(const layer *which, const sizes *s, bool backward) {
  tensor fused, slice, sum, sum_gates, h[2], c[2];
  shape(&fused, s->steps, s->batch, s->columns, which->work);
  shape(&sum, 1, s->batch, s->columns, which->work + s->fused);
  shape(&sum_gates, s->gates, s->batch, s->hidden, which->work + s->fused);
  zdnn_status status = product(NNPA_MATMUL_OP_BCAST23, &which->input, &which->weights,
                               &which->biases, &fused.ztensor);
  volatile uint32_t steps = s->steps; /* a layer without timesteps is a division by zero */
  uint64_t slice_bytes = s->fused / steps;
  const zdnn_ztensor *h_before = &which->h0, *c_before = &which->c0;
  for (uint32_t done = 0; done < s->steps && status == ZDNN_OK; done++) {
    uint32_t at = backward ? s->steps - 1 - done : done;
    bool last = done + 1 == s->steps;
    uint8_t *h_place = which->hn + at * which->hn_step;
    if (which->hn_step == 0 && !which->lstm && !last) h_place = between(which, s, done);
    uint8_t *c_place = last ? which->cf : between(which, s, done);
    zdnn_ztensor *h_now = shape(&h[done % 2], 1, s->batch, s->hidden, h_place);
    zdnn_ztensor *c_now = shape(&c[done % 2], 1, s->batch, s->hidden, c_place);
    shape(&slice, s->gates, s->batch, s->hidden, which->work + at * slice_bytes);
    status = product(NNPA_MATMUL_OP, h_before, &which->hidden_weights, &which->hidden_biases,
                     &sum.ztensor);
    if (status != ZDNN_OK) break;
    const zdnn_ztensor *state = which->lstm ? c_before : h_before;
    status = activate(which, &slice.ztensor, &sum_gates.ztensor, (zdnn_ztensor *)(uintptr_t)state,
                      h_now, c_now);
    h_before = h_now;
    c_before = c_now;
  }
  return status;
}

/* Replaces a tensor of two directions by its slice of one. */
static zdnn_status cut(zdnn_ztensor *ztensor, zdnn_tensor_desc *desc, unsigned direction) {
  if (ztensor->transformed_desc->dim4 < 2) return ZDNN_INVALID_SHAPE;
  *desc = *ztensor->transformed_desc;
  desc->dim4 = 1;
  ztensor->transformed_desc = desc;
  ztensor->buffer_size = zdnn_getsize_ztensor(desc);
  ztensor->buffer = (uint8_t *)ztensor->buffer + direction * ztensor->buffer_size;
  return ZDNN_OK;
}

static zdnn_status direction_run(layer which, const sizes *s, unsigned direction) {
  zdnn_ztensor *both[] = {&which.h0, &which.weights, &which.biases, &which.hidden_weights,
                          &which.hidden_biases, &which.c0};
  zdnn_tensor_desc descs[6];
  for (unsigned i = 0; i < (which.lstm ? 6 : 5); i++) {
    zdnn_status status = cut(both[i], &descs[i], direction);
    if (status != ZDNN_OK) return status;
  }
  which.hn += direction * s->slab;
  which.hn_step *= 2;
  if (which.lstm) which.cf += direction * s->slab;
  which.work += direction * work_bytes(s);
  return layer_run(&which, s, direction == BWD);
}

static zdnn_status run(layer *which, const zdnn_ztensor *hn, lstm_gru_direction direction,
                       void *work_area) {
  sizes s = sizes_of(which);
  void *own = NULL;
  zdnn_status status = ZDNN_INVALID_DIRECTION;
  if (!format_installed(NNPA_PARMBLKFORMAT_0)) return ZDNN_UNAVAILABLE_FUNCTION;
  if (work_area == NULL) {
    own = aligned_pages(work_bytes(&s) * (direction == BIDIR ? 2 : 1));
    if (own == NULL) return ZDNN_ALLOCATION_FAILURE;
  }
  which->work = own != NULL ? own : work_area;
  which->hn = hn->buffer;
  which->hn_step = hn->transformed_desc->dim4 == s.steps ? s.slab : 0;
  if (direction == FWD || direction == BWD) status = layer_run(which, &s, direction == BWD);
  if (direction == BIDIR) {
    status = direction_run(*which, &s, FWD);
    if (status == ZDNN_OK) status = direction_run(*which, &s, BWD);
  }
  free(own);
  return status;
}

zdnn_status zdnn_lstm(const zdnn_ztensor *input, const zdnn_ztensor *h0, const zdnn_ztensor *c0,
                      const zdnn_ztensor *weights, const zdnn_ztensor *biases,
                      const zdnn_ztensor *hidden_weights, const zdnn_ztensor *hidden_biases,
                      lstm_gru_direction direction, void *work_area, zdnn_ztensor *hn_output,
                      zdnn_ztensor *cf_output) {
  layer which = {.lstm = true, .input = *input, .h0 = *h0, .c0 = *c0, .weights = *weights,
                 .biases = *biases, .hidden_weights = *hidden_weights,
                 .hidden_biases = *hidden_biases, .cf = cf_output->buffer};
  zdnn_status status = run(&which, hn_output, direction, work_area);
  if (status == ZDNN_OK) hn_output->is_transformed = cf_output->is_transformed = true;
  return status;
}

zdnn_status zdnn_gru(const zdnn_ztensor *input, const zdnn_ztensor *h0,
                     const zdnn_ztensor *weights, const zdnn_ztensor *biases,
                     const zdnn_ztensor *hidden_weights, const zdnn_ztensor *hidden_biases,
                     lstm_gru_direction direction, void *work_area, zdnn_ztensor *hn_output) {
  layer which = {.lstm = false, .input = *input, .h0 = *h0, .weights = *weights,
                 .biases = *biases, .hidden_weights = *hidden_weights,
                 .hidden_biases = *hidden_biases};
  zdnn_status status = run(&which, hn_output, direction, work_area);
  if (status == ZDNN_OK) hn_output->is_transformed = true;
  return status;
}
