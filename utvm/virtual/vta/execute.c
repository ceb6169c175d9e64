/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of each instruction on memory, and its modelled cycles.
 *
 * An instruction is refused if the hardware and TVM's own simulator differ in its effect. */
#include <string.h>

#include "simulator.h"

#define VECTOR (VTA_BATCH * VTA_BLOCK)

/* The model of time. A stage has a DMA port of its own; a transfer waits for memory once, then moves a fixed number
 * of bytes per cycle. GEMM does a block per cycle; the ALU accesses accumulators through one port, a row in two
 * cycles. */
#define DMA_LATENCY 16u
#define DMA_BYTES_A_CYCLE 8u
#define PIPELINE 4u
#define ALU_CYCLES 2u

/* Maximum iterations of an operation: at 100 MHz these take seconds. */
#define MOST_TURNS (UINT64_C(1) << 28)

static uint32_t uop[VTA_UOP_DEPTH];
static int8_t inp[VTA_INP_DEPTH][VECTOR];
static int8_t wgt[VTA_WGT_DEPTH][VTA_BLOCK * VTA_BLOCK];
static int32_t acc[VTA_ACC_DEPTH][VECTOR];
/* Whether STORE may read an accumulator: it reads a copy that only GEMM and ALU write. */
static uint8_t computed[VTA_ACC_DEPTH];

static vta_outcome refused(const char *rule, int64_t value, int64_t limit) {
  const vta_outcome outcome = {0, rule, value, limit};
  return outcome;
}

static vta_outcome took(uint64_t cycles) {
  const vta_outcome outcome = {cycles, NULL, 0, 0};
  return outcome;
}

/* A memory as loads fill it. */
typedef struct {
  uint8_t *bytes;
  uint32_t depth;
  uint32_t sram_bytes; /* of an element on the chip */
  uint32_t dram_bytes; /* and in DRAM */
  uint64_t *counter;
} memory;

static int find_memory(uint32_t number, vta_statistics *counted, memory *found) {
  const memory memories[] = {
      {(uint8_t *)uop, VTA_UOP_DEPTH, sizeof uop[0], VTA_UOP_ELEMENT_BYTES, &counted->uop_load_nbytes},
      {(uint8_t *)wgt, VTA_WGT_DEPTH, sizeof wgt[0], VTA_WGT_ELEMENT_BYTES, &counted->wgt_load_nbytes},
      {(uint8_t *)inp, VTA_INP_DEPTH, sizeof inp[0], VTA_INP_ELEMENT_BYTES, &counted->inp_load_nbytes},
      {(uint8_t *)acc, VTA_ACC_DEPTH, sizeof acc[0], VTA_ACC_ELEMENT_BYTES, &counted->acc_load_nbytes},
      {NULL, 0, 1, 1, NULL},
      {(uint8_t *)acc, VTA_ACC_DEPTH, sizeof acc[0], VTA_ACC_8BIT_ELEMENT_BYTES, &counted->acc_load_nbytes},
  };
  if (number >= sizeof memories / sizeof memories[0] || memories[number].bytes == NULL) {
    return -1;
  }
  *found = memories[number];
  return 0;
}

