/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs.h"

enum { SKIPPED = 3, SHIFT = 128, AREA_SHIFT = 8 };
#define AREA_BYTES (1u << 20) /* more than any vector's work area */

static bool flagged(const json *operation, const char *name) {
  return json_integer(json_get(operation, name)) != 0;
}

/* Returns the function of an operation: the member that is no flag. */
static const json *arm_of(const json *operation) {
  const json *arm = operation == NULL ? NULL : operation->first;
  while (arm != NULL && arm->kind != JSON_OBJECT) arm = arm->next;
  return arm;
}

/* Returns whether a vector has the required shape. */
static bool shaped(const json *vector, bool local) {
  const json *steps = json_get(vector, "steps"), *tensors = json_get(vector, "tensors");
  const json *arguments = json_get(vector, "arguments");
  if (json_get(vector, "name") == NULL) return false;
  if (local) return arguments != NULL && arguments->kind == JSON_OBJECT;
  return steps != NULL && steps->kind == JSON_ARRAY &&
         (tensors == NULL || tensors->kind == JSON_OBJECT);
}

/* Returns why C has no words for a vector, or NULL. */
static const char *unsayable(const json *vector) {
  const json *spec = json_get(vector, "machine_spec"), *step = json_get(vector, "steps");
  for (const json *field = spec == NULL ? NULL : spec->first; field != NULL; field = field->next)
    if (strcmp(field->name, "model") != 0) return "machine_spec: C chooses machines by name";
  for (step = step == NULL ? NULL : step->first; step != NULL; step = step->next) {
    const json *arm = arm_of(json_get(step, "operation"));
    if (arm == NULL) return "machine: a C program cannot move to another one";
    for (const json *argument = arm->first; argument != NULL; argument = argument->next)
      if (json_get(argument, "new_id") != NULL) return "new_id: C has no outputs that are left out";
  }
  return NULL;
}

const char *machine_here(const options *chosen) {
  if (chosen->machine != NULL) return chosen->machine;
  if (!zdnn_is_nnpa_installed()) return "z15";
  return zdnn_is_nnpa_function_installed(1, NNPA_SQRT) ? "telum2" : "telum1";
}

/* Returns whether a vector is about this machine. */
static bool here(const options *chosen, const char *machine) {
  bool without = chosen->machine == NULL && !zdnn_is_nnpa_installed();
  return strcmp(machine_here(chosen), machine) == 0 ||
         (without && strstr(machine, "-nonnpa") != NULL);
}

/* Has the library start anew with a vector's options. Returns why it cannot, or NULL. */
static const char *configure(const options *chosen, const json *vector, bool local) {
  const json *own = local ? json_get(vector, "arguments") : vector;
  const char *library = json_text(own, "library", ZDNN_VERSION);
  const char *machine = json_text(vector, "machine", "telum2");
  bool precheck = json_integer(json_get(vector, "precheck")) != 0;
  setenv("ZDNN_ENABLE_PRECHECK", precheck ? "true" : "false", 1);
  if (chosen->emulated) {
    setenv("ZDNN_MACHINE", machine, 1);
    setenv("ZDNN_LIBRARY_VERSION", library, 1);
  }
  zdnn_init();
  if (chosen->emulated) return NULL;
  if (strcmp(zdnn_get_library_version_str(), library) != 0) return "library: not the one here";
  return local || here(chosen, machine) ? NULL : "machine: not the one here";
}

static void outputs_put(slot *slots, const json *arguments, FILE *out) {
  const char *between = "";
  fputs(", \"outputs\": {", out);
  for (const json *argument = arguments->first; argument != NULL; argument = argument->next) {
    const json *named = argument->kind == JSON_NUMBER ? argument : json_get(argument, "id");
    slot *seen = is_output(argument->name) ? slot_find(slots, json_integer(named)) : NULL;
    if (seen == NULL) continue;
    fputs(between, out);
    json_put_text(out, argument->name);
    fputs(": ", out);
    slot_put(out, seen);
    between = ", ";
  }
  fputc('}', out);
}

