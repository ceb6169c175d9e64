/* SPDX-License-Identifier: Apache-2.0 */
#include "vta.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "vta_device.h"
#include "vta_tokens.h"

#define MAPPED 64u
#define UOP_BUFFER (VTA_QUEUE_LENGTH > VTA_UOP_DEPTH ? VTA_QUEUE_LENGTH : VTA_UOP_DEPTH)
#define KERNELS (VTA_QUEUE_LENGTH / 16u)
/* Maximum number of instructions per call: a load of micro-ops and an operation; and FINISH at the end. */
#define ROOM 3u

/* Micro-ops of an operation that are loaded already. */
typedef struct {
  uint32_t at;   /* in the buffer in DRAM */
  uint32_t sram; /* on the chip */
  uint32_t count;
} kernel;

static vta_instruction queue[VTA_QUEUE_LENGTH];
static uint32_t queued;

typedef struct {
  const void *data;
  uint64_t bytes;
  uint32_t address;
} buffer;

static buffer mapped[MAPPED];
static uint32_t maps;

/* Base address of elements: a buffer at an unaligned address moves the base of its memory. */
static struct {
  bool known;
  uint32_t address;
} bases[VTA_MEMORIES];

static uint32_t uop_buffer[UOP_BUFFER];
static uint32_t uops;     /* of the buffer, used */
static uint32_t uop_sram; /* on the chip, used */
static kernel kernels[KERNELS];
static uint32_t kernel_count;

/* The operation under construction. Factors are dst, src, wgt. */
static struct {
  uint32_t count;
  uint32_t mode, reset, operation, use_immediate;
  int32_t immediate;
  uint32_t loops;
  uint32_t open;
  uint32_t extent[2];
  uint32_t factor[2][3];
  uint32_t least[3], most[3];
} building;

static vta_fault pending, reported;

static int broken(const char *rule, int64_t value, int64_t limit, const vta_instruction *instruction) {
  if (pending.rule == NULL) {
    pending.rule = rule;
    pending.value = value;
    pending.limit = limit;
    pending.number = -1;
    memset(&pending.instruction, 0, sizeof pending.instruction);
    if (instruction != NULL) {
      pending.instruction = *instruction;
    }
  }
  return -1;
}

/* Sets a field, unless the value does not fit. */
static void set(vta_instruction *instruction, uint32_t low, uint32_t width, uint64_t value) {
  if (value >> width != 0u) {
    (void)broken("a field of an instruction is too small for a value", (int64_t)value,
                 (int64_t)((UINT64_C(1) << width) - 1u), instruction);
    return;
  }
  vta_put(instruction, low, width, (uint32_t)value);
}

/* Runs the queued instructions and empties the queue. */
static void run(void) {
  if (pending.rule == NULL && queued != 0u) {
    vta_instruction *last = &queue[queued];
    memset(last, 0, sizeof *last);
    vta_put(last, VTA_FIELD_OPCODE, VTA_OPCODE_FINISH);
    vta_tokens_finish(queue, queued);
    for (uint32_t memory = 0; memory < VTA_MEMORIES; memory++) {
      vta_device_base(memory, bases[memory].address);
    }
    (void)vta_device_run(queue, queued + 1u, &pending);
  }
  queued = 0;
  uops = 0;
  uop_sram = 0;
  kernel_count = 0;
  memset(bases, 0, sizeof bases);
  vta_tokens_begin();
}

/* Begins an instruction. */
static vta_instruction begin(uint32_t opcode) {
  vta_instruction made = {{0, 0}};
  vta_put(&made, VTA_FIELD_OPCODE, opcode);
  return made;
}

/* Queues an instruction, with the tokens that it must wait for. */
static void enqueue(const vta_instruction *instruction, const vta_touched *touched) {
  if (pending.rule == NULL) {
    queue[queued] = *instruction;
    vta_tokens_add(queue, queued, touched);
    queued++;
  }
}

static void make_room(void) {
  if (queued + ROOM > VTA_QUEUE_LENGTH) {
    run();
  }
}

/* Returns the buffer that begins here, or NULL if it was not mapped. */
static const buffer *find_buffer(const void *data) {
  for (uint32_t i = 0; i < maps; i++) {
    if (mapped[i].data == data) {
      return &mapped[i];
    }
  }
  return NULL;
}

