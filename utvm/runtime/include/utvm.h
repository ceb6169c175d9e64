/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The device runtime: what a board's port provides, what programs look like, and what the host reads.
 *
 * A firmware image holds the runtime, one board's port and a table of programs. A program is a compiled model
 * (or hand-written C with the same signature). The host talks to it through the debug port: it stops the core
 * at utvm_host_turn(), writes utvm_request and the program's inputs, lets the core run, and finds the outputs
 * and utvm_reply when the core arrives there again. Inputs and outputs lie in utvm_arena, and a run may overwrite
 * its inputs: they are written before every run.
 */
#ifndef UTVM_H
#define UTVM_H

#include <stdbool.h>
#include <stdint.h>

/** The arena is aligned to this many bytes. */
#ifndef UTVM_ALIGNMENT
#define UTVM_ALIGNMENT 16
#endif
#define UTVM_ALIGNED __attribute__((aligned(UTVM_ALIGNMENT)))

/**
 * Run a program once.
 *
 * @param inputs   one pointer for each input, each aligned and as large as the program's metadata says
 * @param outputs  one pointer for each output
 * @param arena    working memory shared by all programs of the image; inputs and outputs may lie in it
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

/** Memory that nothing else uses, for tensors of an RPC client. */
extern uint8_t *const utvm_heap_start;
extern uint8_t *const utvm_heap_end;

/** Type and shape of an input or output. */
typedef struct {
  uint8_t code;          /**< kind of element (DLDataTypeCode of DLPack) */
  uint8_t bits;          /**< of an element */
  uint8_t dimensions;    /**< 0 for a scalar */
  const uint32_t *shape; /**< elements in each dimension */
  uint32_t bytes;        /**< of the whole tensor */
} utvm_tensor_type_t;

/** Types of a program's tensors, for RPC clients. */
typedef struct {
  const utvm_tensor_type_t *inputs;
  uint32_t input_count;
  const utvm_tensor_type_t *outputs;
  uint32_t output_count;
} utvm_signature_t;

/** One entry for each program; the firmware builder writes it. */
extern const utvm_signature_t utvm_signatures[];

/** An operator of a model, for RPC clients. */
typedef struct {
  const char *name;
  void (*run)(void *const *tensors);
  const uint32_t *bytes; /**< of each tensor */
  uint32_t count;        /**< of tensors */
} utvm_operator_t;

/** The operators of all models, and how many handles of each are in use; the firmware builder writes them. */
extern const utvm_operator_t utvm_operators[];
extern const uint32_t utvm_operator_count;
extern uint32_t utvm_operator_uses[];

/** In place of an index: nothing runs. */
#define UTVM_NOTHING 0xFFFFFFFFu

/**
 * What is running: the index of a program and the step that it is in, or utvm_program_count and the index of an
 * operator that is called by itself.
 */
typedef struct {
  uint32_t program;
  uint32_t step;
} utvm_running_t;

extern volatile utvm_running_t utvm_running;

/** Whether the time of each step is stored, and where; the firmware builder sets the number of steps. */
extern volatile bool utvm_profiling;
extern uint64_t utvm_step_cycles[];
extern const uint32_t utvm_step_room;

/** Count time for this step from now on; for utvm_step(). */
void utvm_profile_step(uint32_t number);

/** Store the cycles of each step of the next run in utvm_step_cycles, until utvm_profiling is cleared. */
void utvm_profile_begin(void);

/** The run has ended at this count of cycles; for utvm_run(). */
void utvm_profile_end(uint64_t cycles);

/** Called before and after every run, by its caller. */
void utvm_run_begins(uint32_t program, uint32_t step);
void utvm_run_ends(void);

/** Limit the cycles of each following run; a longer one is a fault. 0 is no limit. */
void utvm_limit_runs(uint64_t cycles);

/** Cause a fault after so many cycles; 0 cancels it. A board may take one tick of SysTick longer. */
void utvm_alarm(uint64_t cycles);

/** The host's request, written while the core is stopped at utvm_host_turn(). */
typedef struct {
  uint32_t program; /**< index into utvm_programs */
} utvm_request_t;