static vta_outcome load(const vta_instruction *instruction, vta_statistics *counted) {
  const uint32_t number = vta_get(instruction, VTA_LOAD_MEM), sram = vta_get(instruction, VTA_LOAD_SRAM);
  const uint32_t rows = vta_get(instruction, VTA_LOAD_Y_SIZE), row = vta_get(instruction, VTA_LOAD_X_SIZE);
  const uint32_t above = vta_get(instruction, VTA_LOAD_YPAD0), below = vta_get(instruction, VTA_LOAD_YPAD1);
  const uint32_t left = vta_get(instruction, VTA_LOAD_XPAD0), right = vta_get(instruction, VTA_LOAD_XPAD1);
  const uint64_t stride = vta_get(instruction, VTA_LOAD_X_STRIDE), dram = vta_get(instruction, VTA_LOAD_DRAM);
  const uint64_t width = (uint64_t)left + row + right, tile = width * ((uint64_t)above + rows + below);
  memory to;
  if (row == 0u) {
    return took(1); /* only passes tokens */
  }
  if (find_memory(number, counted, &to) != 0) {
    return refused("LOAD fills UOP, WGT, INP, ACC or ACC_8BIT", number, 0);
  }
  if (tile != (uint64_t)row * rows && number != VTA_INP && number != VTA_ACC) {
    return refused("only INP and ACC can be padded: hardware ignores it elsewhere", number, 0);
  }
  if (sram + tile > to.depth) {
    return refused("LOAD reaches beyond the memory on the chip, which ends at element", (int64_t)(sram + tile),
                   to.depth);
  }
  uint8_t *const start = to.bytes + (size_t)sram * to.sram_bytes;
  const size_t bytes = (size_t)row * to.dram_bytes;
  memset(start, 0, (size_t)tile * to.sram_bytes);
  if (to.bytes == (uint8_t *)acc) {
    memset(computed + sram, 0, (size_t)tile);
  }
  for (uint32_t y = 0; y < rows; y++) {
    const uint64_t address = (dram + y * stride) * to.dram_bytes;
    const int8_t *from = vta_sim_dram(number, address, bytes);
    uint8_t *target = start + (size_t)((above + y) * width + left) * to.sram_bytes;
    if (from == NULL) {
      return refused("LOAD reads DRAM outside of every buffer, at byte", (int64_t)address, (int64_t)bytes);
    }
    if (number == VTA_ACC_8BIT) {
      int32_t *wide = &acc[sram + (above + y) * width + left][0];
      for (size_t i = 0; i < bytes; i++) {
        wide[i] = from[i];
      }
    } else {
      memcpy(target, from, bytes);
    }
  }
  *to.counter += (uint64_t)row * rows * to.sram_bytes;
  counted->dram_nbytes += rows * bytes;
  return took(DMA_LATENCY + (rows * bytes + DMA_BYTES_A_CYCLE - 1u) / DMA_BYTES_A_CYCLE +
              (tile - (uint64_t)row * rows));
}

static vta_outcome store(const vta_instruction *instruction, vta_statistics *counted) {
  const uint32_t number = vta_get(instruction, VTA_STORE_MEM), sram = vta_get(instruction, VTA_STORE_SRAM);
  const uint32_t rows = vta_get(instruction, VTA_STORE_Y_SIZE), row = vta_get(instruction, VTA_STORE_X_SIZE);
  const uint64_t stride = vta_get(instruction, VTA_STORE_X_STRIDE), dram = vta_get(instruction, VTA_STORE_DRAM);
  const uint64_t tile = (uint64_t)rows * row;
  if (row == 0u) {
    return took(1);
  }
  if (number != VTA_OUT) {
    return refused("STORE takes OUT", number, VTA_OUT);
  }
  if ((vta_get(instruction, VTA_STORE_YPAD0) | vta_get(instruction, VTA_STORE_YPAD1) |
       vta_get(instruction, VTA_STORE_XPAD0) | vta_get(instruction, VTA_STORE_XPAD1)) != 0u) {
    return refused("STORE has no padding", 1, 0);
  }
  if (sram + tile > VTA_OUT_DEPTH) {
    return refused("STORE reaches beyond the memory on the chip, which ends at element", (int64_t)(sram + tile),
                   VTA_OUT_DEPTH);
  }
  for (uint32_t y = 0; y < rows; y++) {
    const uint64_t address = (dram + y * stride) * VTA_OUT_ELEMENT_BYTES;
    uint8_t *target = vta_sim_dram(number, address, (size_t)row * VTA_OUT_ELEMENT_BYTES);
    if (target == NULL) {
      return refused("STORE writes DRAM outside of every buffer, at byte", (int64_t)address,
                     (int64_t)row * VTA_OUT_ELEMENT_BYTES);
    }
    for (uint32_t x = 0; x < row; x++) {
      const uint32_t element = sram + y * row + x;
      if (!computed[element]) {
        return refused("STORE of what neither GEMM nor ALU computed: hardware stores something else, element",
                       element, 0);
      }
      for (uint32_t i = 0; i < VECTOR; i++) {
        target[(size_t)x * VECTOR + i] = (uint8_t)((uint32_t)acc[element][i] & 0xFFu);
      }
    }
  }
  counted->out_store_nbytes += tile * VTA_OUT_ELEMENT_BYTES;
  counted->dram_nbytes += tile * VTA_OUT_ELEMENT_BYTES;
  return took(DMA_LATENCY + (tile * VTA_OUT_ELEMENT_BYTES + DMA_BYTES_A_CYCLE - 1u) / DMA_BYTES_A_CYCLE);
}

