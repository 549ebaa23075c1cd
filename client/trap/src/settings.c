/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include "linux.h"
#include "text.h"

#define SETTING(name, field) {name, settings.field, sizeof settings.field}

struct settings settings;

const struct passed_on passed_on[PASSED_ON] = {
    SETTING("NNPA_TRAP_SOCKET", socket),   SETTING("NNPA_TRAP_SESSION", session),
    SETTING("NNPA_TRAP_TOKEN", token),     SETTING("NNPA_TRAP_STATS", stats),
    SETTING("NNPA_TRAP_QEMU", qemu),       SETTING("NNPA_TRAP_SYSROOT", sysroot),
    SETTING("NNPA_TRAP_MACHINE", machine), SETTING("NNPA_TRAP_PATCH_STFLE", patch),
    SETTING("NNPA_TRAP_KEEP_STFLE", keep),
};

static const char *value_of(char **environment, const char *name)
{
  size_t size = length_of(name);
  for (; *environment; environment++) {
    const char *variable = *environment;
    size_t i = 0;
    while (i < size && variable[i] == name[i])
      i++;
    if (i == size && variable[i] == '=')
      return variable + size + 1;
  }
  return "";
}

static void keep(char *place, size_t room, char **environment, const char *name)
{
  const char *value = value_of(environment, name);
  size_t size = length_of(value);
  if (size >= room) {
    struct text words = {.size = 0};
    text_add(&words, name);
    text_add(&words, " is ");
    text_add_decimal(&words, size);
    text_add(&words, " bytes, must be fewer than ");
    text_add_decimal(&words, room);
    text_add(&words, ": it counts as not set");
    text_add_bytes(&words, "", 1);
    complain(words.characters, 0);
    size = 0;
  }
  copy_bytes(place, value, size);
  place[size] = 0;
}

void settings_read(char **environment)
{
  for (int i = 0; i < PASSED_ON; i++)
    keep(passed_on[i].value, passed_on[i].room, environment, passed_on[i].name);
  keep(settings.preload, sizeof settings.preload, environment, "LD_PRELOAD");
  settings.has_facility = !same_text(settings.machine, "z15");
  settings.patches = !same_text(value_of(environment, "NNPA_TRAP_PATCH"), "0");
  settings.verbose = same_text(value_of(environment, "NNPA_TRAP_VERBOSE"), "1");
}
