/* SPDX-License-Identifier: Apache-2.0 */
/* Misuses of ztensors that a machine does not notice, one per name on the command line, and a clean
 * program. Prints the statuses. Sites that a test looks for are marked. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "zdnn.h"

#define ELEMENTS 100
#define ROUNDS 200

static zdnn_tensor_desc pre, desc;
static float data[ELEMENTS];
static pthread_barrier_t together;

static zdnn_ztensor allocated(void) {
  zdnn_ztensor tensor;
  memset(&tensor, 0, sizeof tensor);
  zdnn_status status = zdnn_init_ztensor_with_malloc(&pre, &desc, &tensor); /* site: allocation */
  printf("allocate %08x\n", (unsigned)status);
  return tensor;
}

static zdnn_ztensor transformed(void) {
  zdnn_ztensor tensor = allocated();
  printf("transform %08x\n", (unsigned)zdnn_transform_ztensor(&tensor, data));
  return tensor;
}

static void freed(zdnn_ztensor *tensor) {
  zdnn_status status = zdnn_free_ztensor_buffer(tensor); /* site: free */
  printf("free %08x\n", (unsigned)status);
}

void add(zdnn_ztensor *a, zdnn_ztensor *b) {
  zdnn_ztensor sum = allocated();
  zdnn_status status = zdnn_add(a, b, &sum); /* site: use */
  float back[ELEMENTS];
  printf("add %08x\n", (unsigned)status);
  printf("back %08x\n", (unsigned)zdnn_transform_origtensor(&sum, back));
  printf("first %g\n", back[0]);
  freed(&sum);
}

typedef struct {
  zdnn_ztensor *input, *output;
  int wrong;
} work;

void *repeat(void *given) {
  work *job = given;
  pthread_barrier_wait(&together);
  for (int i = 0; i < ROUNDS; i++) {
    job->wrong += zdnn_tanh(job->input, job->output) != ZDNN_OK;
  }
  return NULL;
}

static void both(zdnn_ztensor *middle, zdnn_ztensor *one, zdnn_ztensor *other, int writes) {
  work jobs[2] = {{writes ? one : middle, writes ? middle : one, 0}, {middle, other, 0}};
  pthread_t threads[2];
  pthread_barrier_init(&together, NULL, 2);
  for (int i = 0; i < 2; i++) {
    pthread_create(&threads[i], NULL, repeat, &jobs[i]);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("wrong %d\n", jobs[0].wrong + jobs[1].wrong);
}

#define STACKS 4

/* Tensors of one stack each within the buffer of a whole: the first `written` are transformed. */
static zdnn_ztensor stacked(zdnn_ztensor views[STACKS], int written) {
  static zdnn_tensor_desc pre_whole, whole;
  zdnn_init_pre_transformed_desc(ZDNN_3DS, FP32, &pre_whole, (uint32_t)STACKS, 10u, 10u);
  zdnn_generate_transformed_desc(&pre_whole, &whole);
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, 10u, 10u);
  zdnn_generate_transformed_desc(&pre, &desc);
  zdnn_ztensor all;
  memset(&all, 0, sizeof all);
  zdnn_init_ztensor_with_malloc(&pre_whole, &whole, &all); /* site: stacks */
  for (int i = 0; i < STACKS; i++) {
    zdnn_init_ztensor(&pre, &desc, &views[i]);
    views[i].buffer_size = all.buffer_size / STACKS;
    views[i].buffer = (char *)all.buffer + (size_t)i * views[i].buffer_size;
    if (i < written) {
      zdnn_transform_ztensor(&views[i], data);
    }
  }
  return all;
}

/* Two threads use views of one buffer: both read the first, each writes its own. */
static void disjoint(zdnn_ztensor views[STACKS]) {
  both(&views[0], &views[1], &views[2], 0);
}