/* The loops of an operation: dst, src, wgt. */
typedef struct {
  uint32_t begin, end, outer, inner;
  uint32_t factor_out[3], factor_in[3];
} loops;

static loops loops_of(const vta_instruction *instruction) {
  const int gemm = vta_get(instruction, VTA_FIELD_OPCODE) == VTA_OPCODE_GEMM;
  const loops found = {
      vta_get(instruction, VTA_GEMM_UOP_BGN),
      vta_get(instruction, VTA_GEMM_UOP_END),
      vta_get(instruction, VTA_GEMM_ITER_OUT),
      vta_get(instruction, VTA_GEMM_ITER_IN),
      {vta_get(instruction, VTA_GEMM_DST_OUT),
       gemm ? vta_get(instruction, VTA_GEMM_SRC_OUT) : vta_get(instruction, VTA_ALU_SRC_OUT),
       gemm ? vta_get(instruction, VTA_GEMM_WGT_OUT) : 0u},
      {vta_get(instruction, VTA_GEMM_DST_IN),
       gemm ? vta_get(instruction, VTA_GEMM_SRC_IN) : vta_get(instruction, VTA_ALU_SRC_IN),
       gemm ? vta_get(instruction, VTA_GEMM_WGT_IN) : 0u},
  };
  return found;
}

/* Returns the index of a micro-op: 0 is dst, 1 is src, 2 is wgt. */
static uint32_t index_of(uint32_t word, uint32_t which) {
  const vta_instruction bits = {{word, 0}};
  return which == 0u   ? vta_get(&bits, VTA_UOP_DST_IDX)
         : which == 1u ? vta_get(&bits, VTA_UOP_SRC_IDX)
                       : vta_get(&bits, VTA_UOP_WGT_IDX);
}

/* Checks once that all indices of the loops are within their memories. */
static const char *outside(const loops *all, const uint32_t depth[3], int64_t *value, int64_t *limit) {
  static const char *const rule[3] = {"the destination of an operation leaves ACC, at element",
                                      "the source of an operation leaves its memory, at element",
                                      "the weights of an operation leave WGT, at element"};
  for (uint32_t which = 0; which < 3u && all->outer != 0u && all->inner != 0u; which++) {
    for (uint32_t u = all->begin; depth[which] != 0u && u < all->end; u++) {
      const uint64_t last = (uint64_t)index_of(uop[u], which) +
                            (uint64_t)(all->outer - 1u) * all->factor_out[which] +
                            (uint64_t)(all->inner - 1u) * all->factor_in[which];
      if (last >= depth[which]) {
        *value = (int64_t)last;
        *limit = depth[which];
        return rule[which];
      }
    }
  }
  return NULL;
}

/* Adds the products of rows of inputs and of weights to accumulators; sums wrap, as the hardware's do. */
static void multiply(int32_t *restrict sums, const int8_t *restrict inputs, const int8_t *restrict weights) {
  for (uint32_t b = 0; b < VTA_BATCH; b++) {
    for (uint32_t o = 0; o < VTA_BLOCK; o++) {
      int32_t sum = 0;
      for (uint32_t k = 0; k < VTA_BLOCK; k++) {
        sum += inputs[b * VTA_BLOCK + k] * weights[o * VTA_BLOCK + k];
      }
      sums[b * VTA_BLOCK + o] = (int32_t)((uint32_t)sums[b * VTA_BLOCK + o] + (uint32_t)sum);
    }
  }
}

static void gemm_once(uint32_t reset, uint32_t dst, uint32_t src, uint32_t weights) {
  if (reset != 0u) {
    memset(acc[dst], 0, sizeof acc[dst]);
  } else {
    multiply(acc[dst], inp[src], wgt[weights]);
  }
}

