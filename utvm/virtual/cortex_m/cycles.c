/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of cycles.h. An instruction is decoded once (ARM DDI 0403E, A5 and A6) to what its cost depends on: the
 * kind of operation, the number of registers that a load or store transfers, and the core registers that it reads and
 * writes. Dependences between floating-point registers are not modelled, and neither are contention on buses, unaligned
 * stores and the operands of a division.
 */
#include "cycles.h"

#include <stdlib.h>
#include <string.h>

enum { FLAGS = 0x8000 }; /* in place of PC among registers */
enum {
  UNIT_ALU = 1,
  UNIT_LOAD = 2,
  UNIT_STORE = 4,
  UNIT_MULTIPLY = 8,
  UNIT_SHIFT = 16,
  UNIT_BRANCH = 32,
  UNIT_FLOAT = 64
};

static uint16_t bit(uint32_t number) {
  return number < 15 ? (uint16_t)(1u << number) : 0; /* PC is never waited for */
}

static uint8_t ones(uint32_t value) {
  return (uint8_t)__builtin_popcount(value);
}

static void transfer(decoded_t *it, int load, int many, uint32_t registers, uint32_t addresses) {
  it->operation = (uint8_t)(load ? (many ? LOAD_MANY : LOAD) : many ? STORE_MANY : STORE);
  it->registers = many ? ones(registers) : 0;
  it->addresses = (uint16_t)addresses;
  it->early = it->addresses;
  it->late = (uint16_t)(load || many ? 0 : registers);
  it->reads = (uint16_t)(addresses | (load ? 0 : registers));
  it->writes = (uint16_t)(load ? registers & 0x7FFFu : 0);
}

static void plain(decoded_t *it, uint32_t reads, uint32_t writes) {
  it->operation = PLAIN_OPERATION;
  it->reads = (uint16_t)reads;
  it->writes = (uint16_t)writes;
}

static void time_16(decoded_t *it, uint32_t op) {
  const uint16_t low = bit(op & 7u), middle = bit(op >> 3 & 7u), high = bit(op >> 6 & 7u),
                 upper = bit(op >> 8 & 7u);
  const uint32_t top = op >> 11;
  if (top < 3) {
    plain(it, middle, low | FLAGS);
    it->shifts = 1;
  } else if (top == 3) {
    plain(it, (op & 0x400u) ? middle : middle | high, low | FLAGS);
  } else if (top < 8) {
    plain(it, top == 4 ? 0 : upper, FLAGS | (top == 5 ? 0u : upper));
  } else if ((op & 0xFC00u) == 0x4000u) {
    const uint32_t code = op >> 6 & 0xFu;
    plain(it, low | middle, FLAGS | (code == 8 || code == 10 || code == 11 ? 0u : low));
    it->shifts = (uint8_t)(code == 2 || code == 3 || code == 4 || code == 7);
    if (code == 13)
      it->operation = MULTIPLY;
  } else if ((op & 0xFC00u) == 0x4400u) {
    const uint16_t target = bit((op >> 4 & 8u) | (op & 7u)), source = bit(op >> 3 & 0xFu);
    const uint32_t code = op >> 8 & 3u;
    plain(it, code == 2 || code == 3 ? source : source | target, code == 1 ? FLAGS : code == 3 ? 0u : target);
    if (code == 3)
      it->operation = BRANCH;
  } else if (top == 9) {
    transfer(it, 1, 0, upper, 0);
  } else if ((op >> 12) == 5) {
    transfer(it, (op >> 9 & 7u) > 2, 0, low, middle | high);
    it->slow = (op >> 9 & 7u) != 4;
  } else if ((op >> 13) == 3 || (op >> 12) == 8) {
    transfer(it, (op & 0x800u) != 0, 0, low, middle);
    it->slow = (op >> 12) > 6;
  } else if ((op >> 12) == 9) {
    transfer(it, (op & 0x800u) != 0, 0, upper, bit(13));
  } else if ((op >> 12) == 0xA) {
    plain(it, (op & 0x800u) ? bit(13) : 0, upper);
  } else if ((op & 0xF600u) == 0xB400u) {
    const uint32_t extra = (op & 0x100u) ? ((op & 0x800u) ? 0x8000u : 0x4000u) : 0;
    transfer(it, (op & 0x800u) != 0, 1, (op & 0xFFu) | extra, bit(13));
  } else if ((op & 0xF500u) == 0xB100u) {
    plain(it, low, 0);
    it->operation = BRANCH;
  } else if ((op & 0xFF00u) == 0xBF00u && (op & 0xFu)) {
    plain(it, FLAGS, 0);
    it->operation = CONDITION;
  } else if ((op >> 12) == 0xB) {
    plain(it, middle, (op & 0xFF00u) == 0xB200u || (op & 0xFF00u) == 0xBA00u ? low : 0);
    it->shifts = it->first = 1;
    it->early = middle;
  } else if ((op >> 12) == 0xC) {
    transfer(it, (op & 0x800u) != 0, 1, op & 0xFFu, upper);
  } else {
    plain(it, (op & 0xF000u) == 0xD000u ? FLAGS : 0, 0);
    it->operation = (op & 0xFE00u) == 0xDE00u ? PLAIN_OPERATION : BRANCH; /* UDF and SVC, else B */
  }
}

