/* SPDX-License-Identifier: Apache-2.0 */
/* The data that an instruction reads, from its opcode and the registers before it. */
#ifndef UTVM_LOADS_H
#define UTVM_LOADS_H

#include <stdint.h>

enum { NO_INDEX = 15 };

typedef struct {
  uint8_t count, width; /* of the reads, and bytes of each; they are consecutive */
  uint8_t base, index;  /* registers; base 15 is the word of PC */
  uint8_t shift;        /* of the index, to the left */
  int32_t offset;
} load_t;

/* The words are at the address and after it. */
void utvm_decode_load(load_t *load, uint32_t first, uint32_t second);

#endif
