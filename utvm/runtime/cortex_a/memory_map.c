/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory management unit: addresses are not translated, and only those that the board has are mapped. So caches work,
 * unaligned accesses are allowed, and a stack overflow or a null pointer faults at the instruction that causes it.
 * Without the unit, data is never cached and unaligned accesses are faults (ARM DDI 0406C, B3.2.1 and A3.2.1).
 *
 * The level 2 cache stays as it is: off after a reset. Descriptors: DDI 0406C, B3.5.1; attributes: B3.8.2.
 */
#include <stddef.h>

#include "cortex_a.h"
#include "utvm.h"

#define MEBIBYTE 0x100000u
#define SECTIONS 4096u
#define PAGE_BYTES 4096u
#define PAGES 256u /* in a section */
#define PAGE_TABLES 4u

#define SECTION 0x2u
#define SECTION_FULL_ACCESS 0xC00u
#define SECTION_NORMAL 0x100Cu /* write-back, write-allocate */
#define SECTION_DEVICE (1u << 2)
#define SECTION_NEVER_EXECUTED (1u << 4)
#define PAGE_TABLE 0x1u
#define PAGE 0x2u
#define PAGE_FULL_ACCESS (3u << 4)
#define PAGE_NORMAL ((1u << 6) | (1u << 3) | (1u << 2))

#define SCTLR_MMU (1u << 0)
#define SCTLR_DATA_CACHE (1u << 2)
#define SCTLR_BRANCH_PREDICTION 0x0800u
#define SCTLR_INSTRUCTION_CACHE 0x1000u
#define DOMAIN_0_CLIENT 1u

#ifdef UTVM_PORT_TICKS
#ifdef UTVM_PORT_UART
const utvm_peripherals_t utvm_port_peripherals[] = {{UTVM_PORT_UART & ~(MEBIBYTE - 1u), 1u}};
const uint32_t utvm_port_peripherals_count = 1u;
#else
const utvm_peripherals_t utvm_port_peripherals[] = {{0u, 0u}};
const uint32_t utvm_port_peripherals_count = 0u;
#endif
#endif

static uint32_t sections[SECTIONS] __attribute__((aligned(4 * SECTIONS)));
static uint32_t pages[PAGE_TABLES][PAGES] __attribute__((aligned(4 * PAGES)));
static uint32_t page_tables;

/* Return the page table of a section; create it, with all pages unmapped, on first use. */
static uint32_t *pages_of(uint32_t section) {
  uint32_t *found = NULL;
  uint32_t table;
  for (table = 0u; table < page_tables; table++) {
    if (sections[section] == ((uint32_t)pages[table] | PAGE_TABLE)) {
      found = pages[table];
    }
  }
  if ((found == NULL) && (page_tables < PAGE_TABLES)) {
    found = pages[page_tables];
    page_tables++;
    sections[section] = (uint32_t)found | PAGE_TABLE;
  }
  return found;
}

static void map_memory(uint32_t first, uint32_t bytes) {
  uint32_t done = 0u;
  while (done < bytes) {
    const uint32_t address = first + done;
    const uint32_t section = address / MEBIBYTE;
    if (((address % MEBIBYTE) == 0u) && ((bytes - done) >= MEBIBYTE)) {
      sections[section] = address | SECTION_FULL_ACCESS | SECTION_NORMAL | SECTION;
      done += MEBIBYTE;
    } else {
      uint32_t *const table = pages_of(section);
      if (table != NULL) {
        table[(address / PAGE_BYTES) % PAGES] = address | PAGE_FULL_ACCESS | PAGE_NORMAL | PAGE;
      }
      done += PAGE_BYTES;
    }
  }
}

static void map_peripherals(const utvm_peripherals_t *part) {
  uint32_t number;
  for (number = 0u; number < part->mebibytes; number++) {
    const uint32_t address = part->address + (number * MEBIBYTE);
    sections[address / MEBIBYTE] =
        address | SECTION_FULL_ACCESS | SECTION_DEVICE | SECTION_NEVER_EXECUTED | SECTION;
  }
}

void utvm_memory_map(void) {
  static const utvm_memory_t memory[] = {UTVM_MEMORY};
  uint32_t control;
  uint32_t number;
  for (number = 0u; number < ((uint32_t)sizeof memory / (uint32_t)sizeof memory[0]); number++) {
    map_memory(memory[number].address, memory[number].bytes);
  }
  for (number = 0u; number < utvm_port_peripherals_count; number++) {
    map_peripherals(&utvm_port_peripherals[number]);
  }
  /* Private peripherals of the core: interrupts and timers. */
  const utvm_peripherals_t private = {(uint32_t)utvm_private_base() & ~(MEBIBYTE - 1u), 1u};
  map_peripherals(&private);
#ifdef UTVM_ACCELERATOR
  sections[UTVM_ACCELERATOR / MEBIBYTE] = utvm_port_accelerator(UTVM_ACCELERATOR) | SECTION_FULL_ACCESS |
                                          SECTION_DEVICE | SECTION_NEVER_EXECUTED | SECTION;
#endif
  /* The data cache was off, so the tables are in memory. */
  __asm__ volatile("dsb" ::: "memory");
  __asm__ volatile("mcr p15, 0, %0, c2, c0, 2" ::"r"(0u));                 /* TTBCR: one table */
  __asm__ volatile("mcr p15, 0, %0, c2, c0, 0" ::"r"((uint32_t)sections)); /* TTBR0 */
  __asm__ volatile("mcr p15, 0, %0, c3, c0, 0" ::"r"(DOMAIN_0_CLIENT));    /* DACR */
  __asm__ volatile("mcr p15, 0, %0, c8, c7, 0" ::"r"(0u));                 /* TLBIALL */
  __asm__ volatile("dsb\n isb" ::: "memory");
  __asm__ volatile("mrc p15, 0, %0, c1, c0, 0" : "=r"(control));
  control |= SCTLR_MMU | SCTLR_DATA_CACHE | SCTLR_BRANCH_PREDICTION | SCTLR_INSTRUCTION_CACHE;
  __asm__ volatile("mcr p15, 0, %0, c1, c0, 0\n dsb\n isb" ::"r"(control) : "memory");
}