/* Does one operation of the ALU; returns whether the hardware would do the same. */
static int alu_once(uint32_t operation, int32_t *to, const int32_t *from, int32_t immediate) {
  for (uint32_t i = 0; i < VECTOR; i++) {
    const int32_t a = to[i], b = from != NULL ? from[i] : immediate;
    switch (operation) {
    case VTA_ALU_MIN:
      to[i] = a < b ? a : b;
      break;
    case VTA_ALU_MAX:
      to[i] = a > b ? a : b;
      break;
    case VTA_ALU_ADD:
      to[i] = (int32_t)((uint32_t)a + (uint32_t)b);
      break;
    default:
      if (b < 0 || b > 31) {
        return -1;
      }
      to[i] = a >> b;
    }
  }
  return 0;
}

static vta_outcome compute(const vta_instruction *instruction, vta_statistics *counted) {
  const loops all = loops_of(instruction);
  const int gemm = vta_get(instruction, VTA_FIELD_OPCODE) == VTA_OPCODE_GEMM;
  const uint32_t reset = vta_get(instruction, VTA_GEMM_RESET);
  const uint32_t operation = gemm ? 0u : vta_get(instruction, VTA_ALU_OP);
  const int immediate = !gemm && vta_get(instruction, VTA_ALU_USE_IMM) != 0u;
  const int32_t number = gemm ? 0 : (int16_t)vta_get(instruction, VTA_ALU_IMM);
  const uint32_t source = gemm ? (reset ? 0u : VTA_INP_DEPTH) : immediate ? 0u : VTA_ACC_DEPTH;
  const uint32_t depth[3] = {VTA_ACC_DEPTH, source, gemm && !reset ? VTA_WGT_DEPTH : 0u};
  int64_t value = 0, limit = 0;
  if (all.end > VTA_UOP_DEPTH || all.begin > all.end) {
    return refused("the micro-ops of an operation leave UOP, or end before they begin", all.end, VTA_UOP_DEPTH);
  }
  const uint64_t times = (uint64_t)all.outer * all.inner * (all.end - all.begin);
  if (times > MOST_TURNS) {
    return refused("an operation with so many turns does not come to an end", (int64_t)times, (int64_t)MOST_TURNS);
  }
  if (operation > VTA_ALU_SHR) {
    return refused("the ALU has MIN, MAX, ADD and SHR", operation, VTA_ALU_SHR);
  }
  const char *const rule = outside(&all, depth, &value, &limit);
  if (rule != NULL) {
    return refused(rule, value, limit);
  }
  for (uint32_t outer = 0; outer < all.outer; outer++) {
    for (uint32_t inner = 0; inner < all.inner; inner++) {
      for (uint32_t u = all.begin; u < all.end; u++) {
        uint32_t at[3];
        for (uint32_t i = 0; i < 3u; i++) {
          at[i] = index_of(uop[u], i) + outer * all.factor_out[i] + inner * all.factor_in[i];
        }
        computed[at[0]] = 1;
        if (gemm) {
          gemm_once(reset, at[0], at[1], at[2]);
        } else if (alu_once(operation, acc[at[0]], immediate ? NULL : acc[at[1]], number) != 0) {
          return refused("SHR shifts right by 0 to 31: hardware uses 5 bits of the number", number, 31);
        }
      }
    }
  }
  *(gemm ? &counted->gemm_counter : &counted->alu_counter) += gemm && reset ? 0u : times;
  return took(PIPELINE + (gemm ? times : ALU_CYCLES * VTA_BATCH * times));
}

vta_outcome vta_sim_execute(const vta_instruction *instruction, vta_statistics *counted) {
  switch (vta_get(instruction, VTA_FIELD_OPCODE)) {
  case VTA_OPCODE_LOAD:
    return load(instruction, counted);
  case VTA_OPCODE_STORE:
    return store(instruction, counted);
  case VTA_OPCODE_GEMM:
  case VTA_OPCODE_ALU:
    return compute(instruction, counted);
  default:
    return refused("there is no such opcode", vta_get(instruction, VTA_FIELD_OPCODE), VTA_OPCODE_ALU);
  }
}
