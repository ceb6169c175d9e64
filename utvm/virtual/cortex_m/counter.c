/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Called before every instruction of a virtual core: counts it, and stops the core where requested.
 *
 * Unicorn calls utvm_before_instruction() through its code hook. It is C because Python
 * is a hundred times slower. Unicorn's functions are passed as pointers, so nothing is linked.
 *
 * Unicorn skips instructions of an IT block whose condition fails without calling the hook. They are counted at the
 * next instruction. Unicorn cannot be stopped inside an IT block either: a stop requested there happens after the
 * block, a breakpoint there stops before the block, and a fault there is undone at the end of the block.
 *
 * Instructions that need care (sleep, division, floating point, accesses that must be aligned, changes of the
 * interrupt masks) are found by decoding each address once. utvm_on_translation() forgets what was decoded when
 * Unicorn translates the code anew, as it does after the code was changed.
 */
#include "core.h"
#include "opcodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum stop {
  STOP_NONE,
  STOP_REQUEST,
  STOP_BREAKPOINT,
  STOP_SLEEP,
  STOP_NO_COPROCESSOR,
  STOP_DIVIDE,
  STOP_UNALIGNED,
  STOP_READ_CONTROL,
  STOP_SPIN,
  STOP_FLOAT,
  STOP_ACCESS,
  STOP_EXECUTE,
  STOP_EXCLUSIVE,
};

static void stop(void *engine, core_t *core, enum stop reason) {
  core->reason = reason;
  core->emulation_stop(engine);
}

static uint32_t read_register(void *engine, core_t *core, uint32_t number) {
  uint32_t value = 0;
  int32_t id = REGISTER_R0 + (int32_t)number;
  if (number == 13)
    id = REGISTER_SP;
  if (number == 14)
    id = REGISTER_LR;
  core->register_read(engine, id, &value);
  return value;
}

/* Copy bytes out of memory; zeros where there is none. */
static void read_memory(const core_t *core, uint32_t address, void *bytes, uint32_t size) {
  memset(bytes, 0, size);
  for (uint32_t i = 0; i < core->memory_count; i++) {
    const memory_t *const memory = &core->memories[i];
    if (address - memory->start < memory->size && size <= memory->size - (address - memory->start))
      memcpy(bytes, memory->bytes + (address - memory->start), size);
  }
}

/* Of code: most often in the memory of the code before. */
static uint16_t halfword(core_t *core, uint32_t address) {
  const memory_t *const memory = &core->memories[core->code_memory];
  uint16_t value = 0;
  if (address - memory->start < memory->size - 1) {
    memcpy(&value, memory->bytes + (address - memory->start), sizeof value);
    return value;
  }
  for (uint32_t i = 0; i < core->memory_count; i++)
    if (address - core->memories[i].start < core->memories[i].size)
      core->code_memory = i;
  read_memory(core, address, &value, sizeof value);
  return value;
}

static uint32_t length(uint16_t first) {
  return first >= 0xE800u ? 4 : 2;
}

static uint8_t *kind_of(core_t *core, uint32_t address) {
  uint8_t **const page = &core->kinds[address >> MEGABYTE_BITS];
  if (!*page)
    *page = calloc(1u << (MEGABYTE_BITS - 1), 1);
  if (!*page)
    abort();
  return &(*page)[(address & 0xFFFFFu) >> 1];
}

static int is_breakpoint(const core_t *core, uint32_t address) {
  for (uint32_t i = 0; i < core->breakpoint_count; i++)
    if (core->breakpoints[i] == address)
      return 1;
  return 0;
}

/* An instruction with a breakpoint stays unknown, so that it is examined each time. */
static uint8_t decode(core_t *core, uint32_t address, uint32_t size) {
  const uint8_t kind = utvm_kind(halfword(core, address), size == 4 ? halfword(core, address + 2) : 0);
  *kind_of(core, address) = is_breakpoint(core, address) ? UNKNOWN : kind;
  return kind;
}

static uint32_t conditional_count(uint32_t mask) {
  return (mask & 1u) ? 4 : (mask & 2u) ? 3 : (mask & 4u) ? 2 : (mask & 8u) ? 1 : 0;
}