/* MVE (ARM DDI 0553, C2.4). On cores without it, nothing of this is defined. */
static int decode_vector(decoded_t *it, uint32_t first, uint32_t second) {
  const uint16_t base = bit(first & 0xFu), core = bit(second >> 12);
  const uint32_t kind = second & 0x0F00u;
  const int extended = (second & 0x0E00u) == 0x0E00u;
  if ((first & 0xFFA0u) == 0xEC00u && (second & 0x1FE0u) == 0x0F00u) { /* VMOV of two lanes and two registers */
    const uint16_t moved = (uint16_t)(base | bit(second & 0xFu));
    plain(it, (first & 0x10u) ? 0 : moved, (first & 0x10u) ? moved : 0);
    it->operation = VECTOR_INTEGER;
  } else if ((first & 0xEE00u) == 0xEC00u && extended) {
    plain(it, base, 0);
    it->operation = VECTOR_MEMORY;
  } else if ((first & 0xEF00u) == 0xEF00u) {
    plain(it, 0, 0);
    it->operation = kind > 0x0A00u || (kind == 0x0900u && (second & 0x10u)) ? VECTOR_MULTIPLY : VECTOR_INTEGER;
  } else if ((first & 0xEE00u) == 0xEE00u && extended) {
    const int sums = (first & 0xEF80u) == 0xEE80u; /* VMLADAV and the like, to R12, R14 or even registers */
    plain(it, sums && (second & 0x20u) ? core : 0, sums ? core : 0);
    it->operation = sums || kind == 0x0E00u || first >= 0xFE00u ? VECTOR_MULTIPLY : VECTOR_INTEGER;
    if ((first & 0xFFB1u) == 0xFE31u && (second & 0x00FFu) == 0x4Du)
      it->operation = PLAIN_OPERATION; /* VPST, VPNOT */
  } else {
    return 0;
  }
  return 1;
}

static void decode_float(decoded_t *it, uint32_t first, uint32_t second) {
  const uint16_t base = bit(first & 0xFu), core = bit(second >> 12);
  const uint32_t code = first >> 4 & 0xBu;
  const int is_root = code == 11 && (first & 0xFu) == 1 && (second & 0xC0u) == 0xC0u;
  const int load = (first & 0x10u) != 0, is_double = (second & 0x100u) != 0;
  plain(it, 0, 0);
  it->operation = FLOAT_OPERATION;
  if ((first & 0xFFE0u) == 0xEC40u) {
    it->operation = FLOAT_PAIR;
    it->reads = load ? 0 : base | core;
    it->writes = load ? base | core : 0;
  } else if ((first & 0xFE00u) == 0xEC00u) {
    const int many = (first & 0x0120u) != 0x0100u;
    transfer(it, load, many || is_double, 0, base);
    it->registers = many ? (uint8_t)second : is_double ? 2 : 0;
  } else if ((first & 0xFF00u) == 0xEE00u && (second & 0x10u)) {
    it->reads = load ? 0 : core;
    it->writes = load ? core : 0;
  } else if ((first & 0xFF00u) == 0xEE00u && (code < 2 || code == 9 || code == 10)) {
    it->operation = FLOAT_ACCUMULATE;
  } else if ((first & 0xFF00u) == 0xEE00u && (code == 8 || is_root)) {
    it->operation = FLOAT_DIVIDE;
  }
}

