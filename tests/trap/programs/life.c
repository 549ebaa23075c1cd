/* SPDX-License-Identifier: Apache-2.0
 * life SCENE [ARGUMENT]: what a program does beside the instruction. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "nnpa.h"

#define THREADS 8
#define ADDS 50

static sigjmp_buf back;
static struct parameter_block *block;
static uint16_t *sum;
extern char **environ;

static void set_up(void)
{
  block = aligned_alloc(4096, sizeof *block);
  sum = page_of(0);
  describe_add(block, page_of(ONE), page_of(TWO), sum);
}

static void *add_often(void *argument)
{
  long *right = argument;
  for (int i = 0; i < ADDS; i++)
    *right += add_codes(ONE, TWO) == THREE;
  return NULL;
}

static int threads(void)
{
  pthread_t thread[THREADS];
  long right[THREADS] = {0}, total = 0;
  for (int i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, add_often, &right[i]);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    total += right[i];
  }
  printf("%ld right\n", total);
  return 0;
}

static void *add_once(void *argument)
{
  *(long *)argument += add_codes(ONE, TWO) == THREE;
  return NULL;
}

/* Threads come and go: descriptors do not pile up. */
static int churn(void)
{
  long right = 0;
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, add_once, &right);
    pthread_join(thread, NULL);
  }
  int next = dup(0);
  int high = fcntl(0, F_DUPFD, 700);
  printf("%ld right, next descriptors %d %s\n", right, next, high < 720 ? "few" : "many");
  return 0;
}

static int forks(void)
{
  int status;
  printf("parent %04x\n", add_codes(ONE, TWO));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < 20; i++)
      if (add_codes(ONE, TWO) != THREE)
        _exit(1);
    printf("child %04x\n", add_codes(TWO, ONE));
    fflush(stdout);
    _exit(9);
  }
  for (int i = 0; i < 20; i++)
    if (add_codes(ONE, TWO) != THREE)
      return 1;
  waitpid(child, &status, 0);
  printf("parent %04x, child's code %d\n", add_codes(ONE, TWO), WEXITSTATUS(status));
  return 0;
}

static int closes(void)
{
  uint16_t before = add_codes(ONE, TWO);
  for (int descriptor = 3; descriptor < 1024; descriptor++)
    close(descriptor);
  printf("%04x %04x\n", before, add_codes(ONE, TWO));
  return 0;
}

static int masks(void)
{
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  printf("%04x\n", add_codes(ONE, TWO));
  return 0;
}

static void report(int number, siginfo_t *information, void *context)
{
  ucontext_t *frame = context;
  uint64_t address = frame->uc_mcontext.psw.addr;
  uint64_t instruction = number == SIGILL ? address - 4 : address;
  sigset_t now;
  sigprocmask(SIG_SETMASK, NULL, &now);
  long offset = number == SIGSEGV
                    ? (long)((uint64_t)information->si_addr - block->inputs[0].address)
                    : -1L;
  printf("signal %d code %d at %d offset %ld opcode %08x r0 %02x usr1 %d\n", number,
         information->si_code, (uint64_t)information->si_addr == instruction, offset,
         *(uint32_t *)instruction, (unsigned)frame->uc_mcontext.gregs[0] & 0xff,
         sigismember(&now, SIGUSR1));
  siglongjmp(back, 1);
}

static void handle(int number)
{
  struct sigaction action = {.sa_sigaction = report, .sa_flags = SA_SIGINFO};
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(number, &action, NULL);
}

static void issue(void *parameters)
{
  if (!sigsetjmp(back, 1))
    printf("cc %d\n", nnpa(16, parameters).condition_code);
}

