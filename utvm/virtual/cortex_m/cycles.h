/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the cycles that a core takes: what its manual says of an instruction and the one before, and waits for
 * flash behind caches. All numbers come from outside: utvm/virtual/cortex_m/cycles.py has those of the cores, a board's
 * file those of its flash.
 */
#ifndef UTVM_CYCLES_H
#define UTVM_CYCLES_H

#include "loads.h"

#include <stdint.h>

enum { CODE_MEGABYTES = 4096, MEGABYTE = 1 << 20, LINES = 512 };
#define NO_PART UINT32_MAX

enum operation {
  UNDECODED,
  PLAIN_OPERATION,
  LOAD,
  STORE,
  LOAD_MANY, /* and one cycle a register */
  STORE_MANY,
  MULTIPLY,
  MULTIPLY_ADD,
  MULTIPLY_LONG,
  DIVIDE_OPERATION,
  BRANCH,
  TABLE_BRANCH,
  CONDITION, /* IT */
  FLOAT_OPERATION,
  FLOAT_ACCUMULATE,
  FLOAT_DIVIDE,
  FLOAT_PAIR, /* two registers moved */
  VECTOR_MEMORY, /* MVE, in three pipes that each take one for two cycles */
  VECTOR_INTEGER,
  VECTOR_MULTIPLY, /* also floating point, comparisons and sums over a vector */
  LOOP_END,        /* LE */
  OPERATIONS
};

typedef struct {
  uint8_t operation, size, registers;
  uint8_t shifts;                    /* also shifts an operand */
  uint8_t first;                     /* of a pair, if it pairs */
  uint8_t second;                    /* pairs with any of 16 bits where only some do */
  uint8_t slow;                      /* a load of less than a word, or a saturation */
  uint8_t taken;                     /* of a branch: 0 to 3, from never to always */
  uint8_t refill;                    /* cycles, if it is a branch that is taken */
  uint8_t overlaps;                  /* a load, or a store to an index: may begin in the last cycle of a load */
  uint16_t addresses, reads, writes; /* one bit a register; reads includes the others */
  uint16_t computed;                 /* of writes, those of no load or store */
  uint16_t early;                    /* of reads, a cycle before the others: addresses, operands to shift */
  uint16_t late;                     /* of reads, a cycle after: sums of a multiplication, stored values */
  uint16_t words[2];                 /* the opcode and the next halfword */
  uint8_t cost;                      /* cycles, if nothing before it matters; of a pair, beyond the first */
  uint8_t alone;                     /* never issues with another */
  uint8_t delay;                     /* cycles until the result can be used, beyond the next */
  uint8_t unit;                      /* of a core that issues pairs */
  uint32_t part;                     /* of the cache for code, or NO_PART */
  load_t load;                       /* data that it reads */
} decoded_t;

typedef struct {
  uint32_t first, bytes; /* of the memory behind it */
  uint32_t part_bits;    /* log2 of the bytes of a part, which is filled at a time */
  uint32_t line_bits;    /* log2 of the parts of a line */
  uint32_t sets, ways;   /* number of sets, a power of two */
  uint32_t wait;         /* cycles to fill a part */
  uint32_t last;         /* part used last */
  uint32_t lines[LINES]; /* plus one; a set is contiguous, most recently used first */
  uint8_t parts[LINES];  /* one bit a part that is filled */
} cache_t;

/* Cycles beyond those of issue, by their cause. */
enum wait { WAIT_LOAD, WAIT_FLASH, WAIT_BRANCH, WAITS };

typedef struct {
  uint64_t cycles;
  uint64_t waited[WAITS];
  uint64_t flash_bytes; /* of data that was read from flash, literals included */
  /* the core */
  uint32_t costs[OPERATIONS];
  uint32_t latencies[OPERATIONS]; /* cycles until the result can be used */
  uint32_t refill;                /* after a taken branch */
  uint32_t indirect;              /* more, if its target is in a register or in memory */
  uint32_t split;                 /* more for a target of four bytes in two words */
  uint32_t wide_branch;           /* cycles more of a branch of four bytes */
  uint32_t pipelined;             /* 1: loads, stores and their addresses depend on the instruction before */
  uint32_t bus;                   /* bytes that one access reads */
  uint32_t pairs; /* 1: two instructions may issue in a cycle; 2: of 16 bits, if one of them is simple */
  uint32_t slow; /* cycles more until the result of a slow one can be used */
  uint32_t mispredicted; /* cycles of a branch that goes another way than it did; 0: none is predicted */
  /* the flash */
  cache_t code, data;
  uint32_t unified; /* 1: loads use the cache of code, too */
  /* private */
  uint32_t next; /* address after the instruction timed last */
  uint32_t slot, units, loaded, pair_of_loads, bank;
  uint32_t pending; /* registers whose results may not be ready */
  decoded_t *previous; /* NULL until one is decoded; UNDECODED for one that does not matter */
  uint64_t ready[16]; /* of registers; in order of issue, of the three pipes of MVE */
  decoded_t *decoded[CODE_MEGABYTES];
} cycles_t;

/* Where an address is decoded to, or NULL; its operation may be UNDECODED. */
static inline decoded_t *utvm_decoded_at(const cycles_t *cycles, uint32_t address) {
  decoded_t *const page = cycles->decoded[address / MEGABYTE];
  return page ? &page[address % MEGABYTE / 2] : 0;
}
/* A decoded instruction begins. */
void utvm_time(cycles_t *cycles, decoded_t *it, uint32_t address);
/* The words are at the address and after it. */
void utvm_decode(cycles_t *cycles, uint32_t address, uint16_t first, uint16_t second);
/* An instruction in an IT block whose condition fails. */
void utvm_time_skipped(cycles_t *cycles, uint32_t address, uint32_t size);
/* Data is read. */
void utvm_time_read(cycles_t *cycles, uint32_t address, uint32_t size);
/* Forget an instruction unless its words are these: a translation alone changes no time. */
void utvm_forget_decoded(cycles_t *cycles, uint32_t address, uint16_t first, uint16_t second);
void utvm_release_decoded(cycles_t *cycles);

#endif
