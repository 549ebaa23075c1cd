/* SPDX-License-Identifier: Apache-2.0
 * Rounding is to nearest, ties away from zero. Sources: z/Architecture Principles of Operation,
 * "Neural-Network-Processing-Assist Facility 1"; US patent 11,269,632 B1, claim 3.
 */
#include "conversion.h"

enum fpc_flags { INVALID = 0x800000, OVERFLOW = 0x200000, UNDERFLOW = 0x100000 };

#define NINF 0x7fffU
#define MAGNITUDE 0x7fffU
#define SIGN 0x8000U
#define ELEMENTS 8

#define FP32_UNDERFLOW 0x2fffe000U /* smaller magnitudes are lost, with a flag */
#define FP32_OVERFLOW 0x4fffa000U  /* from here on a magnitude is NINF */
#define FP32_INFINITY 0x7f800000U
#define FP32_OF_ZERO_CODE 0x30000000U
#define FP32_QUIET_NAN 0x7fc00000U
#define FP16_QUIET_NAN 0x7e00U
#define FP16_INFINITY 0x7c00U
#define CODE_65536 0x5e00U         /* the first above FP16's range */
#define CODE_FP16_NORMAL 0x2200U   /* from here on FP16 has normal numbers */

static inline uint16_t round_one(uint32_t bits, uint32_t *flags)
{
  uint32_t magnitude = bits & 0x7fffffff, code;
  if (magnitude - FP32_UNDERFLOW < FP32_OVERFLOW - FP32_UNDERFLOW) {
    code = ((magnitude + 0x2000) >> 14) - 0xc000;
  } else if (magnitude < FP32_UNDERFLOW) {
    code = 0;
    *flags |= magnitude ? UNDERFLOW : 0;
  } else {
    code = NINF;
    *flags |= magnitude > FP32_INFINITY ? INVALID : magnitude == FP32_INFINITY ? OVERFLOW : 0;
  }
  return (uint16_t)(bits >> 16 & SIGN) | (uint16_t)code;
}

static inline uint32_t fp32_of_fp16(uint32_t half)
{
  uint32_t sign = (half & SIGN) << 16, magnitude = half & MAGNITUDE;
  if (magnitude >= FP16_INFINITY)
    return sign | FP32_INFINITY | (magnitude & 0x3ff) << 13;
  if (magnitude >= 0x400)
    return sign | ((magnitude << 13) + (112U << 23));
  if (!magnitude)
    return sign;
  uint32_t shift = (uint32_t)__builtin_clz(magnitude) - 21; /* to a leading bit 10 */
  return sign | ((113 - shift) << 23) | (magnitude << shift & 0x3ff) << 13;
}

static inline uint16_t narrow_one(uint32_t code, uint32_t *flags)
{
  uint32_t magnitude = code & MAGNITUDE, exponent = magnitude >> 9, fraction = magnitude & 0x1ff;
  uint16_t sign = (uint16_t)(code & SIGN);
  if (magnitude >= CODE_65536) {
    *flags |= magnitude == NINF ? INVALID : OVERFLOW;
    return magnitude == NINF ? FP16_QUIET_NAN : (uint16_t)(sign | FP16_INFINITY);
  }
  if (magnitude >= CODE_FP16_NORMAL)
    return (uint16_t)(sign | (exponent - 16) << 10 | fraction << 1);
  if (!magnitude)
    return sign;
  uint32_t shift = 16 - exponent, significand = 512 + fraction;
  if (significand & ((1U << shift) - 1))
    *flags |= UNDERFLOW;
  return (uint16_t)(sign | (significand + (1U << shift >> 1)) >> shift);
}

static inline uint32_t widen_one(uint32_t code, uint32_t *flags)
{
  uint32_t magnitude = code & MAGNITUDE, sign = (code & SIGN) << 16;
  if (magnitude == NINF) {
    *flags |= INVALID;
    return FP32_QUIET_NAN;
  }
  return magnitude ? sign | ((magnitude << 14) + FP32_OF_ZERO_CODE) : sign;
}

uint32_t round_fp32(const void *source, void *target)
{
  uint32_t flags = 0;
  for (int i = 0; i < ELEMENTS; i++)
    ((uint16_t *)target)[i] = round_one(((const uint32_t *)source)[i], &flags);
  return flags;
}

uint32_t round_fp16(const void *source, void *target)
{
  uint32_t flags = 0;
  for (int i = 0; i < ELEMENTS; i++)
    ((uint16_t *)target)[i] = round_one(fp32_of_fp16(((const uint16_t *)source)[i]), &flags);
  return flags;
}

uint32_t narrow_to_fp16(const void *source, void *target)
{
  uint32_t flags = 0;
  for (int i = 0; i < ELEMENTS; i++)
    ((uint16_t *)target)[i] = narrow_one(((const uint16_t *)source)[i], &flags);
  return flags;
}

static inline uint32_t widen(const uint16_t *codes, uint32_t *target)
{
  uint32_t flags = 0;
  for (int i = 0; i < ELEMENTS / 2; i++)
    target[i] = widen_one(codes[i], &flags);
  return flags;
}

uint32_t widen_left(const void *source, void *target)
{
  return widen(source, target);
}

uint32_t widen_right(const void *source, void *target)
{
  return widen((const uint16_t *)source + ELEMENTS / 2, target);
}

static const struct {
  uint8_t opcode, format_4, format_5; /* bits 32-35, bits 28-31 */
  const char *name;
  conversion_function *function;
} instructions[] = {
    {0x75, 0, 2, "VCRNF", round_fp32},  {0x55, 0, 1, "VCNF", round_fp16},
    {0x5d, 1, 0, "VCFN", narrow_to_fp16}, {0x56, 2, 0, "VCLFNH", widen_left},
    {0x5e, 2, 0, "VCLFNL", widen_right},
};

int conversion_at(uint64_t address, struct conversion *conversion)
{
  const volatile uint8_t *code = (const volatile uint8_t *)address;
  if (code[0] != 0xe6)
    return 0;
  for (unsigned i = 0; i < sizeof instructions / sizeof *instructions; i++) {
    if (code[5] != instructions[i].opcode)
      continue;
    unsigned high = code[4] & 15; /* one bit for each field: the register is one of V16-V31 */
    *conversion = (struct conversion){
        .name = instructions[i].name,
        .function = instructions[i].function,
        .target = (code[1] >> 4) + (high & 8 ? 16U : 0),
        .source = (code[1] & 15) + (high & 4 ? 16U : 0),
        .second = (code[2] >> 4) + (high & 2 ? 16U : 0),
        .is_specified = code[4] >> 4 == instructions[i].format_4 &&
                        (code[3] & 15) == instructions[i].format_5};
    return 1;
  }
  return 0;
}

int is_conversion(uint64_t address)
{
  struct conversion conversion;
  return conversion_at(address, &conversion);
}

static uint64_t *half_of(struct frame *frame, unsigned vector, int is_right)
{
  if (vector >= 16)
    return &frame->vectors_high[vector - 16][is_right];
  return is_right ? &frame->vectors_low[vector] : &frame->registers.fprs[vector];
}

void convert(struct frame *frame, const struct conversion *conversion)
{
  uint64_t source[4], target[2];
  for (int i = 0; i < 2; i++) {
    source[i] = *half_of(frame, conversion->source, i);
    source[2 + i] = *half_of(frame, conversion->second, i);
  }
  frame->registers.fpc |= conversion->function(source, target);
  for (int i = 0; i < 2; i++)
    *half_of(frame, conversion->target, i) = target[i];
}