int VTABufferMap(const void *data, uint64_t bytes) {
  if (maps == 0u) {
    vta_tokens_begin();
  }
  if (find_buffer(data) != NULL) {
    return 0;
  }
  if (maps == MAPPED) {
    return broken("an operator has too many buffers", maps + 1, MAPPED, NULL);
  }
  mapped[maps].data = data;
  mapped[maps].bytes = bytes;
  mapped[maps].address = vta_device_map(data, (size_t)bytes);
  if (mapped[maps].address == 0u) {
    return broken("memory that the accelerator cannot reach, of so many bytes", (int64_t)bytes, 0, NULL);
  }
  maps++;
  return 0;
}

static uint32_t bytes_of(uint32_t memory) {
  static const uint32_t bytes[] = {VTA_UOP_ELEMENT_BYTES, VTA_WGT_ELEMENT_BYTES, VTA_INP_ELEMENT_BYTES,
                                   VTA_ACC_ELEMENT_BYTES, VTA_OUT_ELEMENT_BYTES, VTA_ACC_8BIT_ELEMENT_BYTES};
  return memory < sizeof bytes / sizeof bytes[0] ? bytes[memory] : 1u;
}

/* Sets the address in DRAM of a transfer's first element; its last is end - 1, and both are of this buffer. */
static void set_dram(vta_instruction *instruction, uint32_t memory, const void *data, uint32_t offset,
                     uint64_t end) {
  const uint32_t bytes = bytes_of(memory);
  const uint32_t filled = memory == VTA_ACC_8BIT ? VTA_ACC : memory;
  const buffer *from = find_buffer(data);
  if (from == NULL || filled >= VTA_MEMORIES) {
    (void)broken("a buffer was not mapped before it is used", 0, 0, instruction);
    return;
  }
  if (!bases[filled].known) {
    bases[filled].known = true;
    bases[filled].address = from->address % bytes;
  }
  if ((from->address - bases[filled].address) % bytes != 0u) {
    (void)broken("buffers for one memory on the chip are so many bytes off each other's elements",
                 (int64_t)((from->address - bases[filled].address) % bytes), 0, instruction);
  } else if (end > from->bytes / bytes) {
    (void)broken("a transfer leaves its buffer in DRAM, at element", (int64_t)end, (int64_t)(from->bytes / bytes),
                 instruction);
  } else {
    set(instruction, VTA_LOAD_DRAM, (uint64_t)((from->address - bases[filled].address) / bytes) + offset);
  }
}

static uint32_t depth_of(uint32_t memory) {
  static const uint32_t depth[] = {VTA_UOP_DEPTH, VTA_WGT_DEPTH, VTA_INP_DEPTH,
                                   VTA_ACC_DEPTH, VTA_OUT_DEPTH, VTA_ACC_8BIT_DEPTH};
  return memory < sizeof depth / sizeof depth[0] ? depth[memory] : 0u;
}

/* Returns the elements on the chip that a load or a store accesses. */
static vta_touched tile(const vta_instruction *instruction, uint32_t memory, uint32_t sram, uint64_t elements) {
  vta_touched touched = {{0, 0}, {0, 0}, {0, 0}};
  vta_range *range = memory == VTA_INP ? &touched.inp : memory == VTA_WGT ? &touched.wgt : &touched.acc;
  if (sram + elements > depth_of(memory)) {
    (void)broken("a tile does not fit into its memory on the chip", (int64_t)(sram + elements), depth_of(memory),
                 instruction);
  } else if (memory != VTA_UOP) {
    range->first = sram;
    range->end = sram + (uint32_t)elements;
  }
  return touched;
}

/* Encodes a load or a store; only a load has padding. */
static vta_instruction transfer(uint32_t opcode, uint32_t memory, uint32_t sram, const void *dram, uint32_t offset,
                                uint32_t x_size, uint32_t y_size, uint32_t x_stride) {
  make_room();
  vta_instruction made = begin(opcode);
  set(&made, VTA_LOAD_MEM, memory);
  set(&made, VTA_LOAD_SRAM, sram);
  set(&made, VTA_LOAD_Y_SIZE, y_size);
  set(&made, VTA_LOAD_X_SIZE, x_size);
  set(&made, VTA_LOAD_X_STRIDE, x_stride);
  set_dram(&made, memory, dram, offset,
           x_size == 0u || y_size == 0u ? 0u : offset + ((uint64_t)x_stride * (y_size - 1u)) + x_size);
  return made;
}

