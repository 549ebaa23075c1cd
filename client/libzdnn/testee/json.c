/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

typedef struct reader {
  const char *at, *end;
  const char *error;
  int depth;
} reader;

static bool parse_value(reader *in, json *value);

static bool fail(reader *in, const char *story) {
  if (in->error == NULL) in->error = story;
  return false;
}

static void skip_space(reader *in) {
  while (in->at < in->end && strchr(" \t\r\n", *in->at) != NULL && *in->at != '\0') in->at++;
}

static bool take(reader *in, char expected) {
  skip_space(in);
  if (in->at >= in->end || *in->at != expected) return false;
  in->at++;
  return true;
}

static char *copied(const char *from, size_t length) {
  char *text = malloc(length + 1);
  if (text == NULL) abort();
  memcpy(text, from, length);
  text[length] = '\0';
  return text;
}

static bool hex4(reader *in, unsigned *code) {
  if (in->end - in->at < 4) return fail(in, "\\u without four digits");
  *code = 0;
  for (int place = 0; place < 4; place++) {
    char digit = *in->at++;
    const char *position = digit == '\0' ? NULL : strchr("0123456789abcdef0123456789ABCDEF", digit);
    if (position == NULL) return fail(in, "\\u without four digits");
    static const char lower[] = "0123456789abcdef";
    unsigned value = 0;
    while (lower[value] != digit && lower[value] != (char)(digit | 0x20)) value++;
    *code = *code << 4 | value;
  }
  return true;
}

static char *put_utf8(char *to, unsigned code) {
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xC0 | code >> 6);
    *to++ = (char)(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    *to++ = (char)(0xE0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  } else {
    *to++ = (char)(0xF0 | code >> 18);
    *to++ = (char)(0x80 | (code >> 12 & 0x3F));
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  }
  return to;
}

