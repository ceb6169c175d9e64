/* SPDX-License-Identifier: Apache-2.0 */
/* The accelerator as its driver sees it: mapped memory, and three stages that wait for each other. */
#include "vta_device.h"

#include <string.h>

#include "simulator.h"

#define WINDOWS 64u
/* Buffers are aligned to more than any element, and separated by an unmapped gap of that size. */
#define ALIGNMENT 65536u
#define LONGEST_RUN 65536u

static struct {
  uint64_t address;
  uint64_t bytes;
  uint8_t *data;
} windows[WINDOWS];
static uint32_t window_count;
static uint32_t bases[VTA_MEMORIES];
static vta_reach *elsewhere;

static vta_statistics statistics;
static vta_event events[LONGEST_RUN];
static uint32_t event_count;
static uint32_t first_stage;

/* The instructions of each stage in order, and its progress. */
static uint32_t waiting[VTA_STAGES][LONGEST_RUN];
static uint32_t lengths[VTA_STAGES], done[VTA_STAGES];
static uint64_t clocks[VTA_STAGES];

/* Tokens between adjacent stages, with their times. */
typedef struct {
  uint64_t when[LONGEST_RUN];
  uint32_t taken, given;
} tokens;
static tokens queues[VTA_STAGES][VTA_STAGES];

vta_statistics *vta_sim_statistics(void) {
  return &statistics;
}

void vta_sim_first_stage(uint32_t stage) {
  first_stage = stage;
}

const vta_event *vta_sim_events(uint32_t *count) {
  *count = event_count;
  return events;
}

uint32_t vta_device_map(const void *data, size_t bytes) {
  uint64_t address = ALIGNMENT;
  if (window_count == WINDOWS) {
    return 0;
  }
  if (window_count != 0u) {
    address = windows[window_count - 1u].address + windows[window_count - 1u].bytes + ALIGNMENT;
    address = (address + ALIGNMENT - 1u) / ALIGNMENT * ALIGNMENT;
  }
  if (address + bytes > UINT32_MAX) {
    return 0;
  }
  windows[window_count].address = address;
  windows[window_count].bytes = bytes;
  /* Only STORE writes there, to buffers mapped for it. */
  windows[window_count].data = (uint8_t *)(uintptr_t)data;
  window_count++;
  return (uint32_t)address;
}

void vta_device_base(uint32_t memory, uint32_t address) {
  bases[memory] = address;
}

void vta_device_unmap(void) {
  window_count = 0;
}

void vta_sim_dram_is(vta_reach *reach) {
  elsewhere = reach;
}

void *vta_sim_dram(uint32_t memory, uint64_t from, size_t bytes) {
  const uint64_t address = bases[memory == VTA_ACC_8BIT ? VTA_ACC : memory] + from;
  if (elsewhere != NULL) {
    return elsewhere(address, bytes);
  }
  for (uint32_t i = 0; i < window_count; i++) {
    const uint64_t offset = address - windows[i].address;
    if (address >= windows[i].address && offset <= windows[i].bytes && bytes <= windows[i].bytes - offset) {
      return windows[i].data + offset;
    }
  }
  return NULL;
}

static int fault_at(vta_fault *fault, const vta_instruction *instructions, uint32_t number, const char *rule,
                    int64_t value, int64_t limit) {
  fault->rule = rule;
  fault->value = value;
  fault->limit = limit;
  fault->number = (int32_t)number;
  fault->instruction = instructions[number];
  return -1;
}

/* Takes the tokens of an instruction and advances *start to their times. Returns 0 if one is missing. */
static int take_tokens(const vta_instruction *instruction, vta_stage stage, uint64_t *start) {
  tokens *from[2] = {NULL, NULL};
  if (vta_get(instruction, VTA_FINISH_POP_PREV) != 0u) {
    from[0] = &queues[stage - 1u][stage];
  }
  if (vta_get(instruction, VTA_FINISH_POP_NEXT) != 0u) {
    from[1] = &queues[stage + 1u][stage];
  }
  for (uint32_t i = 0; i < 2u; i++) {
    if (from[i] != NULL && from[i]->taken == from[i]->given) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < 2u; i++) {
    if (from[i] != NULL) {
      const uint64_t when = from[i]->when[from[i]->taken++];
      *start = when > *start ? when : *start;
    }
  }
  return 1;
}

static void give_tokens(const vta_instruction *instruction, vta_stage stage) {
  if (vta_get(instruction, VTA_FINISH_PUSH_PREV) != 0u) {
    tokens *to = &queues[stage][stage - 1u];
    to->when[to->given++] = clocks[stage];
    statistics.tokens++;
  }
  if (vta_get(instruction, VTA_FINISH_PUSH_NEXT) != 0u) {
    tokens *to = &queues[stage][stage + 1u];
    to->when[to->given++] = clocks[stage];
    statistics.tokens++;
  }
}