int VTALoadBuffer2D(const void *source, uint32_t offset, uint32_t x_size, uint32_t y_size, uint32_t x_stride,
                    uint32_t x_pad_before, uint32_t y_pad_before, uint32_t x_pad_after, uint32_t y_pad_after,
                    uint32_t sram, uint32_t memory) {
  vta_instruction made = transfer(VTA_OPCODE_LOAD, memory, sram, source, offset, x_size, y_size, x_stride);
  set(&made, VTA_LOAD_YPAD0, y_pad_before);
  set(&made, VTA_LOAD_YPAD1, y_pad_after);
  set(&made, VTA_LOAD_XPAD0, x_pad_before);
  set(&made, VTA_LOAD_XPAD1, x_pad_after);
  const uint64_t rows = (uint64_t)y_pad_before + y_size + y_pad_after;
  const vta_touched touched = tile(&made, memory, sram, rows * ((uint64_t)x_pad_before + x_size + x_pad_after));
  enqueue(&made, &touched);
  return pending.rule == NULL ? 0 : -1;
}

int VTAStoreBuffer2D(uint32_t sram, uint32_t memory, void *destination, uint32_t offset, uint32_t x_size,
                     uint32_t y_size, uint32_t x_stride) {
  const vta_instruction made =
      transfer(VTA_OPCODE_STORE, memory, sram, destination, offset, x_size, y_size, x_stride);
  const vta_touched touched = tile(&made, memory, sram, (uint64_t)y_size * x_size);
  enqueue(&made, &touched);
  return pending.rule == NULL ? 0 : -1;
}

int VTAUopLoopBegin(uint32_t extent, uint32_t dst, uint32_t src, uint32_t wgt) {
  if (building.loops == 2u || building.count != 0u) {
    return broken("two loops at most, and before any micro-op", building.loops, 2, NULL);
  }
  building.extent[building.loops] = extent;
  building.factor[building.loops][0] = dst;
  building.factor[building.loops][1] = src;
  building.factor[building.loops][2] = wgt;
  building.loops++;
  building.open++;
  return 0;
}

int VTAUopLoopEnd(void) {
  if (building.open == 0u) {
    return broken("a loop of micro-ops ends that did not begin", 0, 0, NULL);
  }
  building.open--;
  return 0;
}

int VTAUopPush(uint32_t mode, uint32_t reset, uint32_t dst, uint32_t src, uint32_t wgt, uint32_t operation,
               uint32_t use_immediate, int32_t immediate) {
  const uint32_t index[3] = {dst, src, wgt};
  const bool first = building.count == 0u;
  if (first) {
    building.mode = mode;
    building.reset = reset;
    building.operation = operation;
    building.use_immediate = use_immediate;
    building.immediate = immediate;
  } else if (building.mode != mode || building.reset != reset || building.operation != operation ||
             building.use_immediate != use_immediate || building.immediate != immediate) {
    return broken("micro-ops of one operation differ in more than their indices", building.count, 0, NULL);
  }
  if (uops + building.count == UOP_BUFFER) {
    if (building.count == UOP_BUFFER) {
      return broken("an operation has too many micro-ops", UOP_BUFFER + 1, UOP_BUFFER, NULL);
    }
    /* Start the buffer again, after a run, which has read the old contents. */
    const uint32_t count = building.count, from = uops;
    run();
    memmove(uop_buffer, uop_buffer + from, count * sizeof uop_buffer[0]);
  }
  vta_instruction word = {{0, 0}};
  set(&word, VTA_UOP_DST_IDX, dst);
  set(&word, VTA_UOP_SRC_IDX, src);
  set(&word, VTA_UOP_WGT_IDX, wgt);
  for (uint32_t i = 0; i < 3u; i++) {
    building.least[i] = first || index[i] < building.least[i] ? index[i] : building.least[i];
    building.most[i] = first || index[i] > building.most[i] ? index[i] : building.most[i];
  }
  uop_buffer[uops + building.count] = (uint32_t)word.words[0];
  building.count++;
  return pending.rule == NULL ? 0 : -1;
}

/* Returns the address of the operation's micro-ops on the chip; loads them if necessary. */
static uint32_t loaded(void) {
  const size_t bytes = building.count * sizeof uop_buffer[0];
  for (uint32_t i = 0; i < kernel_count; i++) {
    if (kernels[i].count == building.count && memcmp(uop_buffer + kernels[i].at, uop_buffer + uops, bytes) == 0) {
      return kernels[i].sram;
    }
  }
  if (building.count > VTA_UOP_DEPTH) {
    (void)broken("an operation's micro-ops do not fit on the chip", building.count, VTA_UOP_DEPTH, NULL);
    return 0;
  }
  if (uop_sram + building.count > VTA_UOP_DEPTH || kernel_count == KERNELS) {
    kernel_count = 0;
    uop_sram = 0;
  }
  const kernel made = {uops, uop_sram, building.count};
  (void)VTABufferMap(uop_buffer, sizeof uop_buffer);
  (void)VTALoadBuffer2D(uop_buffer, uops, building.count, 1, building.count, 0, 0, 0, 0, uop_sram, VTA_UOP);
  kernels[kernel_count++] = made;
  uops += building.count;
  uop_sram += building.count;
  return made.sram;
}

