/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a core that C and Python share; core.py mirrors it. */
#ifndef UTVM_CORE_H
#define UTVM_CORE_H

#include "cycles.h"
#include "mpu.h"

#include <stdint.h>

enum {
  MEGABYTE_BITS = 20,
  MEGABYTES = 4096,
  BREAKPOINTS = 12,
  WATCHPOINTS = 4,
  MEMORIES = 16,
  STORES = 32, /* of one instruction; the most are 16 double words */
  UNICORN_WRITE = 17
};
enum { REGISTER_LR = 10, REGISTER_SP = 12, REGISTER_R0 = 66 };
enum { REGISTER_FAULTMASK = 126 };
enum { REGISTER_S0 = 79, REGISTER_FPSCR = 6, REGISTER_XPSR = 120, REGISTER_CONTROL = 117 };
enum { WATCH_READ = 1, WATCH_WRITE = 2 };
/* FPCCR.LSPACT; FPDSCR is not zero, so that the first instruction of a context needs it */
enum { FLOAT_PENDING = 1, FLOAT_DEFAULTS = 2 };

typedef struct {
  const uint8_t *bytes; /* where this process has them */
  uint32_t start, size;
} memory_t;

typedef struct {
  uint32_t first, last; /* bytes watched, both included */
  uint32_t access;      /* WATCH_READ | WATCH_WRITE, 0 = unused */
} watchpoint_t;

typedef struct {
  uint32_t address, size;
  uint8_t bytes[8]; /* previous content */
} store_t;

typedef struct {
  /* inputs */
  int32_t (*emulation_stop)(void *engine);
  int32_t (*register_read)(void *engine, int32_t id, void *value);
  int32_t (*register_write)(void *engine, int32_t id, const void *value);
  uint32_t memory_count;
  memory_t memories[MEMORIES];
  /* time */
  uint64_t count;    /* instructions begun */
  uint64_t deadline; /* stop when as many have begun */
  /* requests */
  volatile uint32_t stop; /* stop before the next instruction; any thread may set it */
  uint32_t pass;          /* address of an instruction that executes without a stop, or 1 */
  uint32_t masks_matter;  /* stop after an instruction that may unmask a pending exception */
  uint32_t trap_division, trap_unaligned, float_enabled; /* 0 or 1; float_enabled: its instructions are plain */
  uint32_t float_access; /* CPACR.CP10: 1 for privileged code, 3 for all */
  uint32_t float_lazy;   /* stop before a floating-point instruction: FLOAT_PENDING, FLOAT_DEFAULTS */
  uint32_t event; /* the event register, set by SEV */
  uint32_t limits[2]; /* of the main and the process stack, on Armv8-M */
  uint32_t breakpoint_count;
  uint32_t breakpoints[BREAKPOINTS];
  uint32_t checked;     /* 1: the memory protection unit checks every instruction */
  uint32_t code_memory; /* index of the memory whose code was read last */
  watchpoint_t watchpoints[WATCHPOINTS];
  /* results */
  uint32_t reason;       /* enum stop */
  uint32_t begun;        /* address of the instruction begun last */
  uint32_t watch_hits;   /* one bit a watchpoint */
  /* an instruction to undo */
  uint32_t undo;          /* whether there is one */
  uint32_t undo_reason;   /* enum stop, STOP_NONE if a device refused it */
  uint64_t undo_count;    /* count with it */
  uint32_t undo_address;
  uint32_t saved[16];     /* r0-r12, SP, LR, xPSR before it */
  uint32_t saved_float[33]; /* s0-s31, FPSCR before it */
  uint32_t store_count;
  store_t stores[STORES];       /* to undo, from the refused one on */
  /* private: the current IT block */
  uint32_t conditional;         /* 1 from IT until the first instruction after the block */
  uint32_t conditional_left;    /* instructions of it to come */
  uint32_t conditional_address; /* of the next of them */
  uint32_t conditional_index;   /* how many of them came already */
  uint32_t conditional_block;   /* address of IT, or 1 if the block was resumed in the middle */
  uint32_t conditional_state;   /* ITSTATE where it was resumed */
  uint32_t inside;              /* whether the instruction begun last belongs to it */
  cycles_t *cycles;             /* the model of them, or NULL */
  uint32_t exclusive;           /* whether the local monitor is open: since LDREX, without an exception */
  uint64_t unprivileged;        /* count with an LDRT or STRT that begins */
  mpu_t mpu;
  uint8_t *kinds[MEGABYTES];
} core_t;

uint32_t utvm_allows(void *engine, core_t *core, uint32_t address, uint32_t size, uint32_t right);

#endif
