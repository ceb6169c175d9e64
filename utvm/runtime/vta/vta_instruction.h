/* SPDX-License-Identifier: Apache-2.0 */
/* An instruction of VTA as 128 bits, and its fields. vta_config.h defines the fields: VTA_GEMM_DST_OUT is a lowest bit
 * and a width, which are two arguments. */
#ifndef VTA_INSTRUCTION_H
#define VTA_INSTRUCTION_H

#include <stdint.h>

#include "vta_config.h"

typedef struct {
  uint64_t words[2];
} vta_instruction;

/* The stages, in the order of the queues between them. */
typedef enum { VTA_STAGE_LOAD, VTA_STAGE_COMPUTE, VTA_STAGE_STORE, VTA_STAGES } vta_stage;

/* A fault, for callers that can print: the violated rule, or none. */
typedef struct {
  const char *rule; /* the violated rule; NULL if there is no fault */
  int64_t value; /* the wrong value */
  int64_t limit; /* the limit that it was compared with */
  int32_t number; /* of the instruction in its run, or -1 for one that was not queued */
  vta_instruction instruction; /* its bits */
} vta_fault;

/* Returns the value of a field of at most 32 bits. */
static inline uint32_t vta_get(const vta_instruction *instruction, uint32_t low, uint32_t width) {
  return (uint32_t)(instruction->words[low >> 6] >> (low & 63u) & ((UINT64_C(1) << width) - 1u));
}

/* Sets a field; the caller has checked that the value fits. */
static inline void vta_put(vta_instruction *instruction, uint32_t low, uint32_t width, uint32_t value) {
  const uint64_t mask = ((UINT64_C(1) << width) - 1u) << (low & 63u);
  uint64_t *word = &instruction->words[low >> 6];
  *word = (*word & ~mask) | ((uint64_t)value << (low & 63u) & mask);
}

/* Returns the stage that runs an instruction: compute itself loads its own memories. */
static inline vta_stage vta_stage_of(const vta_instruction *instruction) {
  const uint32_t opcode = vta_get(instruction, VTA_FIELD_OPCODE);
  const uint32_t memory = vta_get(instruction, VTA_LOAD_MEM);
  if (opcode == VTA_OPCODE_STORE) {
    return VTA_STAGE_STORE;
  }
  if (opcode == VTA_OPCODE_LOAD && (memory == VTA_INP || memory == VTA_WGT)) {
    return VTA_STAGE_LOAD;
  }
  return VTA_STAGE_COMPUTE;
}

#endif
