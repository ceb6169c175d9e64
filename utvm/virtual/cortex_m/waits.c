/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the wait states of a flash: there is a cache for instructions and one for data, and each miss takes the
 * same number of cycles. Pipeline, bus contention and prefetch are not modelled.
 *
 * Unicorn calls utvm_on_fetch() before each instruction in flash and utvm_on_flash_read() for data there.
 */
#include <stdint.h>

enum { LINES = 512 };

typedef struct {
  uint32_t sets, ways;
  uint32_t last;         /* line used last, plus one */
  uint32_t lines[LINES]; /* plus one; a set is contiguous, most recently used first */
} cache_t;

typedef struct {
  uint64_t waited; /* cycles since power-on */
  uint32_t cycles, line_bytes;
  cache_t instructions, data;
} waits_t;

static void look_up(waits_t *waits, cache_t *cache, uint32_t line) {
  uint32_t *const set = &cache->lines[line % cache->sets * cache->ways];
  uint32_t way = 0;
  cache->last = line + 1;
  while (way < cache->ways - 1 && set[way] != line + 1)
    way++;
  if (set[way] != line + 1)
    waits->waited += waits->cycles;
  for (; way; way--)
    set[way] = set[way - 1];
  set[0] = line + 1;
}

static void access_lines(waits_t *waits, cache_t *cache, uint32_t address, uint32_t size) {
  const uint32_t last = (address + size - 1) / waits->line_bytes;
  for (uint32_t line = address / waits->line_bytes; line <= last; line++)
    if (cache->last != line + 1)
      look_up(waits, cache, line);
}

void utvm_on_fetch(void *engine, uint64_t address, uint32_t size, void *data) {
  waits_t *const waits = data;
  (void)engine;
  access_lines(waits, &waits->instructions, (uint32_t)address, size);
}

void utvm_on_flash_read(void *engine, int32_t type, uint64_t address, int32_t size, int64_t value, void *data) {
  waits_t *const waits = data;
  (void)engine;
  (void)type;
  (void)value;
  access_lines(waits, &waits->data, (uint32_t)address, (uint32_t)size);
}
