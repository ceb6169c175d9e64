/* SPDX-License-Identifier: Apache-2.0 */
/* The flash of the nRF53 (nRF5340 Product Specification 1.3, NVMC). */
#include "algorithm.h"

#define NVMC_READY UTVM_REGISTER(UTVM_PORT_NVMC + 0x400u)
#define NVMC_CONFIG UTVM_REGISTER(UTVM_PORT_NVMC + 0x504u)
#define NVMC_CONFIG_READ 0u
#define NVMC_CONFIG_WRITE 1u
#define NVMC_CONFIG_ERASE 2u

static void wait_until_ready(void) {
  while (NVMC_READY == 0u) {
  }
}

static void allow(uint32_t what) {
  NVMC_CONFIG = what;
  wait_until_ready();
}

int Init(uint32_t address, uint32_t clock, uint32_t what) {
  (void)address;
  (void)clock;
  (void)what;
  wait_until_ready();
  return 0;
}

int UnInit(uint32_t what) {
  (void)what;
  allow(NVMC_CONFIG_READ);
  return 0;
}

int EraseSector(uint32_t address) {
  allow(NVMC_CONFIG_ERASE);
  UTVM_REGISTER(address) = 0xFFFFFFFFu; /* writing the first word erases the page */
  wait_until_ready();
  return 0;
}

int ProgramPage(uint32_t address, uint32_t size, const uint32_t *data) {
  uint32_t at;
  allow(NVMC_CONFIG_WRITE);
  for (at = 0; at < size; at += 4u) {
    UTVM_REGISTER(address + at) = data[at / 4u];
    wait_until_ready();
  }
  return 0;
}
