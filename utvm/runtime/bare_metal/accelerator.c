/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of the functions that the driver of an accelerator calls: no data cache is on, and the board has nothing to
 * start. */
#include "bare_metal.h"

__attribute__((weak)) void utvm_cache_hand_over(const void *data, uint32_t bytes) {
  (void)data;
  (void)bytes;
  __sync_synchronize();
}

__attribute__((weak)) void utvm_cache_forget(const void *data, uint32_t bytes) {
  (void)data;
  (void)bytes;
  __sync_synchronize();
}

__attribute__((weak)) bool utvm_port_start_accelerator(void) {
  return true;
}
