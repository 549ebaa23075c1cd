/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zdnn-testee: runs vectors through the functions of zdnn.h and writes what they answered.
 *
 *   zdnn-testee conv2d.jsonl lstm.jsonl local/getsize_ztensor.jsonl > theirs.jsonl
 *   zdnn-testee --file conv2d < conv2d.jsonl > theirs.jsonl
 *   zdnn-testee --results "a z17" conv2d.jsonl > results.jsonl   says where it was, and that it ended
 *   zdnn-testee --frames --emulated      a length, 4 bytes, little-endian, and JSON; both ways
 *
 * It uses zdnn.h and the C library alone: compile it against IBM's zDNN on a machine that has the
 * accelerator, or against libzdnn anywhere.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"
#include "zdnn.h"

#define LONGEST_FRAME (1u << 28)

static const char USAGE[] =
    "usage: zdnn-testee [--emulated] [--machine NAME] [FILE.jsonl ...] > answers.jsonl\n"
    "       zdnn-testee --results NOTE [--machine NAME] FILE.jsonl ... > results.jsonl\n"
    "       zdnn-testee [--emulated] [--machine NAME] --file STEM < STEM.jsonl > answers.jsonl\n"
    "       zdnn-testee [--emulated] --frames\n"
    "  --server    the address of an emulated machine, as ZDNN_SERVER; implies --emulated\n"
    "  --emulated  choose machine and library version of each vector by ZDNN_MACHINE and\n"
    "              ZDNN_LIBRARY_VERSION; otherwise vectors for other machines are skipped\n"
    "  --machine   the machine this is: telum1 (z16) or telum2 (z17); otherwise zDNN is asked\n"
    "  --results   begin with machine, library, date and this note, and end with the number of\n"
    "              answers, for `nnpa conformance score`; a real machine's, so not --emulated\n";

static size_t answers;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "zdnn-testee: %s: %s\n", what, why);
  exit(EXIT_FAILURE);
}

/* Reads up to `limit` bytes, fewer only at the end. No stdio: children share what it buffers. */
static size_t read_up_to(int from, char *to, size_t limit) {
  size_t size = 0;
  ssize_t got;
  while (size < limit && (got = read(from, to + size, limit - size)) > 0) size += (size_t)got;
  return size;
}

static char *read_file(int from, size_t *size) {
  size_t room = 1 << 16, got;
  char *text = malloc(room);
  *size = 0;
  while (text != NULL && (got = read_up_to(from, text + *size, room - *size)) > 0) {
    *size += got;
    if (*size == room) text = realloc(text, room *= 2);
  }
  if (text == NULL) fail("memory", "exhausted");
  return text;
}

static json *parsed(const char *text, size_t length, const char *where) {
  const char *error;
  json *root = json_parse(text, length, &error);
  if (root == NULL) fail(where, error);
  return root;
}

static void lines_run(const options *chosen, const char *stem, const char *text, size_t size) {
  const char *end = text + size;
  while (text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    size_t length = (size_t)((stop == NULL ? end : stop) - text);
    if (length > 0) {
      json *vector = parsed(text, length, stem);
      vector_run(chosen, stem, json_get(vector, "steps") == NULL, vector, stdout);
      answers++;
      fputc('\n', stdout);
      json_free(vector);
    }
    text += length + 1;
  }
}

static void file_run(const options *chosen, const char *path) {
  const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
  size_t length = strcspn(base, "."), size;
  int from = open(path, O_RDONLY);
  char *stem = calloc(length + 1, 1);
  if (from < 0 || stem == NULL) fail(path, "cannot be read");
  memcpy(stem, base, length);
  char *text = read_file(from, &size);
  close(from);
  lines_run(chosen, stem, text, size);
  free(text);
  free(stem);
}