static void step_run(slot **slots, const json *step, FILE *out) {
  const json *operation = json_get(step, "operation"), *arm = arm_of(operation);
  bool area = flagged(operation, "save_area_misaligned") ||
              flagged(operation, "work_area_misaligned");
  char *memory = area ? aligned_zeros(AREA_BYTES) : NULL;
  call request = {slots, arm, json_get(step, "data"), area ? memory + AREA_SHIFT : NULL, out};
  bool shifted = flagged(operation, "buffer_misaligned");
  if (shifted) slots_shift(*slots, arm, SHIFT);
  fputc('{', out);
  if (!verb_run(arm->name, &request)) {
    fprintf(stderr, "zdnn-testee: %s: no such function\n", arm->name);
    exit(EXIT_FAILURE);
  }
  if (shifted) slots_shift(*slots, arm, -SHIFT);
  outputs_put(*slots, arm, out);
  fputs("}\n", out);
  fflush(out);
  free(memory);
}

/* Runs a vector in this process and ends it: one line per step, or why it is skipped. */
static void child_run(const options *chosen, const char *stem, bool local, const json *vector,
                      FILE *out) {
  const int checks[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) signal(checks[i], SIG_DFL);
  const char *why = configure(chosen, vector, local);
  if (why != NULL) {
    fputs(why, out);
    fclose(out);
    exit(SKIPPED);
  }
  if (local) {
    if (!local_run(stem, json_get(vector, "arguments"), out)) {
      fprintf(stderr, "zdnn-testee: %s: no such function\n", stem);
      exit(EXIT_FAILURE);
    }
  } else {
    slot *slots = program_of(vector);
    for (const json *step = json_get(vector, "steps")->first; step != NULL; step = step->next)
      step_run(&slots, step, out);
    program_free(slots);
  }
  fclose(out);
  exit(EXIT_SUCCESS);
}

/* Reads a pipe to its end. */
static char *read_all(int from) {
  size_t size = 0, room = 1 << 16;
  char *text = malloc(room);
  ssize_t got;
  while (text != NULL && (got = read(from, text + size, room - size - 1)) > 0) {
    size += (size_t)got;
    if (room - size < 2) text = realloc(text, room *= 2);
  }
  if (text == NULL) abort();
  text[size] = '\0';
  return text;
}

static void steps_put(FILE *out, char *lines, const json *vector, int signal_number) {
  const char *between = "";
  const json *step = json_get(vector, "steps")->first;
  fputs(", \"steps\": [", out);
  for (char *end; (end = strchr(lines, '\n')) != NULL; lines = end + 1, step = step->next) {
    *end = '\0';
    fprintf(out, "%s%s", between, lines);
    between = ", ";
  }
  for (; step != NULL; step = step->next, between = ", ")
    fprintf(out, "%s{\"error\": \"PROGRAM_CHECK\", \"signal\": %d}", between, signal_number);
  fputc(']', out);
}

static void answer_put(FILE *out, bool local, const json *vector, char *output, int status) {
  int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
    fputs(", \"skipped\": ", out);
    json_put_text(out, output);
  } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    fprintf(out, ", \"failed\": \"the program ended with %d\"", WEXITSTATUS(status));
  } else if (local) {
    if (signal_number != 0)
      fprintf(out, ", \"failed\": \"the program ended with signal %d\"", signal_number);
    else
      fprintf(out, ", %s", output);
  } else {
    steps_put(out, output, vector, signal_number);
  }
}

void vector_run(const options *chosen, const char *stem, bool local, const json *vector,
                FILE *out) {
  if (!shaped(vector, local)) {
    fprintf(stderr, "zdnn-testee: %s: a line that is no vector\n", stem);
    exit(EXIT_FAILURE);
  }
  fprintf(out, "{\"%s\": ", local ? "local" : "file");
  json_put_text(out, stem);
  fputs(", \"name\": ", out);
  json_put_text(out, json_text(vector, "name", ""));
  const char *why = local ? NULL : unsayable(vector);
  if (why != NULL) {
    fprintf(out, ", \"skipped\": \"%s\"}", why);
    return;
  }
  int ends[2], status = 0;
  if (pipe(ends) != 0) abort();
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* what the library prints is no answer */
    child_run(chosen, stem, local, vector, fdopen(ends[1], "w"));
  }
  close(ends[1]);
  char *output = read_all(ends[0]);
  close(ends[0]);
  if (child < 0 || waitpid(child, &status, 0) != child) abort();
  answer_put(out, local, vector, output, status);
  fputc('}', out);
  free(output);
}
