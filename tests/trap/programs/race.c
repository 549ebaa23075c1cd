/* SPDX-License-Identifier: Apache-2.0
 * race ROUNDS: eight threads meet a conversion first, all at once, in each round another. Prints
 * how many results were wrong. */
#include <pthread.h>
#include <sys/mman.h>

#include "nnpa.h"

#define THREADS 8
#define ROUTINE 26

typedef void convert_function(const uint16_t *source, uint32_t *target);

static pthread_barrier_t barrier;
static uint8_t *code;
static int rounds, wrong;

/* vl v1,0(r2); vclfnh v2,v1,2,0; vst v2,0(r3); br r14 */
static const uint8_t routine[ROUTINE] = {
    0xe7, 0x10, 0x20, 0x00, 0x00, 0x06, 0xe6, 0x21, 0x00, 0x00, 0x20, 0x56,
    0xe7, 0x20, 0x30, 0x00, 0x00, 0x0e, 0x07, 0xfe};

static uint8_t *place_of(int round)
{
  return code + round * 102; /* some places lie across pages */
}

static void *meet(void *argument)
{
  uint16_t base = (uint16_t)(0x3e00 + 16 * (int)(long)argument);
  for (int round = 0; round < rounds; round++) {
    uint16_t source[8];
    uint32_t target[4];
    for (int i = 0; i < 8; i++)
      source[i] = (uint16_t)(base + i);
    pthread_barrier_wait(&barrier);
    ((convert_function *)place_of(round))(source, target);
    for (int i = 0; i < 4; i++)
      if (target[i] != ((uint32_t)source[i] << 14) + 0x30000000)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

int main(int count, char **arguments)
{
  pthread_t threads[THREADS];
  rounds = count > 1 ? atoi(arguments[1]) : 1;
  code = mmap(NULL, (size_t)rounds * 102 + 4096, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int round = 0; round < rounds; round++)
    memcpy(place_of(round), routine, ROUTINE);
  mprotect(code, (size_t)rounds * 102 + 4096, PROT_READ | PROT_EXEC);
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (long i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, meet, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  printf("%d wrong\n", wrong);
  return 0;
}
