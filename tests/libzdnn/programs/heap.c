/* SPDX-License-Identifier: Apache-2.0 */
/* What is left in malloc's memory: heap ROUNDS calls the library so often, and counts. */
#include <malloc.h>

#include "buffer.h"

#define SIZE 1000

static void call(struct tensor tensors[3], float *data, float *sum) {
  for (int i = 0; i < 2; i++) {
    zdnn_reset_ztensor(&tensors[i].ztensor);
    MUST(zdnn_transform_ztensor(&tensors[i].ztensor, data));
  }
  MUST(zdnn_add(&tensors[0].ztensor, &tensors[1].ztensor, &tensors[2].ztensor));
  MUST(zdnn_exp(&tensors[2].ztensor, &tensors[2].ztensor));
  MUST(zdnn_transform_origtensor(&tensors[2].ztensor, sum));
}

/* Returns how many bytes of fresh memory of malloc are not zero. */
static int leavings(void) {
  static unsigned char *blocks[64];
  int count = 0;
  for (size_t size = 16, n = 0; size <= 64 << 10; size += size / 2, n++) {
    blocks[n] = malloc(size);
    for (size_t i = 16; blocks[n] != NULL && i < size; i++) {
      count += blocks[n][i] != 0;
    }
  }
  for (size_t n = 0; n < 64; n++) {
    free(blocks[n]);
  }
  return count;
}

/* Returns the free bytes that are not the heap's top. */
static size_t freed(struct mallinfo2 heap) { return heap.fordblks - heap.keepcost; }

int main(int argc, char **argv) {
  static struct tensor tensors[3];
  static float data[SIZE], sum[SIZE];
  static char line[BUFSIZ];
  int rounds = argc > 1 ? atoi(argv[1]) : 0;
  setvbuf(stdout, line, _IOFBF, sizeof line); /* so that printing allocates nothing */
  for (int i = 0; i < 3; i++) {
    zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &tensors[i].pre, (uint32_t)SIZE);
    MUST(zdnn_generate_transformed_desc(&tensors[i].pre, &tensors[i].desc));
    give_sticks(&tensors[i]);
  }
  free(malloc(1)); /* so that there is a heap */
  struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < rounds; i++) {
    call(tensors, data, sum);
  }
  struct mallinfo2 after = mallinfo2();
  bool is_right = rounds == 0 || sum[SIZE - 1] == 1;
  printf("%s: used %ld, freed %ld, mapped %ld, leavings %d\n", is_right ? "right" : "wrong",
         (long)(after.uordblks - before.uordblks), (long)(freed(after) - freed(before)),
         (long)(after.hblkhd - before.hblkhd), leavings());
  return 0;
}