/* Returns the largest range of elements that an index of the operation can reach. */
static vta_range swept(uint32_t index, uint32_t depth, const vta_instruction *instruction) {
  uint64_t end = (uint64_t)building.most[index] + 1u;
  for (uint32_t loop = 0; loop < building.loops; loop++) {
    end += (uint64_t)(building.extent[loop] - 1u) * building.factor[loop][index];
  }
  const vta_range range = {building.least[index], (uint32_t)(end < depth ? end : depth)};
  if (end > depth) {
    (void)broken("an operation reaches beyond a memory on the chip", (int64_t)end, depth, instruction);
  }
  return range;
}

static int push(uint32_t mode) {
  if (building.count == 0u || building.mode != mode || building.open != 0u) {
    (void)broken("an operation has micro-ops of its own kind, and its loops are closed", building.count, 1, NULL);
  } else {
    make_room();
    const uint32_t at = loaded();
    const bool gemm = mode == 0u;
    vta_instruction made = begin(gemm ? VTA_OPCODE_GEMM : VTA_OPCODE_ALU);
    uint32_t extent[2] = {1, 1};
    uint32_t factor[2][3] = {{0, 0, 0}, {0, 0, 0}};
    /* A single loop is the inner one. */
    memcpy(extent + 2u - building.loops, building.extent, building.loops * sizeof extent[0]);
    memcpy(factor + 2u - building.loops, building.factor, building.loops * sizeof factor[0]);
    set(&made, VTA_GEMM_RESET, building.reset);
    set(&made, VTA_GEMM_UOP_BGN, at);
    set(&made, VTA_GEMM_UOP_END, at + building.count);
    set(&made, VTA_GEMM_ITER_OUT, extent[0]);
    set(&made, VTA_GEMM_ITER_IN, extent[1]);
    set(&made, VTA_GEMM_DST_OUT, factor[0][0]);
    set(&made, VTA_GEMM_DST_IN, factor[1][0]);
    vta_touched touched = {{0, 0}, {0, 0}, {0, 0}};
    touched.acc = swept(0, VTA_ACC_DEPTH, &made);
    if (gemm) {
      set(&made, VTA_GEMM_SRC_OUT, factor[0][1]);
      set(&made, VTA_GEMM_SRC_IN, factor[1][1]);
      set(&made, VTA_GEMM_WGT_OUT, factor[0][2]);
      set(&made, VTA_GEMM_WGT_IN, factor[1][2]);
      if (building.reset == 0u) {
        touched.inp = swept(1, VTA_INP_DEPTH, &made);
        touched.wgt = swept(2, VTA_WGT_DEPTH, &made);
      }
    } else {
      set(&made, VTA_ALU_SRC_OUT, factor[0][1]);
      set(&made, VTA_ALU_SRC_IN, factor[1][1]);
      set(&made, VTA_ALU_OP, building.operation);
      set(&made, VTA_ALU_USE_IMM, building.use_immediate);
      if (building.immediate < INT16_MIN || building.immediate > INT16_MAX) {
        (void)broken("a number in an ALU operation has 16 bits", building.immediate, INT16_MAX, &made);
      }
      set(&made, VTA_ALU_IMM, (uint16_t)building.immediate);
    }
    enqueue(&made, &touched);
  }
  memset(&building, 0, sizeof building);
  return pending.rule == NULL ? 0 : -1;
}

int VTAPushGEMMOp(void) {
  return push(0);
}

int VTAPushALUOp(void) {
  return push(1);
}

__attribute__((weak)) void vta_failed(const vta_fault *fault) {
  (void)fault;
}

int VTASynchronize(void) {
  run();
  memset(&building, 0, sizeof building);
  vta_device_unmap();
  maps = 0;
  reported = pending;
  pending.rule = NULL;
  if (reported.rule == NULL) {
    return 0;
  }
  vta_failed(&reported);
  return -1;
}

const vta_fault *VTAFault(void) {
  return &reported;
}