/* Count the skipped instructions of the IT block before this instruction. */
static void pass_conditional(core_t *core, uint32_t address, uint32_t size) {
  while (core->conditional_left && core->conditional_address < address) {
    const uint32_t size_skipped = length(halfword(core, core->conditional_address));
    if (core->cycles)
      utvm_time_skipped(core->cycles, core->conditional_address, size_skipped);
    core->conditional_address += size_skipped;
    core->conditional_left--;
    core->conditional_index++;
    core->count++;
  }
  core->inside = core->conditional_left && core->conditional_address == address;
  if (core->inside) {
    core->conditional_address += size;
    core->conditional_left--;
    core->conditional_index++;
  }
}

/* ITSTATE of the instruction begun last (ARM DDI 0403E, A7.3.3). */
static uint32_t conditional_state(core_t *core) {
  uint32_t state = core->conditional_state;
  if (!core->inside)
    return 0;
  if (core->conditional_block != 1)
    state = halfword(core, core->conditional_block) & 0xFFu;
  for (uint32_t i = 1; i < core->conditional_index; i++)
    state = (state & 7u) ? (state & 0xE0u) | (state << 1 & 0x1Fu) : 0;
  return state;
}

static int has_breakpoint(core_t *core, uint32_t block, uint32_t instructions) {
  uint32_t address = block + 2, near = 0;
  for (uint32_t i = 0; i < core->breakpoint_count; i++)
    near |= core->breakpoints[i] - address < 4 * instructions;
  if (!near)
    return 0;
  for (uint32_t i = 0; i < instructions; i++) {
    if (is_breakpoint(core, address))
      return 1;
    address += length(halfword(core, address));
  }
  return 0;
}

/* Whether the code that runs may use the floating-point unit, and at once (ARM DDI 0403E, B3.2.20, B1.5.7). */
static enum stop examine_float(void *engine, core_t *core) {
  uint32_t control = 0, status = 0;
  if (core->float_enabled)
    return STOP_NONE;
  core->register_read(engine, REGISTER_CONTROL, &control);
  core->register_read(engine, REGISTER_XPSR, &status);
  if (!core->float_access || (core->float_access != 3 && (control & 1u) && !(status & 0x1FFu)))
    return STOP_NO_COPROCESSOR;
  return core->float_lazy & FLOAT_PENDING || (core->float_lazy && !(control & 4u)) ? STOP_FLOAT : STOP_NONE;
}

/* An exception clears the local monitor (ARM DDI 0403E, B1.5.6 and B1.5.8), which Unicorn does not. */
static enum stop examine_exclusive(void *engine, core_t *core, uint32_t address, uint32_t base) {
  const uint16_t first = halfword(core, address), second = halfword(core, address + 2);
  const uint32_t mask = (first & 0xFF80u) == 0xE800u ? 3 : second >> 4 & 1u;
  if (read_register(engine, core, base) & mask)
    return STOP_UNALIGNED;
  if (!(first & 0x10u) && !core->exclusive && !core->inside)
    return STOP_EXCLUSIVE;
  core->exclusive = first >> 4 & 1u;
  return STOP_NONE;
}

/* Whether this is the first unprivileged access, so that the protection of memory must be looked at again. */
static int begins_unprivileged(core_t *core) {
  const int first = !(core->mpu.used & MPU_UNPRIVILEGED);
  core->mpu.used |= MPU_UNPRIVILEGED;
  return first && core->mpu.used & MPU_ENABLED_ONCE;
}

