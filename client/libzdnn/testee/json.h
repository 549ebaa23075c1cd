/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of JSON (RFC 8259) into a tree, for one line or frame at a time. */
#ifndef TESTEE_JSON_H
#define TESTEE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum json_kind {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT
} json_kind;

/* A value. `text` is what a number looks like, or what a string says, UTF-8 and terminated. */
typedef struct json {
  json_kind kind;
  const char *name; /* the key, in an object */
  const char *text;
  struct json *first; /* of an array or object */
  struct json *next;  /* in an array or object */
} json;

/* Returns the tree of a text, or NULL with a story in `error`. Free it with json_free. */
json *json_parse(const char *text, size_t length, const char **error);
void json_free(json *root);

/* Returns the member of an object, or NULL. `value` may be NULL. */
const json *json_get(const json *value, const char *name);
/* Returns the text of a member that is a string, else `otherwise`. */
const char *json_text(const json *value, const char *name, const char *otherwise);
/* Returns a value as a number: true is 1; "NaN", "Infinity", "-Infinity" as protobuf writes them. */
double json_number(const json *value);
/* Returns a value as an integer; NULL is 0. */
int64_t json_integer(const json *value);

/* Writes a string with quotes, and a number that reads back as the same float. */
void json_put_text(FILE *out, const char *text);
void json_put_float(FILE *out, float value);

#endif