static void break_block(const char *how)
{
  uint8_t *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!strcmp(how, "mismatched"))
    block->inputs[0].dim1 = 63;
  if (!strcmp(how, "second-page")) {
    munmap(pages + 4096, 8192);
    block->inputs[0].address = (uint64_t)pages;
    block->inputs[0].dim1 = block->inputs[1].dim1 = block->outputs[0].dim1 = 65;
    block->inputs[1].address = (uint64_t)aligned_alloc(4096, 8192);
    block->outputs[0].address = (uint64_t)aligned_alloc(4096, 8192);
  }
  if (!strcmp(how, "null"))
    block->inputs[0].address = 0;
  if (!strcmp(how, "read-only")) {
    block->inputs[0].address = block->outputs[0].address = (uint64_t)pages;
    mprotect(pages, 4096, PROT_READ);
  }
}

static int excepts(const char *how, int with_handler)
{
  set_up();
  if (with_handler)
    handle(SIGILL), handle(SIGSEGV);
  break_block(how);
  issue(strcmp(how, "misaligned") ? (uint8_t *)block : (uint8_t *)block + 4);
  printf("then %04x, output %04x\n", add_codes(ONE, TWO), sum[0]);
  return 0;
}

static int own_trap(void)
{
  struct sigaction old;
  set_up();
  handle(SIGILL);
  sigaction(SIGILL, NULL, &old);
  printf("kept %d\n", old.sa_sigaction == report);
  if (!sigsetjmp(back, 1))
    __asm__ volatile(".long 0x00000000");
  if (!sigsetjmp(back, 1))
    raise(SIGILL);
  printf("then %04x\n", add_codes(ONE, TWO));
  return 0;
}

static int loads(const char *library)
{
  void *handle = dlopen(library, RTLD_NOW);
  if (!handle)
    return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*has_nnpa)(void) = (int (*)(void))dlsym(handle, "late_has_nnpa");
  uint16_t (*add)(uint16_t, uint16_t) = (uint16_t(*)(uint16_t, uint16_t))dlsym(handle, "late_add");
  printf("stfle %d add %04x\n", has_nnpa(), add(ONE, TWO));
  return dlclose(handle);
}

static int starts(char **arguments)
{
  int status;
  pid_t child;
  printf("before %04x\n", add_codes(ONE, TWO));
  fflush(stdout);
  if (!strcmp(arguments[0], "spawn")) {
    if (posix_spawnp(&child, arguments[1], NULL, NULL, arguments + 1, environ))
      return 2;
    waitpid(child, &status, 0);
    printf("code %d\n", WEXITSTATUS(status));
    return 0;
  }
  execvp(arguments[1], arguments + 1);
  perror(arguments[1]);
  return 3;
}

static int waits(void)
{
  printf("%04x\n", add_codes(ONE, TWO));
  fflush(stdout);
  getchar();
  printf("%04x\n", add_codes(ONE, TWO));
  return 0;
}

/* SQRT, 34, is what Telum I lacks; 200 is what all lack. */
static int asks(unsigned function)
{
  set_up();
  block->version = 1;
  struct outcome outcome = nnpa(function, block);
  printf("cc %d response %04x\n", outcome.condition_code,
         (unsigned)(outcome.general_register_0 >> 48));
  return 0;
}

int main(int count, char **arguments)
{
  const char *scene = count > 1 ? arguments[1] : "";
  if (!strcmp(scene, "threads")) return threads();
  if (!strcmp(scene, "churn")) return churn();
  if (!strcmp(scene, "fork")) return forks();
  if (!strcmp(scene, "closes")) return closes();
  if (!strcmp(scene, "masks")) return masks();
  if (!strcmp(scene, "own-trap")) return own_trap();
  if (!strcmp(scene, "waits")) return waits();
  if (!strcmp(scene, "nothing")) return puts("no NNPA") < 0;
  if (count > 2 && !strcmp(scene, "asks")) return asks((unsigned)atoi(arguments[2]));
  if (count > 2 && !strcmp(scene, "handled")) return excepts(arguments[2], 1);
  if (count > 2 && !strcmp(scene, "dies")) return excepts(arguments[2], 0);
  if (count > 2 && !strcmp(scene, "dlopen")) return loads(arguments[2]);
  if (count > 3 && !strcmp(scene, "start")) return starts(arguments + 2);
  return 64;
}