static void exp_whole(zdnn_ztensor *whole) {
  zdnn_ztensor output;
  memset(&output, 0, sizeof output);
  zdnn_init_ztensor_with_malloc(whole->pre_transformed_desc, whole->transformed_desc, &output);
  zdnn_status status = zdnn_exp(whole, &output); /* site: whole */
  printf("exp %08x\n", (unsigned)status);
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "clean";
  for (int i = 0; i < ELEMENTS; i++) {
    data[i] = (float)i / 64;
  }
  uint32_t elements = strcmp(what, "large") == 0 ? 8u << 20 : ELEMENTS;
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, (uint32_t)ELEMENTS);
  if (elements != ELEMENTS) {
    zdnn_init_pre_transformed_desc(ZDNN_3D, FP32, &pre, 64u, 512u, 256u);
  }
  zdnn_generate_transformed_desc(&pre, &desc);
  if (strcmp(what, "large") == 0) {
    zdnn_ztensor tensor = allocated(), output = allocated();
    zdnn_status status = zdnn_exp(&tensor, &output); /* site: large */
    printf("exp %08x\n", (unsigned)status);
    return 0;
  }
  zdnn_ztensor views[STACKS];
  if (strcmp(what, "view_never_written") == 0) {
    stacked(views, 1);
    add(&views[0], &views[1]);
    return 0;
  }
  if (strcmp(what, "stack_never_written") == 0 || strcmp(what, "stacks") == 0) {
    zdnn_ztensor whole = stacked(views, strcmp(what, "stacks") == 0 ? STACKS : STACKS - 1);
    exp_whole(&whole);
    return 0;
  }
  if (strcmp(what, "disjoint_views") == 0) {
    stacked(views, 1);
    disjoint(views);
    add(&views[1], &views[2]);
    return 0;
  }
  zdnn_ztensor a = transformed(), b = transformed();
  if (strcmp(what, "never_written") == 0) {
    zdnn_ztensor c = allocated();
    add(&a, &c);
  } else if (strcmp(what, "written_by_the_program") == 0) {
    zdnn_ztensor c = allocated();
    memset(c.buffer, 0, c.buffer_size);
    add(&a, &c);
  } else if (strcmp(what, "all_not_a_number") == 0) {
    zdnn_ztensor c = allocated(), d = allocated();
    for (int i = 0; i < ELEMENTS; i++) {
      data[i] = -1;
    }
    zdnn_reset_ztensor(&b);
    printf("transform %08x\n", (unsigned)zdnn_transform_ztensor(&b, data));
    printf("sqrt %08x\n", (unsigned)zdnn_sqrt(&b, &c));
    printf("exp %08x\n", (unsigned)zdnn_exp(&c, &d));
  } else if (strcmp(what, "never_written_back") == 0) {
    zdnn_ztensor c = allocated();
    c.is_transformed = true;
    zdnn_status status = zdnn_transform_origtensor(&c, data); /* site: back */
    printf("back %08x\n", (unsigned)status);
  } else if (strcmp(what, "transformed_twice") == 0) {
    zdnn_status status = zdnn_transform_ztensor(&a, data); /* site: again */
    printf("again %08x\n", (unsigned)status);
  } else if (strcmp(what, "use_after_free") == 0) {
    freed(&b);
    add(&a, &b);
  } else if (strcmp(what, "freed_twice") == 0) {
    freed(&b);
    zdnn_status status = zdnn_free_ztensor_buffer(&b); /* site: twice */
    printf("free %08x\n", (unsigned)status);
  } else if (strcmp(what, "contradicting") == 0) {
    freed(&b);
    zdnn_tensor_desc other = desc;
    other.dim1 = ELEMENTS / 2;
    a.transformed_desc = &other;
    add(&a, &b);
  } else if (strcmp(what, "threads") == 0 || strcmp(what, "readers") == 0) {
    zdnn_ztensor c = allocated();
    both(&b, &a, &c, strcmp(what, "threads") == 0);
  } else {
    add(&a, &b);
  }
  return 0;
}
