/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver of an accelerator asks for, where there is nothing to do: no cache that holds data is on, and the board
 * has not to start anything. */
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
