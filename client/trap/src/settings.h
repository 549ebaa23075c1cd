/* SPDX-License-Identifier: Apache-2.0
 * The environment's variables, copied at the start, because programs may change theirs.
 */
#ifndef NNPA_TRAP_SETTINGS_H
#define NNPA_TRAP_SETTINGS_H

#include <stddef.h>

#define MAX_VARIABLE 512

struct settings {
  char socket[MAX_VARIABLE];  /* NNPA_TRAP_SOCKET: path of the server's plain socket */
  char session[MAX_VARIABLE]; /* NNPA_TRAP_SESSION */
  char token[MAX_VARIABLE];   /* NNPA_TRAP_TOKEN */
  char stats[MAX_VARIABLE];   /* NNPA_TRAP_STATS: file that gets a line of JSON at the end */
  char qemu[MAX_VARIABLE];    /* NNPA_TRAP_QEMU: runs programs that this one starts */
  char sysroot[MAX_VARIABLE]; /* NNPA_TRAP_SYSROOT, for qemu's -L */
  char preload[MAX_VARIABLE]; /* LD_PRELOAD */
  char patch[MAX_VARIABLE];   /* NNPA_TRAP_PATCH_STFLE: NAME or NAME+0xOFFSET, between colons */
  char keep[MAX_VARIABLE];    /* NNPA_TRAP_KEEP_STFLE: the same */
  char machine[8];            /* NNPA_TRAP_MACHINE: z15, z16, z17 */
  int has_facility;           /* whether that machine has NNPA */
  int patches;                /* NNPA_TRAP_PATCH: 0 leaves conversions as they are */
  int verbose;                /* NNPA_TRAP_VERBOSE: 1 prints why the machine refuses */
};

extern struct settings settings;

/* The variables of this library that programs which this one starts get, too. */
#define PASSED_ON 9
extern const struct passed_on { const char *name; char *value; size_t room; } passed_on[PASSED_ON];

void settings_read(char **environment);

#endif