static void time_32(decoded_t *it, uint32_t first, uint32_t second) {
  const uint16_t base = bit(first & 0xFu), high = bit(second >> 12), target = bit(second >> 8 & 0xFu);
  const uint16_t last = bit(second & 0xFu);
  const int load = (first & 0x10u) != 0;
  if (decode_vector(it, first, second)) {
    return;
  } else if ((first & 0xFFCFu) == 0xF00Fu && (second & 0xF001u) == 0xC001u) {
    plain(it, bit(14), bit(14));
    it->operation = LOOP_END;
  } else if ((first & 0xEC00u) == 0xEC00u) {
    decode_float(it, first, second);
  } else if ((first & 0xFE40u) == 0xE800u) {
    transfer(it, load, 1, second, base);
  } else if ((first & 0xFFF0u) == 0xE8D0u && (second & 0xFFE0u) == 0xF000u) {
    plain(it, base | last, 0);
    it->operation = TABLE_BRANCH;
    it->addresses = it->reads;
  } else if ((first & 0xFE40u) == 0xE840u) {
    const int exclusive = (first & 0xFFE0u) == 0xE840u || (first & 0xFFE0u) == 0xE8C0u;
    transfer(it, load, !exclusive, exclusive ? high : high | target, base);
    it->registers = exclusive ? 0 : 2;
  } else if ((first & 0xFE00u) == 0xEA00u) {
    plain(it, base | last, load ? target | FLAGS : target); /* the bit is S here */
    it->shifts = (second & 0x70C0u) != 0;
    it->first = (first & 0xFFE0u) == 0xEAC0u; /* PKH */
    it->early = (first & 0xFu) == 15 || !it->shifts ? 0 : last;
  } else if ((first & 0xF800u) == 0xF000u && !(second & 0x8000u)) {
    const int is_wide_move = (first & 0xFB70u) == 0xF240u;
    const int sets_flags = load && !(first & 0x200u);
    plain(it, is_wide_move ? ((first & 0x80u) ? target : 0) : base, sets_flags ? target | FLAGS : target);
    it->first = (first & 0xFB00u) == 0xF300u; /* bit fields and saturation */
    it->shifts = it->first;
    it->slow = it->first && !(first & 0x40u);
    if ((first & 0xFBF0u) == 0xF360u)
      it->reads |= target; /* a bit field is inserted */
    else
      it->early = it->first ? base : 0;
  } else if ((first & 0xF800u) == 0xF000u) {
    const int is_conditional = !(second & 0x5000u) && (first & 0x0380u) != 0x0380u;
    plain(it, is_conditional ? FLAGS : 0, 0);
    if ((second & 0x5000u) || is_conditional)
      it->operation = BRANCH;
  } else if ((first & 0xFE00u) == 0xF800u) {
    const int by_register = !(first & 0x80u) && !(second & 0xFC0u) && (first & 0xFu) != 15;
    transfer(it, load, 0, high, by_register ? base | last : base);
    it->slow = !(first & 0x40u);
  } else if ((first & 0xFF00u) == 0xFA00u) {
    plain(it, base | last, target);
    it->first = (first & 0x80u) || (second & 0x80u); /* not a shift by a register */
    it->shifts = !(first & 0x80u);
    it->early = (first & 0xF0u) == 0x90u || (it->shifts && it->first) ? last : 0;
  } else if ((first & 0xFF80u) == 0xFB00u) {
    plain(it, base | last | high, target);
    it->operation = high ? MULTIPLY_ADD : MULTIPLY;
    it->late = high;
  } else {
    plain(it, base | last, high | target);
    it->operation = (first & 0xFFD0u) == 0xFB90u ? DIVIDE_OPERATION : MULTIPLY_LONG;
    if (first & 0x40u) { /* else it has no sum to add to */
      it->late = high | target;
      it->reads |= it->late;
    }
  }
}