/* Has the library say in a process of its own which machine and version it is. */
static char *place_told(const options *chosen, size_t *size) {
  int ends[2], status;
  if (pipe(ends) != 0) fail("pipe", "cannot be made");
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* what the library prints is no answer */
    FILE *out = fdopen(ends[1], "w");
    zdnn_init();
    fputs("\"machine\": ", out);
    json_put_text(out, machine_here(chosen));
    fputs(", \"library\": ", out);
    json_put_text(out, zdnn_get_library_version_str());
    exit(fclose(out) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  char *text = read_file(ends[0], size);
  close(ends[0]);
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    fail("zdnn", "does not say which machine this is");
  return text;
}

static void heading_write(const options *chosen) {
  size_t size;
  char date[sizeof "YYYY-MM-DD"];
  time_t now = time(NULL);
  char *place = place_told(chosen, &size);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  printf("{\"results\": 1, %.*s, \"date\": \"%s\", \"note\": ", (int)size, place, date);
  json_put_text(stdout, chosen->note);
  puts("}");
  free(place);
}

static bool frame_read(char **text, size_t *size) {
  unsigned char header[4];
  size_t got = read_up_to(STDIN_FILENO, (char *)header, sizeof header);
  if (got == 0) return false;
  *size = header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16 | (size_t)header[3] << 24;
  if (got < sizeof header || *size > LONGEST_FRAME) fail("frame", "too long, or ends too early");
  *text = malloc(*size + 1);
  if (*text == NULL || read_up_to(STDIN_FILENO, *text, *size) != *size)
    fail("frame", "ends too early");
  return true;
}

static void frame_write(const char *text, size_t size) {
  const unsigned char header[] = {(unsigned char)size, (unsigned char)(size >> 8),
                                  (unsigned char)(size >> 16), (unsigned char)(size >> 24)};
  fwrite(header, 1, sizeof header, stdout);
  fwrite(text, 1, size, stdout);
  if (fflush(stdout) != 0) fail("stdout", "cannot be written");
}

static void frames_run(const options *chosen) {
  char *text, *answer;
  size_t size, length;
  while (frame_read(&text, &size)) {
    json *request = parsed(text, size, "frame");
    const char *local = json_text(request, "local", NULL);
    const char *stem = local != NULL ? local : json_text(request, "file", "");
    FILE *out = open_memstream(&answer, &length);
    if (out == NULL) fail("memory", "exhausted");
    vector_run(chosen, stem, local != NULL, json_get(request, "vector"), out);
    fclose(out);
    frame_write(answer, length);
    free(answer);
    free(text);
    json_free(request);
  }
}

/* Returns the name that vectors have for a machine, NULL for none of theirs. */
static const char *machine_named(const char *text) {
  static const char *const NAMES[][2] = {{"telum1", "z16"}, {"telum2", "z17"}};
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (strcmp(text, NAMES[i][0]) == 0 || strcmp(text, NAMES[i][1]) == 0) return NAMES[i][0];
  return NULL;
}

/* Reads the options; returns the place of the first argument behind them, or 0. */
static int options_read(int count, char **arguments, options *chosen) {
  int at = 1;
  for (; at < count && strncmp(arguments[at], "--", 2) == 0; at++) {
    const char *option = arguments[at], *value = at + 1 < count ? arguments[at + 1] : NULL;
    if (strcmp(option, "--frames") == 0) {
      chosen->frames = true;
      continue;
    }
    if (strcmp(option, "--emulated") == 0) {
      chosen->emulated = true;
      continue;
    }
    if (value == NULL) return 0;
    at++;
    if (strcmp(option, "--machine") == 0) {
      chosen->machine = machine_named(value);
      if (chosen->machine == NULL) {
        fprintf(stderr, "zdnn-testee: --machine %s: expected telum1 (z16) or telum2 (z17)\n", value);
        return 0;
      }
    } else if (strcmp(option, "--file") == 0) {
      chosen->file = value;
    } else if (strcmp(option, "--results") == 0) {
      chosen->note = value;
    } else if (strcmp(option, "--server") == 0) {
      chosen->emulated = true;
      setenv("ZDNN_SERVER", value, 1);
    } else {
      return 0;
    }
  }
  if (chosen->note != NULL && (chosen->emulated || chosen->frames)) return 0;
  return chosen->frames || chosen->file != NULL || at < count ? at : 0;
}

static void input_run(const options *chosen) {
  size_t size;
  char *text = read_file(STDIN_FILENO, &size);
  lines_run(chosen, chosen->file, text, size);
  free(text);
}

int main(int count, char **arguments) {
  options chosen = {false, false, NULL, NULL, NULL};
  int at = options_read(count, arguments, &chosen);
  if (at == 0) {
    fputs(USAGE, stderr);
    return 2;
  }
  if (chosen.note != NULL) heading_write(&chosen);
  if (chosen.frames)
    frames_run(&chosen);
  else if (at == count)
    input_run(&chosen);
  for (; at < count; at++) file_run(&chosen, arguments[at]);
  if (chosen.note != NULL) printf("{\"end\": %zu}\n", answers);
  return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
