/* SPDX-License-Identifier: Apache-2.0
 * Linux for s390x without a C library: system calls by SVC, and the numbers that they take.
 * Source: Linux, arch/s390/kernel/syscalls/syscall.tbl and the headers of the user interface.
 */
#ifndef NNPA_TRAP_LINUX_H
#define NNPA_TRAP_LINUX_H

#include <stddef.h>
#include <stdint.h>

enum system_call {
  NR_WRITE = 4, NR_OPEN = 5, NR_CLOSE = 6, NR_GETPID = 20, NR_READ = 3, NR_FCNTL = 55,
  NR_MMAP = 90, NR_MUNMAP = 91, NR_MPROTECT = 125, NR_RT_SIGACTION = 174,
  NR_RT_SIGPROCMASK = 175, NR_PREAD64 = 180, NR_PWRITE64 = 181, NR_FTRUNCATE = 93,
  NR_SCHED_YIELD = 158, NR_GETTID = 236, NR_TGKILL = 241, NR_CLOCK_GETTIME = 260,
  NR_MEMFD_CREATE = 350, NR_SOCKET = 359, NR_CONNECT = 362, NR_SENDMSG = 370,
};

enum error_number { ERR_NOENT = 2, ERR_SRCH = 3, ERR_INTR = 4, ERR_BADF = 9, ERR_INVAL = 22 };

static inline long system_call6(long number, long a, long b, long c, long d, long e, long f)
{
  register long r1 __asm__("r1") = number;
  register long r2 __asm__("r2") = a;
  register long r3 __asm__("r3") = b;
  register long r4 __asm__("r4") = c;
  register long r5 __asm__("r5") = d;
  register long r6 __asm__("r6") = e;
  register long r7 __asm__("r7") = f;
  __asm__ volatile("svc 0"
                   : "+d"(r2)
                   : "d"(r1), "d"(r3), "d"(r4), "d"(r5), "d"(r6), "d"(r7)
                   : "memory", "cc");
  return r2;
}

/* mmap passes its six arguments in storage. */
static inline long system_call_mmap(uint64_t hint, uint64_t size, long protection, long flags,
                                    long file, uint64_t offset)
{
  long block[6] = {(long)hint, (long)size, protection, flags, file, (long)offset};
  return system_call6(NR_MMAP, (long)block, 0, 0, 0, 0, 0);
}

#define SYS3(number, a, b, c) system_call6(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(number, a, b, c, d) \
  system_call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#define PROT_R 1
#define PROT_W 2
#define PROT_X 4
#define MAP_PRIVATE_ANONYMOUS 0x22
#define PAGE 4096UL

struct clock { int64_t seconds, nanoseconds; };

static inline uint64_t now(void)
{
  struct clock clock = {0, 0};
  SYS3(NR_CLOCK_GETTIME, 1, &clock, 0);
  return (uint64_t)clock.seconds * 1000000000UL + (uint64_t)clock.nanoseconds;
}

static inline void copy_bytes(void *to, const void *from, size_t size)
{
  uint8_t *target = to;
  const uint8_t *source = from;
  for (size_t i = 0; i < size; i++) {
    target[i] = source[i];
    __asm__ volatile("" ::: "memory"); /* no call of memcpy in its place */
  }
}

/* Read a big-endian number. */
static inline uint64_t number_at(const uint8_t *bytes, int size)
{
  uint64_t number = 0;
  for (int i = 0; i < size; i++)
    number = number << 8 | bytes[i];
  return number;
}

/* Write a big-endian number. */
static inline void put_number(uint8_t *bytes, uint64_t number, int size)
{
  for (int i = size - 1; i >= 0; i--, number >>= 8)
    bytes[i] = (uint8_t)number;
}

static inline void clear_bytes(void *to, size_t size)
{
  volatile uint8_t *target = to;
  for (size_t i = 0; i < size; i++)
    target[i] = 0;
}

#endif