static decoded_t nothing; /* before the first instruction, and a skipped one */

static uint32_t unit_of(const decoded_t *it) {
  switch (it->operation) {
  case LOAD:
    return UNIT_LOAD;
  case STORE:
    return UNIT_STORE;
  case MULTIPLY:
  case MULTIPLY_ADD:
  case MULTIPLY_LONG:
    return UNIT_MULTIPLY;
  case BRANCH:
  case TABLE_BRANCH:
    return UNIT_BRANCH;
  case FLOAT_OPERATION:
  case FLOAT_ACCUMULATE:
  case FLOAT_DIVIDE:
  case FLOAT_PAIR:
    return UNIT_FLOAT;
  default:
    return it->shifts ? UNIT_SHIFT : UNIT_ALU;
  }
}

/* The part that holds code, or NO_PART if it is not cached or has two. */
static uint32_t part_of(const cache_t *cache, uint32_t address, uint32_t size) {
  const uint32_t part = address >> cache->part_bits;
  return address - cache->first < cache->bytes && (address + size - 1) >> cache->part_bits == part ? part
                                                                                                   : NO_PART;
}

/* Whether a store adds an index to its base. */
static int is_indexed(uint32_t first, uint32_t second) {
  return (first >> 12) == 5 || ((first & 0xFF80u) == 0xF800u && !(second & 0xFC0u));
}

/* Whether the opcode holds the target of a branch. */
static int is_direct(const decoded_t *it, uint32_t first) {
  return it->operation == BRANCH && (first & 0xFC00u) != 0x4400u;
}

void utvm_decode(cycles_t *cycles, uint32_t address, uint16_t first, uint16_t second) {
  decoded_t **const page = &cycles->decoded[address / MEGABYTE];
  decoded_t *it;
  if (!*page)
    *page = calloc(MEGABYTE / 2, sizeof **page);
  if (!*page)
    abort();
  if (!cycles->previous)
    cycles->previous = &nothing;
  it = utvm_decoded_at(cycles, address);
  memset(it, 0, sizeof *it);
  it->words[0] = first;
  it->words[1] = second;
  utvm_decode_load(&it->load, first, second);
  it->size = first >= 0xE800u ? 4 : 2;
  if (it->size == 4) {
    time_32(it, first, second);
  } else {
    time_16(it, first);
    it->second = it->operation == BRANCH || it->operation == CONDITION || (first & 0xFC00u) == 0x1C00u ||
                 (first & 0xF800u) == 0x2000u || (first & 0xF000u) == 0x3000u || (first & 0xFF00u) == 0x4600u ||
                 (first & 0xFF00u) == 0xB200u;
  }
  it->part = part_of(&cycles->code, address, it->size);
  it->unit = (uint8_t)unit_of(it);
  it->overlaps = it->operation == LOAD || (it->operation == STORE && is_indexed(first, second));
  it->computed = it->operation >= LOAD && it->operation <= STORE_MANY ? 0 : it->writes;
  it->refill =
      (uint8_t)(it->operation == LOOP_END ? 0 : cycles->refill + (is_direct(it, first) ? 0 : cycles->indirect));
  it->delay = (uint8_t)(cycles->latencies[it->operation] - 1 + (it->slow ? cycles->slow : 0));
  it->alone = it->operation == LOAD_MANY || it->operation == STORE_MANY || it->operation == DIVIDE_OPERATION;
  it->cost = (uint8_t)(cycles->costs[it->operation] + it->registers);
  if (it->operation == STORE && it->overlaps)
    it->cost += (uint8_t)cycles->pipelined;
  if (it->operation == BRANCH && it->size == 4)
    it->cost += (uint8_t)cycles->wide_branch;
  if (cycles->pairs == 1)
    it->cost = (uint8_t)(cycles->costs[it->operation] - 1 + (it->registers ? (it->registers - 1u) / 2 : 0));
}

static void wait_for(cycles_t *cycles, enum wait what, uint32_t count) {
  cycles->cycles += count;
  cycles->waited[what] += count;
}