/** Results of the last run. */
typedef struct {
  uint32_t runs;       /**< runs since reset */
  int32_t status;      /**< what the program returned; UTVM_NO_SUCH_PROGRAM for a bad index */
  uint64_t cycles;     /**< core clock cycles of the run */
  uint32_t stack_used; /**< bytes of stack used since reset, at most; the host-driven executor keeps it */
  uint32_t interrupts; /**< interrupts taken since reset */
} utvm_reply_t;

/** Status for a request that names no program. */
#define UTVM_NO_SUCH_PROGRAM (-1000)

extern volatile utvm_request_t utvm_request;
extern volatile utvm_reply_t utvm_reply;

/** Run a program once on its inputs, and store the results in utvm_reply; returns its status. */
int32_t utvm_run(uint32_t program);

/** The host's breakpoint: the core is here whenever it waits for a request. */
void utvm_host_turn(void);

/** Maximum bytes of stack in a fault report. */
#define UTVM_FAULT_STACK_BYTES 1024u

/** Bytes of an assertion's message, with its terminating zero. */
#define UTVM_FAULT_WORDS_BYTES 96u

/** Status words and registers in a fault record; the architecture defines their meaning. */
#define UTVM_FAULT_STATUS_WORDS 6u
#define UTVM_FAULT_REGISTERS 33u

/** A fault record. */
typedef struct {
  uint32_t magic;           /**< UTVM_FAULT_MAGIC once the record is complete */
  uint32_t exception;       /**< its number in the architecture */
  uint32_t status[UTVM_FAULT_STATUS_WORDS]; /**< fault status registers */
  uint32_t registers_valid; /**< 0 if the stack failed: only the stack pointer is valid */
  uint32_t program;         /**< utvm_running */
  uint32_t step;
  uint32_t stack_bytes;     /**< of the stack, at most UTVM_FAULT_STACK_BYTES */
  uint64_t stack;           /**< start address of the stored stack */
  uint64_t registers[UTVM_FAULT_REGISTERS]; /**< at the fault, by DWARF number */
  char words[UTVM_FAULT_WORDS_BYTES]; /**< message of an assertion, else empty */
} utvm_fault_t;

#define UTVM_FAULT_MAGIC 0x544C5546u /* "FULT" */

extern volatile utvm_fault_t utvm_fault;

/** Start utvm_fault: clear it except for an assertion's message, and record what was running. */
void utvm_fault_begin(void);

/** The stack that goes with a fault: from the place of the fault to its callers. */
const uint8_t *utvm_fault_stack(uint32_t *bytes);

/** Stop with an assertion's message: its place in the source, and the expression that is false. */
void utvm_assertion_failed(const char *file, int line, const char *expression);

/** Called once utvm_fault is complete: the executor tells the host, if it can. */
void utvm_fault_report(void);

/** The host's second breakpoint: the core is here, for good, once utvm_fault is complete. */
void utvm_fault_stop(void);

/** Whether there is a cycle counter; without one, all counts are 0. */
#ifdef UTVM_NOBODY_COUNTS
#define UTVM_HAS_COUNTER false
#else
#define UTVM_HAS_COUNTER true
#endif

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

/**
 * For a board with cycle_counter: port in board.yaml: start a counter, read it, and convert the difference of two
 * readings to cycles. It counts up and has 32 bits, which must take longer to wrap than SysTick's 24.
 */
void utvm_port_start_counter(void);
uint32_t utvm_port_counter(void);
uint32_t utvm_port_cycles(uint32_t counts);

/**
 * Take bytes from the console by interrupts: the port's handler hands them to utvm_pipe_received(). Called once,
 * before utvm_port_send().
 */
void utvm_port_listen(void);

/**
 * Send queued bytes by interrupts: call utvm_pipe_next() until it returns false, now or in the port's handler. Called
 * with interrupts masked.
 */
void utvm_port_send(void);

/** For faults: wait, without interrupts, until all bytes of utvm_pipe_next() are sent and utvm_port_write() can follow. */
void utvm_port_drain(void);

/** The handler of the console's interrupt lines, which board.yaml names. */
void utvm_port_interrupt(void);

/** For the port's handler: a byte was received. */
void utvm_pipe_received(uint8_t byte);

/** For the port's handler: the next byte to send; false if there is none. */
bool utvm_pipe_next(uint8_t *byte);

/** Why the board was reset last, in a few words. */
const char *utvm_port_reset_cause(void);

/** The executor; called by the start-up code. Returns, if at all, when nothing is left to do. */
void utvm_main(void);

#endif
