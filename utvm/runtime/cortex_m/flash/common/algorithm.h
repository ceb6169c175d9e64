/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A flash algorithm as in CMSIS packs (Open-CMSIS-Pack, "Flash programming"), for a debugger without one for the chip: it
 * loads the code anywhere into RAM and calls one function at a time. Each returns 0, or another value on failure. There are
 * no variables, since they would not be initialised.
 */
#ifndef UTVM_FLASH_ALGORITHM_H
#define UTVM_FLASH_ALGORITHM_H

#include <stdint.h>

#include "bare_metal.h"

/** Starts an operation: 1 to erase, 2 to program. */
int Init(uint32_t address, uint32_t clock, uint32_t what);

/** Ends what Init began. */
int UnInit(uint32_t what);

/** Erases the sector that begins at an address. */
int EraseSector(uint32_t address);

/** Programs bytes, a multiple of four of them, in one page. */
int ProgramPage(uint32_t address, uint32_t size, const uint32_t *data);

#endif