static __attribute__((noinline)) void fill(cycles_t *cycles, cache_t *cache, uint32_t part) {
  const uint32_t line = part >> cache->line_bits;
  const uint8_t flag = (uint8_t)(1u << (part & ((1u << cache->line_bits) - 1)));
  uint32_t *const lines = &cache->lines[(line & (cache->sets - 1)) * cache->ways];
  uint8_t *const parts = &cache->parts[(line & (cache->sets - 1)) * cache->ways];
  uint32_t way = 0;
  uint8_t filled;
  while (way < cache->ways - 1 && lines[way] != line + 1)
    way++;
  filled = lines[way] == line + 1 ? parts[way] : 0;
  if (!(filled & flag))
    wait_for(cycles, WAIT_FLASH, cache->wait);
  if (way) {
    memmove(lines + 1, lines, way * sizeof *lines);
    memmove(parts + 1, parts, way * sizeof *parts);
  }
  lines[0] = line + 1;
  parts[0] = filled | flag;
  cache->last = part;
}

static inline void read_cache(cycles_t *cycles, cache_t *cache, uint32_t address, uint32_t size) {
  uint32_t part, last;
  if (address - cache->first >= cache->bytes)
    return;
  last = (address + size - 1) >> cache->part_bits;
  for (part = address >> cache->part_bits; part <= last; part++)
    if (part != cache->last)
      fill(cycles, cache, part);
}

/*
 * Cycles more of an instruction after another (ARM DDI 0439, 3.3.2). Addresses are not forwarded from a computation, and
 * nothing is pipelined after a store, so that a load waits for its data.
 */
static uint32_t delay_after(const decoded_t *it, const decoded_t *before) {
  if (before->operation == LOAD)
    return it->overlaps && !(before->writes & it->addresses) ? 0u - 1 : 0;
  if (before->operation == STORE)
    return it->operation == LOAD || it->operation == LOAD_MANY;
  return (before->computed & it->addresses) != 0;
}

/* One instruction after the other. */
static void issue(cycles_t *cycles, const decoded_t *it, int sequential) {
  const decoded_t *const before = cycles->previous;
  uint32_t cost = it->cost;
  if (it->operation >= VECTOR_MEMORY && it->operation <= VECTOR_MULTIPLY) {
    uint64_t *const ready = &cycles->ready[it->operation - VECTOR_MEMORY];
    if (*ready > cycles->cycles)
      cycles->cycles = *ready;
    *ready = cycles->cycles + 2;
  }
  if (it->operation == CONDITION && !(sequential && before->size == 2))
    cost = 1; /* it folds into 16 bits before it, if at all */
  if (sequential && cycles->pipelined)
    cost += delay_after(it, before);
  if (it->operation == LOAD || it->operation == LOAD_MANY)
    cycles->waited[WAIT_LOAD] += cost - 1;
  if (before->writes & it->reads & ~it->late)
    wait_for(cycles, WAIT_LOAD, before->delay);
  cycles->slot = cycles->pairs && !cycles->slot && cost && sequential && it->size + before->size == 4 &&
                 (it->second || before->second) && !(before->writes & it->reads);
  cycles->cycles += cost - cycles->slot;
}

static void end_group(cycles_t *cycles) {
  cycles->cycles++;
  cycles->slot = cycles->units = 0;
}

/*
 * In order, two in a cycle where operands are ready and no unit is needed twice but those for plain operations and
 * loads. Operands are needed in one of three stages (LLVM's ARMScheduleM7.td).
 */
