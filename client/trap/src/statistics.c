/* SPDX-License-Identifier: Apache-2.0 */
#include "statistics.h"

#include "linux.h"
#include "settings.h"
#include "text.h"

#define OPEN_TO_APPEND (1 | 0x40 | 0x400 | 0x80000) /* O_WRONLY, O_CREAT, O_APPEND, O_CLOEXEC */

struct statistics statistics;
static int is_written;

void statistics_clear(void)
{
  clear_bytes(&statistics, sizeof statistics);
  is_written = 0;
}

static void add_field(struct text *line, const char *name, uint64_t number)
{
  text_add(line, name);
  text_add_decimal(line, number);
}

static void append(const struct text *line)
{
  long file = SYS3(NR_OPEN, settings.stats, OPEN_TO_APPEND, 0600);
  if (file < 0)
    return;
  text_write((int)file, line);
  SYS3(NR_CLOSE, file, 0, 0);
}

void statistics_write(void)
{
  if (!settings.stats[0] || __atomic_exchange_n(&is_written, 1, __ATOMIC_RELAXED))
    return;
  struct text line = {.size = 0};
  add_field(&line, "{\"process\": ", (uint64_t)SYS3(NR_GETPID, 0, 0, 0));
  add_field(&line, ", \"traps\": ", statistics.traps);
  add_field(&line, ", \"conversions\": ", statistics.conversions);
  add_field(&line, ", \"patched_places\": ", statistics.patched_places);
  add_field(&line, ", \"nanoseconds\": ", statistics.nanoseconds);
  text_add(&line, ", \"instructions\": {");
  const char *between = "\"";
  for (unsigned code = 0; code < 256; code++) {
    if (!statistics.instructions[code])
      continue;
    add_field(&line, between, code);
    add_field(&line, "\": ", statistics.instructions[code]);
    between = ", \"";
  }
  text_add(&line, "}}\n");
  append(&line);
}

/* A character that JSON would escape becomes a question mark. */
static void add_name(struct text *line, const char *name)
{
  for (; *name; name++)
    text_add_bytes(line, *name < ' ' || *name > '~' || *name == '"' || *name == '\\' ? "?" : name,
                   1);
}

void statistics_place(const char *object, uint64_t offset, const char *fate)
{
  if (!settings.stats[0])
    return;
  struct text line = {.size = 0};
  add_field(&line, "{\"process\": ", (uint64_t)SYS3(NR_GETPID, 0, 0, 0));
  add_field(&line, ", \"offset\": ", offset);
  text_add(&line, ", \"fate\": \"");
  text_add(&line, fate);
  text_add(&line, "\", \"object\": \"");
  add_name(&line, object);
  text_add(&line, "\"}\n");
  append(&line);
}
