/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with an STM32, at its clock after a reset. Console on a USART: one with SR and DR (RM0090, 30.6), or
 * with ISR, RDR and TDR if the board's data has `separate` (RM0433, 48.7). Counter on a timer of 32
 * bits (RM0090, 18.4), if the data names one. Clock and pins of the USART are set up if the data gives their addresses
 * (7.3.10 to 7.3.13 and 8.4): QEMU models neither. The pin that sends and the one that receives are neighbours, both
 * below 8 or both above, and their alternate function is 7, as those of USART1 to 3 are.
 */
#include "cortex_m.h"
#include "utvm.h"

#define TIM_CR1 UTVM_REGISTER(UTVM_PORT_TIMER)
#define TIM_EGR UTVM_REGISTER(UTVM_PORT_TIMER + 0x14u)
#define TIM_CNT UTVM_REGISTER(UTVM_PORT_TIMER + 0x24u)
#define TIM_PSC UTVM_REGISTER(UTVM_PORT_TIMER + 0x28u)
#define TIM_ARR UTVM_REGISTER(UTVM_PORT_TIMER + 0x2Cu)
#ifdef UTVM_PORT_SEPARATE
#define USART_CR1 UTVM_REGISTER(UTVM_PORT_USART)
#define USART_BRR UTVM_REGISTER(UTVM_PORT_USART + 0xCu)
#define USART_SR UTVM_REGISTER(UTVM_PORT_USART + 0x1Cu)
#define USART_ICR UTVM_REGISTER(UTVM_PORT_USART + 0x20u)
#define USART_RECEIVED UTVM_REGISTER(UTVM_PORT_USART + 0x24u)
#define USART_SENT UTVM_REGISTER(UTVM_PORT_USART + 0x28u)
#define USART_CR1_UE (1u << 0)
#else
#define USART_SR UTVM_REGISTER(UTVM_PORT_USART)
#define USART_RECEIVED UTVM_REGISTER(UTVM_PORT_USART + 0x4u)
#define USART_SENT USART_RECEIVED
#define USART_BRR UTVM_REGISTER(UTVM_PORT_USART + 0x8u)
#define USART_CR1 UTVM_REGISTER(UTVM_PORT_USART + 0xCu)
#define USART_CR1_UE (1u << 13)
#endif
#define NVIC_ISPR UTVM_REGISTER(0xE000E200u + (4u * (UTVM_PORT_LINE / 32u)))

#define TIM_CR1_CEN (1u << 0)
#define TIM_EGR_UG (1u << 0)
#define USART_SR_RXNE (1u << 5)
#define USART_SR_TXE (1u << 7)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_CR1_RXNEIE (1u << 5)
#define USART_ICR_ORECF (1u << 3)

#ifdef UTVM_PORT_GPIO

#define PINS_CLOCK UTVM_REGISTER(UTVM_PORT_RCC + UTVM_PORT_PINS_CLOCK)
#define USART_CLOCK UTVM_REGISTER(UTVM_PORT_RCC + UTVM_PORT_USART_CLOCK)
#define GPIO_MODER UTVM_REGISTER(UTVM_PORT_GPIO)
#define GPIO_AFR UTVM_REGISTER(UTVM_PORT_GPIO + 0x20u + (4u * (UTVM_PORT_PIN / 8u)))
#define AFR_SHIFT (4u * (UTVM_PORT_PIN % 8u))

static void connect_pins(void) {
  /* GPIO ports are 1 KiB apart, the first one at a multiple of 64 KiB. */
  PINS_CLOCK |= 1u << ((UTVM_PORT_GPIO & 0xFFFFu) >> 10);
  USART_CLOCK |= 1u << UTVM_PORT_ENABLE;
  (void)USART_CLOCK; /* the clock needs two cycles to start */
  GPIO_MODER = (GPIO_MODER & ~(0xFu << (2u * UTVM_PORT_PIN))) | (0xAu << (2u * UTVM_PORT_PIN));
  GPIO_AFR = (GPIO_AFR & ~(0xFFu << AFR_SHIFT)) | (0x77u << AFR_SHIFT);
}

#else

static void connect_pins(void) {
}

#endif

void utvm_port_init(void) {
  connect_pins();
  USART_BRR = (UTVM_PORT_BUS_HZ + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  USART_CR1 = USART_CR1_UE | USART_CR1_TE | USART_CR1_RE;
}

#ifdef UTVM_PORT_COUNTS

/* A count is a whole number of timer ticks, which the prescaler divides by. */
void utvm_port_start_counter(void) {
  TIM_PSC = UTVM_COUNTER_TICKS - 1u;
  TIM_ARR = 0xFFFFFFFFu;
  TIM_EGR = TIM_EGR_UG; /* the prescaler counts from now on */
  TIM_CR1 = TIM_CR1_CEN;
}

uint32_t utvm_port_counter(void) {
  return TIM_CNT;
}

uint32_t utvm_port_cycles(uint32_t counts) {
  return counts;
}

#endif

static void send(uint8_t byte) {
  while ((USART_SR & USART_SR_TXE) == 0u) {
  }
  USART_SENT = byte;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    send((uint8_t)text[index]);
  }
}

void utvm_port_listen(void) {
  NVIC_ISER(UTVM_PORT_LINE) = 1u << (UTVM_PORT_LINE % 32u);
  USART_CR1 |= USART_CR1_RXNEIE;
}

/* The receive line serves both directions: it is set pending as long as there is data to send. */
void utvm_port_send(void) {
  NVIC_ISPR = 1u << (UTVM_PORT_LINE % 32u);
}

void utvm_port_drain(void) {
  /* Nothing is queued here. */
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  if ((USART_SR & USART_SR_RXNE) != 0u) {
    utvm_pipe_received((uint8_t)USART_RECEIVED);
  }
#ifdef UTVM_PORT_SEPARATE
  USART_ICR = USART_ICR_ORECF; /* otherwise an overrun would interrupt forever */
#endif
  if (utvm_pipe_next(&byte)) {
    send(byte);
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
