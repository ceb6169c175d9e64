/* SPDX-License-Identifier: Apache-2.0 */
/* The console's interrupt lines, for ports that architectures share. */
#include "bare_metal.h"

void utvm_console_lines_on(void) {
  static const int32_t lines[] = {UTVM_CONSOLE_IRQS};
  uint32_t number;
  for (number = 0u; number < ((uint32_t)sizeof lines / (uint32_t)sizeof lines[0]); number++) {
    if (lines[number] >= 0) {
      utvm_interrupts_from((uint32_t)lines[number]);
    }
  }
}
