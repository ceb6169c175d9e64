/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of the Netduino Plus 2, for QEMU, which models neither clocks nor pins: the chip's reset and clock controller,
 * its flash interface and its GPIO are left as a reset leaves them. Console on USART1 (RM0090, 30.6), counter on TIM2
 * (18.4); addresses: 2.3.
 */
#include "cortex_m.h"
#include "utvm.h"

#define TIM2_CR1 UTVM_REGISTER(0x40000000u)
#define TIM2_EGR UTVM_REGISTER(0x40000014u)
#define TIM2_CNT UTVM_REGISTER(0x40000024u)
#define TIM2_PSC UTVM_REGISTER(0x40000028u)
#define TIM2_ARR UTVM_REGISTER(0x4000002Cu)
#define USART1_SR UTVM_REGISTER(0x40011000u)
#define USART1_DR UTVM_REGISTER(0x40011004u)
#define USART1_BRR UTVM_REGISTER(0x40011008u)
#define USART1_CR1 UTVM_REGISTER(0x4001100Cu)
#define NVIC_ISPR1 UTVM_REGISTER(0xE000E204u)

#define TIM_CR1_CEN (1u << 0)
#define TIM_EGR_UG (1u << 0)
#define USART_SR_RXNE (1u << 5)
#define USART_SR_TXE (1u << 7)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_CR1_RXNEIE (1u << 5)
#define USART_CR1_UE (1u << 13)
#define USART1_LINE 37u

/* The internal oscillator, from which everything runs after a reset (RM0090, 7.2.2). */
#define BUS_HZ 16000000u
/* QEMU's timers have a clock of 1 GHz, and an instruction takes 8 ns. */
#define TICKS_AN_INSTRUCTION 8u

void utvm_port_init(void) {
  USART1_BRR = (BUS_HZ + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  USART1_CR1 = USART_CR1_UE | USART_CR1_TE | USART_CR1_RE;
}

void utvm_port_start_counter(void) {
  TIM2_PSC = TICKS_AN_INSTRUCTION - 1u;
  TIM2_ARR = 0xFFFFFFFFu;
  TIM2_EGR = TIM_EGR_UG; /* the prescaler counts from now on */
  TIM2_CR1 = TIM_CR1_CEN;
}

uint32_t utvm_port_counter(void) {
  return TIM2_CNT;
}

uint32_t utvm_port_cycles(uint32_t counts) {
  return counts;
}

static void send(uint8_t byte) {
  while ((USART1_SR & USART_SR_TXE) == 0u) {
  }
  USART1_DR = byte;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    send((uint8_t)text[index]);
  }
}

void utvm_port_listen(void) {
  NVIC_ISER(USART1_LINE) = 1u << (USART1_LINE % 32u);
  USART1_CR1 |= USART_CR1_RXNEIE;
}

/* The line on which it receives stands for both: it is made pending as long as there is something to send. */
void utvm_port_send(void) {
  NVIC_ISPR1 = 1u << (USART1_LINE % 32u);
}

void utvm_port_drain(void) {
  /* Each byte is handed over as it is taken. */
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  if ((USART1_SR & USART_SR_RXNE) != 0u) {
    utvm_pipe_received((uint8_t)USART1_DR);
  }
  if (utvm_pipe_next(&byte)) {
    send(byte);
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