static void issue_pair(cycles_t *cycles, const decoded_t *it, int sequential) {
  const uint32_t unit = it->unit;
  uint64_t need = cycles->cycles;
  uint32_t left, cause = 0;
  if (cycles->slot && (it->alone || it->first || !sequential || (unit > UNIT_LOAD && (cycles->units & unit))))
    end_group(cycles);
  for (left = it->reads & cycles->pending; left; left &= left - 1) {
    const uint32_t flag = left & (0u - left);
    const uint64_t at = cycles->ready[__builtin_ctz(left)];
    const uint64_t ready = at + ((it->early & flag) != 0) - ((it->late & flag) != 0);
    if (at < cycles->cycles)
      cycles->pending &= ~flag;
    if (ready > need)
      need = ready, cause = flag;
  }
  if (need > cycles->cycles) {
    if (cause & cycles->loaded) /* a group that ends early is no wait */
      cycles->waited[WAIT_LOAD] += need - cycles->cycles - (cycles->slot > 0);
    cycles->cycles = need;
    cycles->slot = cycles->units = 0;
  }
  cycles->pair_of_loads = cycles->units & unit & UNIT_LOAD;
  cycles->units |= unit;
  cycles->slot++;
  cycles->cycles += it->cost;
  for (left = it->writes; left; left &= left - 1)
    cycles->ready[__builtin_ctz(left)] = cycles->cycles + 1 + it->delay;
  cycles->pending |= it->writes;
  cycles->loaded = (cycles->loaded & ~(uint32_t)it->writes) | (unit == UNIT_LOAD ? it->writes : 0u);
  if (cycles->slot == 2 || it->alone)
    end_group(cycles);
}

/* Two bits a branch; at first, none is taken. */
static void predict(cycles_t *cycles, decoded_t *branch, int sequential) {
  if ((branch->taken >= 2) == sequential)
    wait_for(cycles, WAIT_BRANCH, cycles->mispredicted);
  if (sequential)
    branch->taken -= branch->taken > 0;
  else
    branch->taken += branch->taken < 3;
}

/* After a branch, which may be unknown. A loop end remembers its loop. */
static uint32_t refill(const cycles_t *cycles, const decoded_t *it, uint32_t address) {
  const decoded_t *const branch = cycles->previous;
  const uint32_t count = branch->operation ? branch->refill : cycles->refill;
  return count + (count && it->size == 4 && (address & 2u) ? cycles->split : 0);
}

void utvm_time(cycles_t *cycles, decoded_t *it, uint32_t address) {
  const int sequential = address == cycles->next;
  if (!sequential)
    wait_for(cycles, WAIT_BRANCH, refill(cycles, it, address));
  if (cycles->previous->operation == BRANCH && cycles->mispredicted)
    predict(cycles, cycles->previous, sequential);
  if (it->part != cycles->code.last || it->part == NO_PART)
    read_cache(cycles, &cycles->code, address, it->size);
  if (cycles->pairs == 1)
    issue_pair(cycles, it, sequential);
  else
    issue(cycles, it, sequential);
  cycles->previous = it;
  cycles->next = address + it->size;
}

void utvm_time_skipped(cycles_t *cycles, uint32_t address, uint32_t size) {
  read_cache(cycles, &cycles->code, address, size);
  if (cycles->pairs != 1 || cycles->slot++)
    end_group(cycles);
  cycles->previous = &nothing;
  cycles->next = address + size;
}

void utvm_forget_decoded(cycles_t *cycles, uint32_t address, uint16_t first, uint16_t second) {
  decoded_t *const it = utvm_decoded_at(cycles, address);
  if (it && (it->words[0] != first || it->words[1] != second))
    it->operation = UNDECODED;
}

void utvm_release_decoded(cycles_t *cycles) {
  uint32_t i;
  for (i = 0; i < CODE_MEGABYTES; i++)
    free(cycles->decoded[i]);
  cycles->previous = &nothing;
  memset(cycles->decoded, 0, sizeof cycles->decoded);
}

/*
 * A bus of a word splits what is not aligned into aligned bytes and halfwords; a wider one takes one more access where
 * it crosses its width.
 */
void utvm_time_read(cycles_t *cycles, uint32_t address, uint32_t size) {
  const uint32_t bank = address & 4u;
  if (cycles->pair_of_loads && bank == cycles->bank)
    wait_for(cycles, WAIT_LOAD, 1);
  cycles->pair_of_loads = 0;
  cycles->bank = bank;
  if (address & (size - 1)) {
    if (cycles->bus > 4)
      wait_for(cycles, WAIT_LOAD, (address & (cycles->bus - 1)) + size > cycles->bus);
    else
      wait_for(cycles, WAIT_LOAD, (address & 1u) ? size / 2 : 1);
  }
  if (address - cycles->data.first < cycles->data.bytes)
    cycles->flash_bytes += size;
  read_cache(cycles, cycles->unified ? &cycles->code : &cycles->data, address, size);
}