/* Return the reason to stop before a special instruction, or STOP_NONE. */
static enum stop examine(void *engine, core_t *core, uint32_t address, uint32_t size, uint8_t kind) {
  if (kind <= UNKNOWN)
    kind = decode(core, address, size);
  if (kind == FLOAT || (kind & 0xF0u) == FLOAT_MEMORY) {
    const enum stop reason = examine_float(engine, core);
    if (reason != STOP_NONE)
      return reason;
  }
  switch (kind & 0xF0u) {
  case SLEEP: /* inside an IT block it ends at once, as the architecture permits */
    return core->pass == address || core->inside ? STOP_NONE : STOP_SLEEP;
  case SPIN:
    return core->pass == address || core->inside ? STOP_NONE : STOP_SPIN;
  case SEND_EVENT:
    core->event = 1;
    return STOP_NONE;
  case READ_CONTROL: /* not worth an undo inside an IT block */
    return core->inside ? STOP_NONE : STOP_READ_CONTROL;
  case IT_BLOCK:
    core->conditional = 1;
    core->conditional_left = conditional_count(kind & 0xFu);
    core->conditional_address = address + 2;
    core->conditional_index = 0;
    core->conditional_block = address;
    if (core->pass != address && has_breakpoint(core, address, core->conditional_left)) {
      core->pass = address;
      return STOP_BREAKPOINT;
    }
    return STOP_NONE;
  case SET_LIMIT: /* Unicorn has no way to read it; exception entry needs it */
    core->limits[halfword(core, address + 2) & 1u] = read_register(engine, core, kind & 0xFu) & ~7u;
    return STOP_NONE;
  case EXCLUSIVE:
    return examine_exclusive(engine, core, address, kind & 0xFu);
  case UNPRIVILEGED:
    core->unprivileged = core->count + 1;
    return begins_unprivileged(core) ? STOP_REQUEST : STOP_NONE;
  case MASKS:
    core->mpu.mode = MODE_UNREAD;
    if (size == 4 && (halfword(core, address + 2) & 0xFFu) == 20 && /* MSR CONTROL */
        (read_register(engine, core, halfword(core, address) & 0xFu) & 1u) && begins_unprivileged(core))
      core->stop = 1;
    if (core->masks_matter)
      core->stop = 1;
    return STOP_NONE;
  case DIVIDE:
    return core->trap_division && !read_register(engine, core, kind & 0xFu) ? STOP_DIVIDE : STOP_NONE;
  case FLOAT_MEMORY:
  case WORD_ALIGNED:
    return read_register(engine, core, kind & 0xFu) & 3u ? STOP_UNALIGNED : STOP_NONE;
  case HALF_ALIGNED:
    return read_register(engine, core, kind & 0xFu) & 1u ? STOP_UNALIGNED : STOP_NONE;
  default:
    return STOP_NONE;
  }
}

/* Save the registers from before the last instruction, which a fault undoes. The first fault counts. */
void utvm_undo(void *engine, core_t *core, uint32_t reason) {
  uint32_t state;
  if (core->undo)
    return;
  core->undo = 1;
  core->undo_reason = reason;
  core->undo_count = core->count;
  core->undo_address = core->begun;
  core->stop = 1;
  for (uint32_t i = 0; i < 15; i++)
    core->saved[i] = read_register(engine, core, i);
  core->register_read(engine, REGISTER_XPSR, &core->saved[15]);
  state = conditional_state(core);
  core->saved[15] = (core->saved[15] & ~0x0600FC00u) | (state & 0xFCu) << 8 | (state & 3u) << 25;
  for (int32_t i = 0; i < 32; i++)
    core->register_read(engine, REGISTER_S0 + i, &core->saved_float[i]);
  core->register_read(engine, REGISTER_FPSCR, &core->saved_float[32]);
}

/* Pass the data that an instruction reads to the model. Its registers have their values from before it. */
static void time_loads(void *engine, core_t *core, uint32_t address, const load_t *load) {
  uint32_t from = load->base == 15 ? address + 4 : read_register(engine, core, load->base);
  if (load->index != NO_INDEX)
    from += read_register(engine, core, load->index) << load->shift;
  else if (load->base == 15)
    from &= ~3u;
  from += (uint32_t)load->offset;
  for (uint32_t i = 0; i < load->count; i++)
    utvm_time_read(core->cycles, from + i * load->width, load->width);
}

