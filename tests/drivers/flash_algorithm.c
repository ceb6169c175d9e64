/* SPDX-License-Identifier: Apache-2.0
 * A flash algorithm as CMSIS packs hold them (Open-CMSIS-Pack, "Flash Programming"), for the STM32F746 (RM0385, 3).
 * It is written for the tests, and runs from whatever RAM it is put into. */

#include <stdint.h>

#define KEYR (*(volatile uint32_t *)0x40023C04u)
#define SR (*(volatile uint32_t *)0x40023C0Cu)
#define CR (*(volatile uint32_t *)0x40023C10u)
#define BUSY (1u << 16)
#define ERRORS 0xF2u
#define PROGRAM 1u
#define ERASE 2u
#define START (1u << 16)
#define WORDS (2u << 8)
#define LOCK (1u << 31)

static int done(void) {
  while (SR & BUSY) {
  }
  return (SR & ERRORS) != 0;
}

int Init(uint32_t address, uint32_t clock, uint32_t what) {
  (void)address, (void)clock, (void)what;
  if (CR & LOCK) {
    KEYR = 0x45670123u;
    KEYR = 0xCDEF89ABu;
  }
  SR = ERRORS;
  return (CR & LOCK) != 0;
}

int UnInit(uint32_t what) {
  (void)what;
  CR = LOCK;
  return 0;
}

int EraseSector(uint32_t address) {
  uint32_t offset = address - 0x08000000u;
  uint32_t number = offset < 0x20000u ? offset / 0x8000u : offset < 0x40000u ? 4u : 4u + offset / 0x40000u;
  CR = ERASE | WORDS | number << 3;
  CR |= START;
  return done();
}

int ProgramPage(uint32_t address, uint32_t size, const uint32_t *data) {
  CR = PROGRAM | WORDS;
  for (uint32_t at = 0; at < size; at += 4u) {
    *(volatile uint32_t *)(address + at) = data[at / 4u];
    if (done()) {
      return 1;
    }
  }
  return 0;
}

struct sector {
  uint32_t size, start;
};

__attribute__((section("DevDscr"), used)) const struct {
  uint16_t version;
  char name[128];
  uint16_t kind;
  uint32_t start, size, page, reserved;
  uint8_t erased;
  uint32_t program_ms, erase_ms;
  struct sector sectors[4];
} FlashDevice = {
    0x101u, "The tests' own", 1u, 0x08000000u, 0x100000u, 1024u, 0u, 0xFFu, 100u, 6000u,
    {{0x8000u, 0u}, {0x20000u, 0x20000u}, {0x40000u, 0x40000u}, {0xFFFFFFFFu, 0xFFFFFFFFu}}};
