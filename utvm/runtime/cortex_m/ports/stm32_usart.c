/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with an STM32 whose USART has SR and DR, at the clock that a reset leaves. Console on a USART (RM0090,
 * 30.6), counter on a timer of 32 bits (18.4), where the board's data names one. Clock and pins of the USART are set up
 * where the data says where they are (7.3.10 to 7.3.13 and 8.4): QEMU models neither. The pin that sends and the one that
 * receives are neighbours, at 0 to 6, and their alternate function is 7, as those of USART1 to 3 are.
 */
#include "cortex_m.h"
#include "utvm.h"

#define TIM_CR1 UTVM_REGISTER(UTVM_PORT_TIMER)
#define TIM_EGR UTVM_REGISTER(UTVM_PORT_TIMER + 0x14u)
#define TIM_CNT UTVM_REGISTER(UTVM_PORT_TIMER + 0x24u)
#define TIM_PSC UTVM_REGISTER(UTVM_PORT_TIMER + 0x28u)
#define TIM_ARR UTVM_REGISTER(UTVM_PORT_TIMER + 0x2Cu)
#define USART_SR UTVM_REGISTER(UTVM_PORT_USART)
#define USART_DR UTVM_REGISTER(UTVM_PORT_USART + 0x4u)
#define USART_BRR UTVM_REGISTER(UTVM_PORT_USART + 0x8u)
#define USART_CR1 UTVM_REGISTER(UTVM_PORT_USART + 0xCu)
#define NVIC_ISPR UTVM_REGISTER(0xE000E200u + (4u * (UTVM_PORT_LINE / 32u)))

#define TIM_CR1_CEN (1u << 0)
#define TIM_EGR_UG (1u << 0)
#define USART_SR_RXNE (1u << 5)
#define USART_SR_TXE (1u << 7)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_CR1_RXNEIE (1u << 5)
#define USART_CR1_UE (1u << 13)

#ifdef UTVM_PORT_GPIO

#define RCC_AHB1ENR UTVM_REGISTER(UTVM_PORT_RCC + 0x30u)
#define RCC_APB1ENR UTVM_REGISTER(UTVM_PORT_RCC + 0x40u)
#define GPIO_MODER UTVM_REGISTER(UTVM_PORT_GPIO)
#define GPIO_AFRL UTVM_REGISTER(UTVM_PORT_GPIO + 0x20u)

static void connect_pins(void) {
  /* A port of pins takes 1 KiB, the first of all lies at a multiple of 64 KiB. */
  RCC_AHB1ENR |= 1u << ((UTVM_PORT_GPIO & 0xFFFFu) >> 10);
  RCC_APB1ENR |= 1u << UTVM_PORT_ENABLE;
  (void)RCC_APB1ENR; /* the clock is there two cycles later */
  GPIO_MODER = (GPIO_MODER & ~(0xFu << (2u * UTVM_PORT_PIN))) | (0xAu << (2u * UTVM_PORT_PIN));
  GPIO_AFRL = (GPIO_AFRL & ~(0xFFu << (4u * UTVM_PORT_PIN))) | (0x77u << (4u * UTVM_PORT_PIN));
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

/* A count is a whole number of the timer's ticks, which its prescaler makes one. */
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
  USART_DR = byte;
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

/* The line on which it receives stands for both: it is made pending as long as there is something to send. */
void utvm_port_send(void) {
  NVIC_ISPR = 1u << (UTVM_PORT_LINE % 32u);
}

void utvm_port_drain(void) {
  /* Each byte is handed over as it is taken. */
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  if ((USART_SR & USART_SR_RXNE) != 0u) {
    utvm_pipe_received((uint8_t)USART_DR);
  }
  if (utvm_pipe_next(&byte)) {
    send(byte);
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
