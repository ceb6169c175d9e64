/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of the Nucleo-F746ZG: 216 MHz from the internal oscillator, console on USART3 (PD8 transmits, PD9
 * receives: the ST-Link's virtual COM port). RPC moves the console's bytes by DMA1, stream 1 to receive and stream 3
 * to send. Register numbers: RM0385.
 *
 * The instruction cache is on. The data cache stays off: what a debugger reads is then what the core wrote, with
 * every probe and in every access mode, and the DMA needs no more than its buffers in memory.
 */
#include <stddef.h>

#include "cortex_m.h"
#include "utvm.h"

#define RCC_CR UTVM_REGISTER(0x40023800u)
#define RCC_PLLCFGR UTVM_REGISTER(0x40023804u)
#define RCC_CFGR UTVM_REGISTER(0x40023808u)
#define RCC_AHB1ENR UTVM_REGISTER(0x40023830u)
#define RCC_APB1ENR UTVM_REGISTER(0x40023840u)
#define RCC_CSR UTVM_REGISTER(0x40023874u)
#define PWR_CR1 UTVM_REGISTER(0x40007000u)
#define PWR_CSR1 UTVM_REGISTER(0x40007004u)
#define FLASH_ACR UTVM_REGISTER(0x40023C00u)
#define GPIOD_MODER UTVM_REGISTER(0x40020C00u)
#define GPIOD_AFRH UTVM_REGISTER(0x40020C24u)
#define USART3_CR1 UTVM_REGISTER(0x40004800u)
#define USART3_CR3 UTVM_REGISTER(0x40004808u)
#define USART3_BRR UTVM_REGISTER(0x4000480Cu)
#define USART3_ISR UTVM_REGISTER(0x4000481Cu)
#define USART3_ICR UTVM_REGISTER(0x40004820u)
#define USART3_RDR UTVM_REGISTER(0x40004824u)
#define USART3_TDR UTVM_REGISTER(0x40004828u)
#define DMA1_LISR UTVM_REGISTER(0x40026000u)
#define DMA1_LIFCR UTVM_REGISTER(0x40026008u)
#define DMA1_S1CR UTVM_REGISTER(0x40026028u)
#define DMA1_S1NDTR UTVM_REGISTER(0x4002602Cu)
#define DMA1_S1PAR UTVM_REGISTER(0x40026030u)
#define DMA1_S1M0AR UTVM_REGISTER(0x40026034u)
#define DMA1_S3CR UTVM_REGISTER(0x40026058u)
#define DMA1_S3NDTR UTVM_REGISTER(0x4002605Cu)
#define DMA1_S3PAR UTVM_REGISTER(0x40026060u)
#define DMA1_S3M0AR UTVM_REGISTER(0x40026064u)

#define RCC_CR_PLLON (1u << 24)
#define RCC_CR_PLLRDY (1u << 25)
#define RCC_AHB1ENR_GPIODEN (1u << 3)
#define RCC_AHB1ENR_DMA1EN (1u << 21)
#define RCC_APB1ENR_USART3EN (1u << 18)
#define RCC_APB1ENR_PWREN (1u << 28)
#define RCC_CFGR_SW_PLL 2u
#define RCC_CFGR_SWS_MASK (3u << 2)
#define RCC_CFGR_SWS_PLL (2u << 2)
#define RCC_CFGR_PPRE1_DIV4 (5u << 10)
#define RCC_CFGR_PPRE2_DIV2 (4u << 13)
#define PWR_CR1_VOS_SCALE1 (3u << 14)
#define PWR_CR1_ODEN (1u << 16)
#define PWR_CR1_ODSWEN (1u << 17)
#define PWR_CSR1_ODRDY (1u << 16)
#define PWR_CSR1_ODSWRDY (1u << 17)
#define FLASH_ACR_LATENCY_7 7u
#define FLASH_ACR_LATENCY_MASK 0xFu
#define FLASH_ACR_PRFTEN (1u << 8)
#define FLASH_ACR_ARTEN (1u << 9)
#define USART_CR1_UE (1u << 0)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_CR1_IDLEIE (1u << 4)
#define USART_CR3_EIE (1u << 0)
#define USART_CR3_DMAR (1u << 6)
#define USART_CR3_DMAT (1u << 7)
#define USART_ISR_TXE (1u << 7)
#define USART_ICR_ORECF (1u << 3)
#define USART_ICR_IDLECF (1u << 4)
#define DMA_SCR_EN (1u << 0)
#define DMA_SCR_HTIE (1u << 3)
#define DMA_SCR_TCIE (1u << 4)
#define DMA_SCR_FROM_MEMORY (1u << 6)
#define DMA_SCR_CIRC (1u << 8)
#define DMA_SCR_MINC (1u << 10)
#define DMA_SCR_CHANNEL_4 (4u << 25)
#define DMA_FLAGS_OF_1 (0x3Du << 6)
#define DMA_FLAGS_OF_3 (0x3Du << 22)
#define DMA_TCIF3 (1u << 27)
#define RCC_CSR_RMVF (1u << 24)
#define DMA1_STREAM1_LINE 12u
#define DMA1_STREAM3_LINE 14u
#define USART3_LINE 39u

#define APB1_HZ 54000000u

static volatile uint8_t incoming[512]; /* a ring buffer */
static uint32_t taken;                 /* index of the next byte to read */
static volatile uint8_t outgoing[128];
static uint32_t sending; /* bytes of it that the DMA has */

static void wait_for(volatile uint32_t *status, uint32_t mask, uint32_t value) {
  while ((*status & mask) != value) {
  }
}

/* RM0385, 5.3.2 (PLL), 4.1.4 (over-drive) and 3.3.2 (flash latency). */
static void start_clock(void) {
  RCC_APB1ENR |= RCC_APB1ENR_PWREN;
  (void)RCC_APB1ENR; /* the clock is there two cycles later */
  PWR_CR1 |= PWR_CR1_VOS_SCALE1;
  /* 16 MHz / 8 * 216 / 2 = 216 MHz; Q = 9 gives 48 MHz. The reserved bit 29 keeps its reset value. */
  RCC_PLLCFGR = 8u | (216u << 6) | (0u << 16) | (9u << 24) | (1u << 29);
  RCC_CR |= RCC_CR_PLLON;
  PWR_CR1 |= PWR_CR1_ODEN;
  wait_for(&PWR_CSR1, PWR_CSR1_ODRDY, PWR_CSR1_ODRDY);
  PWR_CR1 |= PWR_CR1_ODSWEN;
  wait_for(&PWR_CSR1, PWR_CSR1_ODSWRDY, PWR_CSR1_ODSWRDY);
  wait_for(&RCC_CR, RCC_CR_PLLRDY, RCC_CR_PLLRDY);
  FLASH_ACR = FLASH_ACR_LATENCY_7 | FLASH_ACR_PRFTEN | FLASH_ACR_ARTEN;
  wait_for(&FLASH_ACR, FLASH_ACR_LATENCY_MASK, FLASH_ACR_LATENCY_7);
  /* The buses first: they must not run too fast even for a moment. */
  RCC_CFGR = RCC_CFGR_PPRE1_DIV4 | RCC_CFGR_PPRE2_DIV2;
  RCC_CFGR |= RCC_CFGR_SW_PLL;
  wait_for(&RCC_CFGR, RCC_CFGR_SWS_MASK, RCC_CFGR_SWS_PLL);
}

static void start_instruction_cache(void) {
  __asm__ volatile("dsb\n isb" ::: "memory");
  SCB_ICIALLU = 0;
  __asm__ volatile("dsb\n isb" ::: "memory");
  SCB_CCR |= CCR_IC;
  __asm__ volatile("dsb\n isb" ::: "memory");
}

static void start_console(void) {
  RCC_AHB1ENR |= RCC_AHB1ENR_GPIODEN;
  RCC_APB1ENR |= RCC_APB1ENR_USART3EN;
  /* PD8 and PD9: alternate function 7. */
  GPIOD_MODER = (GPIOD_MODER & ~(0xFu << 16)) | (0xAu << 16);
  GPIOD_AFRH = (GPIOD_AFRH & ~0xFFu) | 0x77u;
  USART3_BRR = (APB1_HZ + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  USART3_CR1 = USART_CR1_UE | USART_CR1_TE | USART_CR1_RE;
}

void utvm_port_init(void) {
  start_clock();
  start_instruction_cache();
  start_console();
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    wait_for(&USART3_ISR, USART_ISR_TXE, USART_ISR_TXE);
    USART3_TDR = (uint8_t)text[index];
  }
}

static void enable_line(uint32_t line) {
  NVIC_ISER(line) = 1u << (line % 32u);
}

/* Writes of the core and of the DMA must be in memory before the other reads them. */
static void synchronise(void) {
  __asm__ volatile("dsb" ::: "memory");
}

/* RM0385, 8.3.17 (streams) and 31.5.15 (USART). */
void utvm_port_listen(void) {
  RCC_AHB1ENR |= RCC_AHB1ENR_DMA1EN;
  (void)RCC_AHB1ENR; /* the clock is there two cycles later */
  DMA1_S1PAR = (uint32_t)&USART3_RDR;
  DMA1_S1M0AR = (uint32_t)incoming;
  DMA1_S1NDTR = sizeof incoming;
  DMA1_S1CR = DMA_SCR_CHANNEL_4 | DMA_SCR_MINC | DMA_SCR_CIRC | DMA_SCR_HTIE | DMA_SCR_TCIE;
  DMA1_S1CR |= DMA_SCR_EN;
  DMA1_S3PAR = (uint32_t)&USART3_TDR;
  DMA1_S3M0AR = (uint32_t)outgoing;
  DMA1_S3CR = DMA_SCR_CHANNEL_4 | DMA_SCR_MINC | DMA_SCR_FROM_MEMORY | DMA_SCR_TCIE;
  USART3_CR3 = USART_CR3_DMAR | USART_CR3_DMAT | USART_CR3_EIE;
  enable_line(DMA1_STREAM1_LINE);
  enable_line(DMA1_STREAM3_LINE);
  enable_line(USART3_LINE);
  USART3_CR1 |= USART_CR1_IDLEIE;
}

void utvm_port_send(void) {
  if (sending == 0u) {
    uint32_t count = 0u;
    uint8_t byte;
    while ((count < sizeof outgoing) && utvm_pipe_next(&byte)) {
      outgoing[count] = byte;
      count++;
    }
    if (count > 0u) {
      sending = count;
      synchronise();
      DMA1_S3NDTR = count;
      DMA1_S3CR |= DMA_SCR_EN;
    }
  }
}

void utvm_port_drain(void) {
  if (sending > 0u) {
    wait_for(&DMA1_S3CR, DMA_SCR_EN, 0u);
    sending = 0u;
  }
}

static void hand_over_received(void) {
  const uint32_t end = (sizeof incoming - DMA1_S1NDTR) % sizeof incoming;
  synchronise();
  while (taken != end) {
    utvm_pipe_received(incoming[taken]);
    taken = (taken + 1u) % sizeof incoming;
  }
}

/* Flags are cleared before their causes are handled: later events set them again. */
void utvm_port_interrupt(void) {
  utvm_interrupts++;
  USART3_ICR = USART_ICR_ORECF | USART_ICR_IDLECF;
  DMA1_LIFCR = DMA_FLAGS_OF_1;
  hand_over_received();
  if ((DMA1_LISR & DMA_TCIF3) != 0u) {
    DMA1_LIFCR = DMA_FLAGS_OF_3;
    sending = 0u;
    utvm_port_send();
  }
}

/* RM0385, 5.3.21; the flags of several resets add up until they are cleared. A reset pin goes with most of them. */
const char *utvm_port_reset_cause(void) {
  static const struct {
    uint32_t flag;
    const char *cause;
  } causes[] = {
      {0x80000000u, "low power"}, {0x40000000u, "window watchdog"}, {0x20000000u, "independent watchdog"},
      {0x10000000u, "software"},  {0x08000000u, "power on"},        {0x02000000u, "brown-out"},
      {0x04000000u, "reset pin"},
  };
  static const char *cause;
  if (cause == NULL) {
    const uint32_t flags = RCC_CSR;
    cause = "unknown";
    for (uint32_t index = 0u; index < (sizeof causes / sizeof causes[0]); index++) {
      if ((flags & causes[index].flag) != 0u) {
        cause = causes[index].cause;
        break;
      }
    }
    RCC_CSR |= RCC_CSR_RMVF;
  }
  return cause;
}
