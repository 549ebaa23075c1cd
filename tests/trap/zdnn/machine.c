/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has: the facility list, NNPA-QAF, and what follows from them. */
#include <string.h>

#include "library.h"

enum { FACILITY_NNPA = 165, LIBRARY_MINOR = 2 };
enum { DATA_TYPES = 48, LAYOUTS = 52, MDIS = 60, MTS = 64, CONVERSIONS = 72, LARGEST_DIMS = 88 };

static uint8_t machine[256]; /* NNPA-QAF as it was at the last refresh; zeros without NNPA */

static uint64_t field(size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value = value << 8 | machine[at + i];
  return value;
}

static bool bit(size_t at, unsigned number) {
  return machine[at + number / 8] >> (7 - number % 8) & 1;
}

bool function_installed(unsigned code) { return code < 256 && bit(0, code); }

bool format_installed(unsigned format) { return format < 128 && bit(32, format); }

bool zdnn_is_nnpa_installed() {
  uint64_t list[32] = {0};
  register uint64_t r0 __asm__("r0") = 31;
  __asm__ volatile(".insn s,0xb2b00000,%1" : "+d"(r0), "=Q"(list) : : "cc");
  return list[FACILITY_NNPA / 64] >> (63 - FACILITY_NNPA % 64) & 1;
}

zdnn_status zdnn_refresh_nnpa_query_result() {
  if (!zdnn_is_nnpa_installed()) return ZDNN_UNAVAILABLE_FUNCTION;
  query_available_functions(machine);
  return ZDNN_OK;
}

static void __attribute__((constructor)) first_use(void) { zdnn_init(); }

void zdnn_init() { zdnn_refresh_nnpa_query_result(); }

bool zdnn_is_nnpa_function_installed(int count, ...) {
  bool all = true;
  va_list codes;
  va_start(codes, count);
  for (int i = 0; i < count && all; i++)
    all = function_installed((uint16_t)va_arg(codes, unsigned));
  va_end(codes);
  return all;
}

bool zdnn_is_nnpa_parmblk_fmt_installed(int count, ...) {
  bool all = true;
  va_list codes;
  va_start(codes, count);
  for (int i = 0; i < count && all; i++) all = format_installed((uint8_t)va_arg(codes, unsigned));
  va_end(codes);
  return all;
}

bool zdnn_is_nnpa_datatype_installed(uint16_t types_bitmask) {
  return (field(DATA_TYPES, 2) & types_bitmask) == types_bitmask;
}

bool zdnn_is_nnpa_layout_fmt_installed(uint32_t layout_bitmask) {
  return (field(LAYOUTS, 4) & layout_bitmask) == layout_bitmask;
}

bool zdnn_is_nnpa_conversion_installed(nnpa_data_type type, uint16_t format_bitmask) {
  return type == NNPA_DATATYPE_1 && (field(CONVERSIONS, 2) & format_bitmask) == format_bitmask;
}

uint32_t zdnn_get_nnpa_max_dim_idx_size() { return (uint32_t)field(MDIS, 4); }

uint64_t zdnn_get_nnpa_max_tensor_size() { return field(MTS, 8); }

uint32_t zdnn_get_max_for_dim(uint8_t dimension) {
  if (dimension < 1 || dimension > 4) return 0;
  uint32_t largest = (uint32_t)field(LARGEST_DIMS + 4u * (4u - dimension), 4);
  return largest != 0 ? largest : zdnn_get_nnpa_max_dim_idx_size();
}

/* What a machine of one generation reports at least: offset, bytes and their mask. */
typedef struct mask {
  size_t at, bytes;
  uint64_t bits;
} mask;

static const mask TELUM_I[] = {{0, 8, 0x8000fc00c0007800},  {8, 8, 0x8000c000c000e000},
                               {32, 1, 0x80},               {DATA_TYPES, 2, 0x8000},
                               {LAYOUTS, 4, 0xc0000000},    {CONVERSIONS, 2, 0x6000}};
static const mask TELUM_II[] = {{0, 8, 0x8000fc00f0007c00}, {8, 8, 0xf000c000c000f000},
                                {30, 2, 0xc000},            {32, 1, 0xc0},
                                {DATA_TYPES, 2, 0x82a0},    {LAYOUTS, 4, 0xe0000001},
                                {CONVERSIONS, 2, 0x6000}};

static bool fits(const mask *masks, size_t count) {
  bool all = field(MDIS, 4) >= 32768 && field(MTS, 8) >= 4294967296;
  for (size_t i = 0; i < count; i++)
    all = all && (field(masks[i].at, masks[i].bytes) & masks[i].bits) == masks[i].bits;
  return all;
}

static uint32_t hardware_version(void) {
  if (fits(TELUM_II, sizeof TELUM_II / sizeof *TELUM_II)) return 0x010100;
  return fits(TELUM_I, sizeof TELUM_I / sizeof *TELUM_I) ? 0x010000 : 0;
}

bool zdnn_is_version_runnable(uint32_t ver_num) {
  uint32_t hardware = hardware_version(), minor = ver_num >> 8 & 0xff;
  return (ver_num >> 16 & 0xff) == 1 && hardware >> 16 == 1 && minor <= LIBRARY_MINOR &&
         minor <= (hardware >> 8 & 0xff);
}

uint32_t zdnn_get_max_runnable_version() {
  uint32_t hardware = hardware_version();
  if (hardware >> 16 != 1) return 0;
  return (hardware < ZDNN_VERNUM ? hardware : ZDNN_VERNUM) | 0xff;
}

char *zdnn_get_library_version_str() { return ZDNN_VERSION; }

uint32_t zdnn_get_library_version() { return ZDNN_VERNUM; }
