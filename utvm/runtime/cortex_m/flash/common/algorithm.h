/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A flash algorithm as CMSIS packs have them (Open-CMSIS-Pack, "Flash programming"), for a debugger that has none for the chip:
 * it loads the code anywhere into RAM and calls a function at a time. Each returns 0, or something else where it failed. There
 * are no variables: nobody would set them up.
 */
#ifndef UTVM_FLASH_ALGORITHM_H
#define UTVM_FLASH_ALGORITHM_H

#include <stdint.h>

#include "bare_metal.h"

/** Begins: to erase where what is 1, to program where it is 2. */
int Init(uint32_t address, uint32_t clock, uint32_t what);

/** Ends what Init began. */
int UnInit(uint32_t what);

/** Erases the sector that begins at an address. */
int EraseSector(uint32_t address);

/** Programs bytes, a multiple of four of them, in one page. */
int ProgramPage(uint32_t address, uint32_t size, const uint32_t *data);

#endif
