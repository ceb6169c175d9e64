/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer's way into the RPC server: the first byte says what the rest is. Even: bytes on the wire. Odd: requests,
 * each behind its length (16 bits), which saves the fuzzer the search for checksums.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "builtins.h"
#include "link.h"
#include "model_functions.h"
#include "modules.h"
#include "pipe.h"
#include "server.h"
#include "utvm.h"

#define HEAP_BYTES 8192u
#define NUMBERS 4u

static uint8_t heap[HEAP_BYTES] UTVM_ALIGNED;
uint8_t *const utvm_heap_start = heap;
uint8_t *const utvm_heap_end = &heap[HEAP_BYTES];
uint64_t utvm_step_cycles[1];
const uint32_t utvm_step_room = 1u;
uint8_t utvm_arena[16] UTVM_ALIGNED;

static uint64_t cycles;
static int32_t input[NUMBERS];
static int32_t output[NUMBERS];

static int32_t run(const void *const *inputs, void *const *outputs, uint8_t *arena) {
  const int32_t *x = inputs[0];
  int32_t *y = outputs[0];
  (void)arena;
  for (uint32_t index = 0u; index < NUMBERS; index++) {
    y[index] = x[index] ^ 1;
  }
  return 0;
}

static const void *const inputs[] = {input, 0};
static void *const outputs[] = {output, 0};
const utvm_program_t utvm_programs[] = {{"m", run, inputs, outputs}};
const uint32_t utvm_program_count = 1u;

static const uint32_t shape[] = {NUMBERS};
static const utvm_tensor_type_t types[] = {{0u, 32u, 1u, shape, sizeof input}};
const utvm_signature_t utvm_signatures[] = {{types, 1u, types, 1u}};

static void flip(void *const *tensors) {
  const uint8_t *x = tensors[0];
  uint8_t *y = tensors[1];
  for (uint32_t index = 0u; index < 16u; index++) {
    y[index] = (uint8_t)~x[index];
  }
}

static const uint32_t sizes[] = {16u, 16u};
const utvm_operator_t utvm_operators[] = {{"flip", flip, sizes, 2u}};
const uint32_t utvm_operator_count = 1u;
uint32_t utvm_operator_uses[1];

/* As TVM's compiler would have it: it looks at what it is passed. */
static int32_t sum(void *self, const utvm_any_t *arguments, int32_t count, utvm_any_t *result) {
  (void)self;
  result->type = UTVM_TYPE_INTEGER;
  for (int32_t index = 0; index < count; index++) {
    if (arguments[index].type == UTVM_TYPE_TENSOR) {
      const utvm_dl_tensor_t *tensor = (const utvm_dl_tensor_t *)(uintptr_t)arguments[index].number;
      uint64_t bytes = ((uint64_t)tensor->bits * tensor->lanes) / 8u;
      for (int32_t dimension = 0; dimension < tensor->dimensions; dimension++) {
        bytes *= (uint64_t)tensor->shape[dimension];
      }
      /* Both ends: it may be asked for a million times. */
      if (bytes > 0u) {
        result->number += ((const uint8_t *)tensor->data)[0];
        result->number += ((const uint8_t *)tensor->data)[bytes - 1u];
      }
    } else {
      result->number += arguments[index].number;
    }
  }
  return (result->number % 7u == 3u) ? -1 : 0;
}

const utvm_tensor_function_t utvm_tensor_functions[] = {{"sum", utvm_call_compiled, sum},
                                                        {"main", utvm_run_on_tensors, 0}};
const uint32_t utvm_tensor_function_count = 2u;
uint32_t utvm_tensor_function_uses[2];

uint8_t utvm_pipe_read(void) {
  abort(); /* the server is handed its bytes */
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  /* Every byte is looked at, so that one that was never written is noticed. */
  static volatile uint8_t last;
  for (uint32_t index = 0u; index < count; index++) {
    last = bytes[index];
  }
  (void)last;
}

const char *utvm_port_reset_cause(void) {
  return "fuzzer";
}

void utvm_alarm(uint64_t cycles) {
  (void)cycles;
}

uint64_t utvm_cycles(void) {
  /* Time flies: an evaluator that waits for a millisecond is soon done. */
  cycles += UTVM_CLOCK_HZ;
  return cycles;
}

uint32_t utvm_stack_used(void) {
  return 0u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0u) {
    return 0;
  }
  utvm_builtins_init();
  utvm_link_init();
  if ((data[0] & 1u) == 0u) {
    for (size_t index = 1u; index < size; index++) {
      utvm_link_take(data[index]);
    }
  } else {
    size_t position = 1u;
    while ((size - position) >= 2u) {
      uint8_t *reply = malloc(UTVM_RPC_PACKET_BYTES);
      size_t length = (size_t)data[position] | ((size_t)data[position + 1u] << 8);
      position += 2u;
      if (length > (size - position)) {
        length = size - position;
      }
      /* A copy of its own size: one byte too many that is read is found. */
      uint8_t *request = malloc(length + 1u);
      if ((reply == NULL) || (request == NULL)) {
        abort();
      }
      (void)memcpy(request, &data[position], length);
      request = realloc(request, (length > 0u) ? length : 1u);
      const uint32_t answered = utvm_server_answer(request, (uint32_t)length, reply);
      if (answered > UTVM_RPC_PACKET_BYTES) {
        abort();
      }
      free(request);
      free(reply);
      position += length;
    }
  }
  return 0;
}
