/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between DLFLOAT16 and a program's types by the vector instructions of the
 * neural-network-processing-assist facility. Source: z/Architecture Principles of Operation. */
#include <string.h>

#include "library.h"

#define LARGEST 8573157376.0f

typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

/* VCRNF V1,V2,V3,0,2 */
static halves round_short(words high, words low) {
  halves to;
  __asm__ volatile(".insn vrr,0xe60000000075,%v0,%v1,%v2,0,2,0" : "=v"(to) : "v"(high), "v"(low));
  return to;
}

/* VCNF V1,V2,0,1 */
static halves from_tiny(halves from) {
  halves to;
  __asm__ volatile(".insn vrr,0xe60000000055,%v0,%v1,%%v0,0,1,0" : "=v"(to) : "v"(from));
  return to;
}

/* VCFN V1,V2,1,0 */
static halves to_tiny(halves from) {
  halves to;
  __asm__ volatile(".insn vrr,0xe6000000005d,%v0,%v1,%%v0,1,0,0" : "=v"(to) : "v"(from));
  return to;
}

/* VCLFNH V1,V2,2,0 */
static words lengthen_high(halves from) {
  words to;
  __asm__ volatile(".insn vrr,0xe60000000056,%v0,%v1,%%v0,2,0,0" : "=v"(to) : "v"(from));
  return to;
}

/* VCLFNL V1,V2,2,0 */
static words lengthen_low(halves from) {
  words to;
  __asm__ volatile(".insn vrr,0xe6000000005e,%v0,%v1,%%v0,2,0,0" : "=v"(to) : "v"(from));
  return to;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t dlfloat_of(float value) {
  words high = {bits_of(value)}, none = {0};
  return round_short(high, none)[0];
}

uint16_t scalar_of(float value) { return value == 0 ? 0 : dlfloat_of(value); }

float float_of_dlfloat(uint16_t code) {
  halves from = {code};
  return float_of(lengthen_high(from)[0]);
}

/* Limits a finite value to the largest DLFLOAT16; infinities and NaN stay. */
static uint32_t saturated(uint32_t bits) {
  if ((bits & 0x7f800000) == 0x7f800000) return bits;
  float value = float_of(bits);
  if (value > LARGEST) value = LARGEST;
  if (value < -LARGEST) value = -LARGEST;
  return bits_of(value);
}

void to_dlfloat(uint16_t codes[8], zdnn_data_types type, const void *from, size_t step,
                unsigned count, bool saturate) {
  halves small = {0}, result;
  words wide[2] = {{0}, {0}};
  const uint16_t *shorts = from;
  const uint32_t *floats = from;
  for (unsigned i = 0; i < count; i++) {
    if (type == FP16) {
      small[i] = shorts[i * step];
      continue;
    }
    uint32_t bits = type == BFLOAT ? (uint32_t)shorts[i * step] << 16 : floats[i * step];
    wide[i / 4][i % 4] = saturate ? saturated(bits) : bits;
  }
  result = type == FP16 ? from_tiny(small) : round_short(wide[0], wide[1]);
  memcpy(codes, &result, count * sizeof *codes);
}

void from_dlfloat(void *to, zdnn_data_types type, size_t step, const uint16_t codes[8],
                  unsigned count) {
  halves from = {0};
  words wide[2];
  uint16_t *shorts = to;
  uint32_t *floats = to;
  memcpy(&from, codes, count * sizeof *codes);
  if (type == FP16) {
    from = to_tiny(from);
  } else {
    wide[0] = lengthen_high(from);
    wide[1] = lengthen_low(from);
  }
  for (unsigned i = 0; i < count; i++) {
    if (type == FP16)
      shorts[i * step] = from[i];
    else if (type == BFLOAT)
      shorts[i * step] = (uint16_t)(wide[i / 4][i % 4] >> 16);
    else
      floats[i * step] = wide[i / 4][i % 4];
  }
}
