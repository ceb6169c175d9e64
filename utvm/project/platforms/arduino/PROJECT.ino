/* Runs {{ name }} once and reports on Serial. What it asks for of a board is here; the application is src/main.c. */
#include <{{ name }}.h>

extern "C" {
#include "src/utvm.h"

void utvm_port_init(void) {
  Serial.begin(115200);
  while (!Serial) {
  }
}

void utvm_port_write(const char *text, uint32_t size) {
  Serial.write(reinterpret_cast<const uint8_t *>(text), size);
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}

void utvm_cycles_start(void) {
}

/* Of the core's clock, by Arduino's, which has microseconds. */
uint64_t utvm_cycles(void) {
  static uint32_t last;
  static uint64_t total;
  const uint32_t now = micros();
  total += static_cast<uint32_t>(now - last);
  last = now;
  return total * (F_CPU / 1000000u);
}

void utvm_alarm(uint64_t) {
  /* nothing watches over runs */
}

uint32_t utvm_stack_used(void) {
  return 0;  /* not known */
}

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = 0;
  return nullptr;
}

void utvm_fault_stop(void) {
  for (;;) {
  }
}
}

void setup() {
  utvm_main();
}

void loop() {
}
