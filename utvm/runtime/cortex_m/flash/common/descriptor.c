/* SPDX-License-Identifier: Apache-2.0 */
/* A flash algorithm's description, which a debugger reads before loading it; the numbers are from the board's file. */
#include "algorithm.h"

struct sector {
  uint32_t bytes, offset;
};

extern const struct flash_device {
  uint16_t version;
  char name[128];
  uint16_t kind; /* 1: on the chip */
  uint32_t start, bytes, page, reserved;
  uint8_t erased;
  uint32_t program_ms, erase_ms;
  struct sector sectors[UTVM_FLASH_KINDS + 1u];
} FlashDevice;

/* clang-format off */
__attribute__((section("DevDscr"), used)) const struct flash_device FlashDevice = {
    0x101u, UTVM_FLASH_NAME, 1u, UTVM_FLASH_START, UTVM_FLASH_BYTES, UTVM_FLASH_PAGE, 0u, 0xFFu, 1000u, 3000u,
    {UTVM_FLASH_SECTORS, {0xFFFFFFFFu, 0xFFFFFFFFu}}};
/* clang-format on */