/* Runs instructions of a stage while it has tokens. Returns their number, or -1 after a fault. */
static int advance(const vta_instruction *instructions, vta_stage stage, vta_fault *fault) {
  int ran = 0;
  while (done[stage] < lengths[stage]) {
    const uint32_t number = waiting[stage][done[stage]];
    const vta_instruction *instruction = &instructions[number];
    vta_event *event = &events[number];
    event->ready = event->start = clocks[stage];
    if (!take_tokens(instruction, stage, &event->start)) {
      break;
    }
    vta_outcome outcome = {1, NULL, 0, 0};
    if (vta_get(instruction, VTA_FIELD_OPCODE) != VTA_OPCODE_FINISH) {
      outcome = vta_sim_execute(instruction, &statistics);
    }
    if (outcome.rule != NULL) {
      return fault_at(fault, instructions, number, outcome.rule, outcome.value, outcome.limit);
    }
    event->end = clocks[stage] = event->start + outcome.cycles;
    event->instruction = *instruction;
    statistics.busy[stage] += outcome.cycles;
    statistics.instructions++;
    give_tokens(instruction, stage);
    done[stage]++;
    ran++;
  }
  return ran;
}

/* Assigns the instructions to their stages. */
static int sort_out(const vta_instruction *instructions, uint32_t count, vta_fault *fault) {
  memset(lengths, 0, sizeof lengths);
  memset(done, 0, sizeof done);
  memset(clocks, 0, sizeof clocks);
  for (uint32_t from = 0; from < VTA_STAGES; from++) {
    for (uint32_t to = 0; to < VTA_STAGES; to++) {
      queues[from][to].taken = queues[from][to].given = 0;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    const vta_stage stage = vta_stage_of(&instructions[i]);
    const uint32_t before =
        vta_get(&instructions[i], VTA_FINISH_POP_PREV) | vta_get(&instructions[i], VTA_FINISH_PUSH_PREV);
    const uint32_t after =
        vta_get(&instructions[i], VTA_FINISH_POP_NEXT) | vta_get(&instructions[i], VTA_FINISH_PUSH_NEXT);
    if ((stage == VTA_STAGE_LOAD && before != 0u) || (stage == VTA_STAGE_STORE && after != 0u)) {
      return fault_at(fault, instructions, i, "a token goes to a stage that does not exist", stage, 0);
    }
    waiting[stage][lengths[stage]++] = i;
  }
  return 0;
}

/* Returns the first instruction that was not run, or count. */
static uint32_t first_left(uint32_t count) {
  uint32_t first = count;
  for (uint32_t stage = 0; stage < VTA_STAGES; stage++) {
    if (done[stage] < lengths[stage] && waiting[stage][done[stage]] < first) {
      first = waiting[stage][done[stage]];
    }
  }
  return first;
}

/* Checks that FINISH is the last instruction and the only FINISH, and that it waits for the stores: the hardware
 * reports the end of a run at FINISH. */
static int check_end(const vta_instruction *instructions, uint32_t count, vta_fault *fault) {
  for (uint32_t i = 0; i < count; i++) {
    if ((vta_get(&instructions[i], VTA_FIELD_OPCODE) == VTA_OPCODE_FINISH) != (i == count - 1u)) {
      return fault_at(fault, instructions, i, "a run ends with FINISH, and has no other", 0, 0);
    }
  }
  if (lengths[VTA_STAGE_STORE] != 0u) {
    const uint32_t last = waiting[VTA_STAGE_STORE][lengths[VTA_STAGE_STORE] - 1u];
    if (vta_get(&instructions[last], VTA_FINISH_PUSH_PREV) == 0u) {
      return fault_at(fault, instructions, last, "FINISH does not wait for this store", 0, 0);
    }
  }
  return 0;
}

/* Checks that no token is left for the next run. */
static int check_tokens(const vta_instruction *instructions, uint32_t count, vta_fault *fault) {
  for (uint32_t from = 0; from < VTA_STAGES; from++) {
    for (uint32_t to = 0; to < VTA_STAGES; to++) {
      if (queues[from][to].taken != queues[from][to].given) {
        return fault_at(fault, instructions, count - 1u, "tokens are left over, of the stage and so many", from,
                        queues[from][to].given - queues[from][to].taken);
      }
    }
  }
  return 0;
}

int vta_device_run(const vta_instruction *instructions, uint32_t count, vta_fault *fault) {
  event_count = 0;
  if (count == 0u || count > LONGEST_RUN) {
    fault->rule = "a run has between one instruction and so many";
    fault->value = count;
    fault->limit = LONGEST_RUN;
    fault->number = -1;
    return -1;
  }
  if (sort_out(instructions, count, fault) != 0 || check_end(instructions, count, fault) != 0) {
    return -1;
  }
  for (int ran = 1; ran != 0;) {
    ran = 0;
    for (uint32_t i = 0; i < VTA_STAGES; i++) {
      const int more = advance(instructions, (vta_stage)((first_stage + i) % VTA_STAGES), fault);
      if (more < 0) {
        return -1;
      }
      ran += more;
    }
  }
  if (first_left(count) != count) {
    return fault_at(fault, instructions, first_left(count), "deadlock: waits for a token that nobody hands on", 0,
                    0);
  }
  if (check_tokens(instructions, count, fault) != 0) {
    return -1;
  }
  uint64_t end = 0;
  for (uint32_t stage = 0; stage < VTA_STAGES; stage++) {
    end = clocks[stage] > end ? clocks[stage] : end;
  }
  statistics.cycles += end;
  event_count = count;
  return 0;
}