static bool parse_code_point(reader *in, char **to) {
  unsigned code, low;
  if (!hex4(in, &code)) return false;
  if (code >= 0xDC00 && code <= 0xDFFF) return fail(in, "half of a surrogate pair");
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (in->end - in->at < 6 || in->at[0] != '\\' || in->at[1] != 'u')
      return fail(in, "half of a surrogate pair");
    in->at += 2;
    if (!hex4(in, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return fail(in, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  if (code == 0) return fail(in, "a string with a NUL");
  *to = put_utf8(*to, code);
  return true;
}

static bool parse_escape(reader *in, char **to) {
  static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
  if (in->at >= in->end) return fail(in, "a string without its end");
  char name = *in->at++;
  if (name == 'u') return parse_code_point(in, to);
  const char *position = name == '\0' ? NULL : strchr(names, name);
  if (position == NULL) return fail(in, "an escape that JSON does not have");
  *(*to)++ = codes[position - names];
  return true;
}

static char *parse_text(reader *in) {
  if (!take(in, '"')) {
    fail(in, "no string where one must be");
    return NULL;
  }
  char *text = malloc((size_t)(in->end - in->at) + 1), *to = text;
  if (text == NULL) abort();
  while (in->at < in->end && *in->at != '"') {
    unsigned char byte = (unsigned char)*in->at++;
    bool good = byte == '\\' ? parse_escape(in, &to) : byte >= 0x20;
    if (!good) {
      fail(in, "a control character in a string");
      free(text);
      return NULL;
    }
    if (byte != '\\') *to++ = (char)byte;
  }
  if (!take(in, '"')) {
    fail(in, "a string without its end");
    free(text);
    return NULL;
  }
  *to = '\0';
  char *fitting = realloc(text, (size_t)(to - text) + 1);
  return fitting == NULL ? text : fitting;
}

static size_t digits(reader *in) {
  const char *start = in->at;
  while (in->at < in->end && *in->at >= '0' && *in->at <= '9') in->at++;
  return (size_t)(in->at - start);
}

static bool parse_number(reader *in, json *value) {
  const char *start = in->at;
  if (*in->at == '-') in->at++;
  const char *whole = in->at;
  size_t count = digits(in);
  if (count == 0 || (count > 1 && *whole == '0')) return fail(in, "a number that is none");
  if (in->at < in->end && *in->at == '.') {
    in->at++;
    if (digits(in) == 0) return fail(in, "a number that is none");
  }
  if (in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
    in->at++;
    if (in->at < in->end && (*in->at == '+' || *in->at == '-')) in->at++;
    if (digits(in) == 0) return fail(in, "a number that is none");
  }
  value->kind = JSON_NUMBER;
  value->text = copied(start, (size_t)(in->at - start));
  return true;
}

static bool parse_word(reader *in, json *value) {
  static const struct {
    const char *word;
    json_kind kind;
  } words[] = {{"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i].word);
    if ((size_t)(in->end - in->at) >= length && memcmp(in->at, words[i].word, length) == 0) {
      in->at += length;
      value->kind = words[i].kind;
      return true;
    }
  }
  return fail(in, "no value where one must be");
}

/* Reads the members of an array or object, up to and with `close`. */
static bool parse_members(reader *in, json *value, char close) {
  json **place = &value->first;
  if (take(in, close)) return true;
  do {
    json *member = calloc(1, sizeof *member);
    if (member == NULL) abort();
    *place = member;
    place = &member->next;
    if (close == '}') {
      member->name = parse_text(in);
      if (member->name == NULL) return false;
      if (!take(in, ':')) return fail(in, "a key without a colon");
    }
    if (!parse_value(in, member)) return false;
  } while (take(in, ','));
  return take(in, close) || fail(in, "an array or object without its end");
}

static bool parse_value(reader *in, json *value) {
  skip_space(in);
  if (in->at >= in->end) return fail(in, "no value where one must be");
  if (*in->at == '"') {
    value->kind = JSON_STRING;
    value->text = parse_text(in);
    return value->text != NULL;
  }
  if (*in->at == '-' || (*in->at >= '0' && *in->at <= '9')) return parse_number(in, value);
  if (*in->at != '{' && *in->at != '[') return parse_word(in, value);
  if (++in->depth > DEEPEST) return fail(in, "more than 64 levels");
  bool object = *in->at++ == '{';
  value->kind = object ? JSON_OBJECT : JSON_ARRAY;
  bool good = parse_members(in, value, object ? '}' : ']');
  in->depth--;
  return good;
}

json *json_parse(const char *text, size_t length, const char **error) {
  reader in = {text, text + length, NULL, 0};
  json *root = calloc(1, sizeof *root);
  if (root == NULL) abort();
  bool good = parse_value(&in, root);
  skip_space(&in);
  if (good && in.at != in.end) good = fail(&in, "more behind the value");
  *error = in.error;
  if (good) return root;
  json_free(root);
  return NULL;
}

void json_free(json *root) {
  while (root != NULL) {
    json *next = root->next;
    json_free(root->first);
    free((char *)root->name);
    free((char *)root->text);
    free(root);
    root = next;
  }
}

const json *json_get(const json *value, const char *name) {
  if (value == NULL || value->kind != JSON_OBJECT) return NULL;
  const json *member = value->first;
  while (member != NULL && strcmp(member->name, name) != 0) member = member->next;
  return member;
}

const char *json_text(const json *value, const char *name, const char *otherwise) {
  const json *member = json_get(value, name);
  return member != NULL && member->kind == JSON_STRING ? member->text : otherwise;
}

double json_number(const json *value) {
  if (value == NULL) return 0;
  if (value->kind == JSON_TRUE) return 1;
  if (value->kind == JSON_NUMBER) return strtod(value->text, NULL);
  if (value->kind != JSON_STRING) return 0;
  if (strcmp(value->text, "NaN") == 0) return (double)NAN;
  if (strcmp(value->text, "Infinity") == 0) return (double)INFINITY;
  return strcmp(value->text, "-Infinity") == 0 ? -(double)INFINITY : 0;
}

int64_t json_integer(const json *value) {
  if (value == NULL) return 0;
  return value->kind == JSON_NUMBER ? strtoll(value->text, NULL, 10) : value->kind == JSON_TRUE;
}

void json_put_text(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\')
      fprintf(out, "\\%c", byte);
    else if (byte < 0x20)
      fprintf(out, "\\u%04x", byte);
    else
      fputc(byte, out);
  }
  fputc('"', out);
}

void json_put_float(FILE *out, float value) {
  if (isnan(value))
    fputs("\"NaN\"", out);
  else if (isinf(value))
    fputs(value > 0 ? "\"Infinity\"" : "\"-Infinity\"", out);
  else
    fprintf(out, "%.9g", (double)value);
}
