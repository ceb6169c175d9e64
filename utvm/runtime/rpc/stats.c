/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "stats.h"

#include "link.h"
#include "memory.h"
#include "server.h"
#include "utvm.h"

static void add(utvm_text_t *text, const char *name, uint64_t number) {
  utvm_text_add(text, ", \"");
  utvm_text_add(text, name);
  utvm_text_add(text, "\": ");
  utvm_text_add_number(text, (int64_t)number);
}

static void write_stats(utvm_text_t *text) {
  const utvm_link_counts_t link = utvm_link_counts();
  utvm_text_clear(text);
  utvm_text_add(text, "{\"board\": \"" UTVM_BOARD_NAME "\", \"reset_cause\": \"");
  utvm_text_add(text, utvm_port_reset_cause());
  utvm_text_add(text, "\"");
  add(text, "clock_hz", UTVM_CLOCK_HZ);
  add(text, "calls", utvm_server_calls());
  add(text, "runs", utvm_reply.runs);
  add(text, "cycles", utvm_reply.cycles);
  add(text, "stack_bytes", utvm_stack_used());
  add(text, "memory_bytes", utvm_memory_used());
  add(text, "memory_bytes_at_most", utvm_memory_used_at_most());
  add(text, "interrupts", utvm_interrupts);
  add(text, "bytes_received", link.received);
  add(text, "crc_errors", link.crc_errors);
  add(text, "packets_dropped", link.dropped);
  add(text, "answers_repeated", link.repeated);
  utvm_text_add(text, "}");
}

bool utvm_tell_stats(const utvm_call_t *call) {
  utvm_text_t text;
  write_stats(&text);
  utvm_write_result_bytes(call->reply, UTVM_TYPE_TEXT, text.bytes, text.length);
  return true;
}
