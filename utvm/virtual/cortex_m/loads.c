/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of Armv7-M and Armv8-M (ARM DDI 0403E, A5.2, A5.3 and A6.4; DDI 0553B, C2.3). */
#include "loads.h"

#include <string.h>

static void set_load(load_t *load, uint32_t count, uint32_t width, uint32_t base, int32_t offset) {
  load->count = (uint8_t)count;
  load->width = (uint8_t)width;
  load->base = (uint8_t)base;
  load->offset = offset;
}

static void set_index(load_t *load, uint32_t width, uint32_t base, uint32_t index, uint32_t shift) {
  set_load(load, 1, width, base, 0);
  load->index = (uint8_t)index;
  load->shift = (uint8_t)shift;
}

static void load_16(load_t *load, uint32_t op) {
  static const uint8_t widths[8] = {0, 0, 0, 1, 4, 2, 1, 2};
  const uint32_t middle = op >> 3 & 7u, upper = op >> 8 & 7u, width = widths[op >> 9 & 7u];
  const int32_t small = (int32_t)(op >> 6 & 31u), large = (int32_t)(op & 0xFFu);
  const uint32_t listed = (uint32_t)__builtin_popcount(op & 0xFFu);
  switch (op >> 11) {
  case 9:
    set_load(load, 1, 4, 15, 4 * large);
    break;
  case 10:
  case 11:
    if (width)
      set_index(load, width, middle, op >> 6 & 7u, 0);
    break;
  case 13:
    set_load(load, 1, 4, middle, 4 * small);
    break;
  case 15:
    set_load(load, 1, 1, middle, small);
    break;
  case 17:
    set_load(load, 1, 2, middle, 2 * small);
    break;
  case 19:
    set_load(load, 1, 4, 13, 4 * large);
    break;
  case 23:
    if ((op & 0xFE00u) == 0xBC00u) /* POP */
      set_load(load, listed + (op >> 8 & 1u), 4, 13, 0);
    break;
  case 25:
    set_load(load, listed, 4, upper, 0);
    break;
  }
}

/* LDRD, and loads that are exclusive or ordered, or of a table of branches. */
static void load_double(load_t *load, uint32_t first, uint32_t second, int32_t offset) {
  const uint32_t base = first & 0xFu, kind = second >> 4 & 0xFu;
  if ((first & 0x0120u))
    set_load(load, 2, 4, base, (first & 0x100u) ? offset : 0);
  else if (!(first & 0x80u))
    set_load(load, 1, 4, base, 4 * (int32_t)(second & 0xFFu));
  else if (kind < 2)
    set_index(load, 1u << kind, base, second & 0xFu, kind);
  else
    set_load(load, 1, 1u << (kind & 3u), base, 0);
}

static void load_single(load_t *load, uint32_t first, uint32_t second) {
  const uint32_t base = first & 0xFu, width = 1u << (first >> 5 & 3u);
  const int32_t large = (int32_t)(second & 0xFFFu), small = (int32_t)(second & 0xFFu);
  if (width != 4 && (second >> 12) == 15)
    return; /* a hint: PLD, PLI */
  if (base == 15)
    set_load(load, 1, width, base, (first & 0x80u) ? large : -large);
  else if (first & 0x80u)
    set_load(load, 1, width, base, large);
  else if (second & 0x800u)
    set_load(load, 1, width, base, !(second & 0x400u) ? 0 : (second & 0x200u) ? small : -small);
  else
    set_index(load, width, base, second & 0xFu, second >> 4 & 3u);
}

void utvm_decode_load(load_t *load, uint32_t first, uint32_t second) {
  const uint32_t base = first & 0xFu, listed = (uint32_t)__builtin_popcount(second & 0xFFFFu);
  const int32_t words = 4 * (int32_t)(second & 0xFFu), offset = (first & 0x80u) ? words : -words;
  memset(load, 0, sizeof *load);
  load->index = NO_INDEX;
  if (first < 0xE800u) {
    load_16(load, first);
  } else if (!(first & 0x10u)) {
    return;
  } else if ((first & 0xFE40u) == 0xE800u) {
    set_load(load, listed, 4, base, (first & 0x80u) ? 0 : -4 * (int32_t)listed);
  } else if ((first & 0xFE40u) == 0xE840u) {
    load_double(load, first, second, offset);
  } else if ((first & 0xFE00u) == 0xF800u) {
    load_single(load, first, second);
  } else if ((first & 0xFE00u) == 0xEC00u && (first & 0xFFE0u) != 0xEC40u && (second & 0x0E00u) == 0x0A00u) {
    const uint32_t width = (second & 0x100u) ? 8 : 4;
    if ((first & 0x0120u) == 0x0100u) /* VLDR */
      set_load(load, 1, width, base, offset);
    else
      set_load(load, 4 * (second & 0xFFu) / width, width, base, (first & 0x100u) ? offset : 0);
  }
}