static __attribute__((noinline, flatten)) void begin_timed(void *engine, core_t *core, uint32_t address) {
  decoded_t *it = utvm_decoded_at(core->cycles, address);
  if (!it || it->operation == UNDECODED) {
    utvm_decode(core->cycles, address, halfword(core, address), halfword(core, address + 2));
    it = utvm_decoded_at(core->cycles, address);
  }
  utvm_time(core->cycles, it, address);
  if (it->load.count)
    time_loads(engine, core, address, &it->load);
}

static inline __attribute__((always_inline)) void begin(void *engine, core_t *core, uint32_t address) {
  core->count++;
  core->begun = address;
  if (core->cycles)
    begin_timed(engine, core, address);
}

/* Whether an instruction of this kind needs no check. */
static int is_plain(const core_t *core, uint8_t kind) {
  return (uint8_t)(kind - PLAIN) <= core->float_enabled;
}

static int is_undisturbed(const core_t *core) {
  return !(core->stop | core->checked) && core->count < core->deadline;
}

static uint8_t known_kind(const core_t *core, uint32_t address) {
  const uint8_t *const page = core->kinds[address >> MEGABYTE_BITS];
  return page ? page[(address & 0xFFFFFu) >> 1] : UNTOUCHED;
}

/* An instruction that needs checks, after an IT block. */
static void before_special(void *engine, core_t *core, uint32_t address, uint32_t size, uint8_t kind) {
  enum stop reason = STOP_NONE;
  if (core->count >= core->deadline || core->stop) {
    reason = STOP_REQUEST;
  } else if (core->breakpoint_count && is_breakpoint(core, address)) {
    reason = STOP_BREAKPOINT;
  } else if (!utvm_allows(engine, core, address, size, RIGHT_EXECUTE)) {
    reason = STOP_EXECUTE;
  } else if (!is_plain(core, kind)) {
    reason = examine(engine, core, address, size, kind);
    if (reason == STOP_NONE)
      core->pass = 1;
  }
  if (reason != STOP_NONE) {
    stop(engine, core, reason);
  } else {
    begin(engine, core, address);
  }
}

/* An instruction that needs checks, or is in an IT block. */
static __attribute__((noinline)) void before_unusual(void *engine, uint64_t address_64, uint32_t size,
                                                     core_t *core) {
  const uint32_t address = (uint32_t)address_64;
  const uint8_t kind = known_kind(core, address);
  const uint8_t high = kind & 0xF0u;
  if (!core->conditional && is_undisturbed(core) &&
      (high == WORD_ALIGNED || (high == FLOAT_MEMORY && core->float_enabled)) &&
      !(read_register(engine, core, kind & 0xFu) & 3u)) {
    core->pass = 1;
    begin(engine, core, address);
    return;
  }
  if (core->conditional) {
    pass_conditional(core, address, size);
    if (core->inside) {
      enum stop reason = is_plain(core, kind) ? STOP_NONE : examine(engine, core, address, size, kind);
      if (!utvm_allows(engine, core, address, size, RIGHT_EXECUTE))
        reason = STOP_EXECUTE;
      begin(engine, core, address);
      if (reason != STOP_NONE)
        utvm_undo(engine, core, reason);
      return;
    }
    core->conditional = 0;
  }
  before_special(engine, core, address, size, kind);
}

void utvm_before_instruction(void *engine, uint64_t address_64, uint32_t size, void *data) {
  core_t *const core = data;
  const uint32_t address = (uint32_t)address_64;
  if (is_plain(core, known_kind(core, address)) && !core->conditional && is_undisturbed(core))
    begin(engine, core, address);
  else
    before_unusual(engine, address_64, size, core);
}

typedef struct {
  uint64_t address;
  uint16_t instructions, bytes;
} translation_t;

void utvm_on_translation(void *engine, const translation_t *now, const translation_t *before, void *data) {
  core_t *const core = data;
  (void)engine;
  (void)before;
  for (uint32_t offset = 0; offset < now->bytes; offset += 2) {
    const uint32_t address = (uint32_t)now->address + offset;
    *kind_of(core, address) = UNKNOWN;
    if (core->cycles)
      utvm_forget_decoded(core->cycles, address, halfword(core, address), halfword(core, address + 2));
  }
}

