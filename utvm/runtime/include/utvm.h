/**
 * The device runtime: what a board's port provides, what programs look like, and what the host reads.
 *
 * A firmware image holds the runtime, one board's port and a table of programs. A program is a compiled model
 * (or hand-written C with the same signature). The host talks to it through the debug port: it stops the core
 * at utvm_host_turn(), writes utvm_request and the program's input buffers, lets the core run, and finds the
 * outputs and utvm_reply when the core arrives there again.
 */
#ifndef UTVM_H
#define UTVM_H

#include <stdint.h>

/** Buffers and arenas are aligned to this many bytes. */
#define UTVM_ALIGNMENT 16
#define UTVM_ALIGNED __attribute__((aligned(UTVM_ALIGNMENT)))

/**
 * Run a program once.
 *
 * @param inputs   one pointer an input, each aligned and as large as the program's metadata says
 * @param outputs  one pointer an output
 * @param arena    working memory shared by all programs of the image
 * @return 0, or the program's own error code
 */
typedef int32_t (*utvm_run_t)(const void *const *inputs, void *const *outputs, uint8_t *arena);

/** One entry of the program table. */
typedef struct {
  const char *name;
  utvm_run_t run;
  const void *const *inputs;
  void *const *outputs;
} utvm_program_t;

/** The program table; the firmware builder writes it. */
extern const utvm_program_t utvm_programs[];
extern const uint32_t utvm_program_count;
extern uint8_t utvm_arena[];

/** What the host asks for: written by the host while the core is stopped at utvm_host_turn(). */
typedef struct {
  uint32_t program; /**< index into utvm_programs */
} utvm_request_t;

/** What the host reads back. */
typedef struct {
  uint32_t runs;       /**< runs since reset */
  int32_t status;      /**< what the program returned; UTVM_NO_SUCH_PROGRAM for a bad index */
  uint64_t cycles;     /**< core clock cycles of the run */
  uint32_t stack_used; /**< bytes of stack used since reset, at most */
  uint32_t interrupts; /**< interrupts taken since reset */
} utvm_reply_t;

/** Status for a request that names no program. */
#define UTVM_NO_SUCH_PROGRAM (-1000)

extern volatile utvm_request_t utvm_request;
extern volatile utvm_reply_t utvm_reply;

/** The host's breakpoint: the core is here whenever it waits for a request. */
void utvm_host_turn(void);

/** What the fault handler found (ARM DDI 0403E, B1.5.6 and B3.2). */
typedef struct {
  uint32_t magic;       /**< UTVM_FAULT_MAGIC once the record is complete */
  uint32_t exception;   /**< exception number, IPSR */
  uint32_t cfsr;        /**< Configurable Fault Status Register */
  uint32_t hfsr;        /**< HardFault Status Register */
  uint32_t mmfar;       /**< MemManage Fault Address Register */
  uint32_t bfar;        /**< BusFault Address Register */
  uint32_t exc_return;  /**< EXC_RETURN of the fault */
  uint32_t sp;          /**< stack pointer at the exception frame */
  uint32_t frame_valid; /**< 1 if the frame lies in memory, so that the words below are real */
  uint32_t frame[8];    /**< r0 r1 r2 r3 r12 lr pc xpsr */
} utvm_fault_t;

#define UTVM_FAULT_MAGIC 0x544C5546u /* "FULT" */

extern volatile utvm_fault_t utvm_fault;

/** The host's second breakpoint: the core is here, for good, once utvm_fault is complete. */
void utvm_fault_stop(void);

/** Start the 64-bit cycle counter. */
void utvm_cycles_start(void);

/** Core clock cycles since utvm_cycles_start(). */
uint64_t utvm_cycles(void);

/** Bytes of stack that have been used since reset, at most. */
uint32_t utvm_stack_used(void);

/** Interrupts taken since reset; handlers of the runtime add to it. */
extern volatile uint32_t utvm_interrupts;

/** Initialise the board: clocks and the console. Called once, after memory is ready. */
void utvm_port_init(void);

/** Write bytes to the board's console; returns when they are handed over. */
void utvm_port_write(const char *text, uint32_t size);

/** The executor; called by the start-up code, never returns. */
void utvm_main(void);

#endif