/* Forget decoded instructions in changed memory. Returns whether any of it was translated. */
int32_t utvm_forget(core_t *core, uint32_t start, uint32_t bytes) {
  int32_t known = 0;
  for (uint32_t offset = 0; offset < bytes; offset += 2) {
    const uint32_t address = start + offset;
    uint8_t *const page = core->kinds[address >> MEGABYTE_BITS];
    if (page && page[(address & 0xFFFFFu) >> 1] != UNTOUCHED) {
      page[(address & 0xFFFFFu) >> 1] = UNTOUCHED;
      known = 1;
    }
  }
  return known;
}

/*
 * Unicorn restores ITSTATE of the instruction before it calls a hook for data, and leaves it: what is executed first
 * after the IT block would be conditional.
 */
static void drop_condition(void *engine, core_t *core) {
  uint32_t status = 0;
  if (!core->inside)
    return;
  core->register_read(engine, REGISTER_XPSR, &status);
  status &= ~0x0600FC00u;
  core->register_write(engine, REGISTER_XPSR, &status);
}

/* Called before data is read or written, only while a data check is on. */
void utvm_on_data(void *engine, int32_t type, uint64_t address_64, int32_t size, int64_t value, void *data) {
  core_t *const core = data;
  const uint32_t first = (uint32_t)address_64;
  const uint32_t last = first + (uint32_t)size - 1;
  const uint32_t access = type == UNICORN_WRITE ? WATCH_WRITE : WATCH_READ;
  (void)value;
  drop_condition(engine, core);
  for (uint32_t i = 0; i < WATCHPOINTS; i++) {
    const watchpoint_t *const watched = &core->watchpoints[i];
    if ((watched->access & access) && first <= watched->last && last >= watched->first) {
      core->watch_hits |= 1u << i;
      core->stop = 1;
    }
  }
  if (core->trap_unaligned && (first & ((uint32_t)size - 1u)))
    utvm_undo(engine, core, STOP_UNALIGNED);
  else if (!core->undo && !utvm_allows(engine, core, first, (uint32_t)size, access))
    utvm_undo(engine, core, STOP_ACCESS);
  if (core->undo && access == WATCH_WRITE && core->store_count < STORES) {
    store_t *const store = &core->stores[core->store_count++];
    store->address = first;
    store->size = (uint32_t)size;
    read_memory(core, first, store->bytes, (uint32_t)size);
  }
}

void utvm_set_breakpoints(core_t *core, uint32_t count, const uint32_t *addresses) {
  for (uint32_t i = 0; i < core->breakpoint_count + count; i++) {
    const uint32_t address = i < count ? addresses[i] : core->breakpoints[i - count];
    if (known_kind(core, address) != UNTOUCHED)
      *kind_of(core, address) = UNKNOWN;
  }
  core->breakpoint_count = count;
  memcpy(core->breakpoints, addresses, count * sizeof *addresses);
}

/* Start counting at an address, in the middle of an IT block if the program status register says so. */
void utvm_resume(void *engine, core_t *core, uint32_t address) {
  uint32_t status = 0;
  core->register_read(engine, REGISTER_XPSR, &status);
  /* ITSTATE[7:2] are the bits 15:10 of EPSR, ITSTATE[1:0] the bits 26:25. */
  core->conditional_state = (status >> 8 & 0xFCu) | (status >> 25 & 3u);
  core->conditional_left = conditional_count(core->conditional_state & 0xFu);
  core->conditional = core->conditional_left != 0;
  core->inside = 0;
  core->conditional_address = address;
  core->conditional_index = 0;
  core->conditional_block = 1;
  core->reason = STOP_NONE;
  core->undo = 0;
  core->store_count = 0;
  core->mpu.mode = MODE_UNREAD;
}

void utvm_release(core_t *core) {
  for (uint32_t i = 0; i < MEGABYTES; i++)
    free(core->kinds[i]);
  memset(core->kinds, 0, sizeof core->kinds);
  if (core->cycles)
    utvm_release_decoded(core->cycles);
}
