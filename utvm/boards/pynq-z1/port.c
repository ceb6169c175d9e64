/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of the PYNQ-Z1 (Xilinx UG585: chapter 25 for clocks, 19 for UARTs, 2 for pins, appendix B for registers). The
 * oscillator has 50 MHz; cores at 650 MHz, UARTs at 100 MHz. Console on UART0.
 */
#include "cortex_a.h"
#include "utvm.h"

#define SLCR_UNLOCK UTVM_REGISTER(0xF8000008u)
#define ARM_PLL_CTRL 0xF8000100u
#define IO_PLL_CTRL 0xF8000108u
#define PLL_STATUS UTVM_REGISTER(0xF800010Cu)
#define ARM_PLL_CFG 0xF8000110u
#define IO_PLL_CFG 0xF8000118u
#define ARM_CLK_CTRL UTVM_REGISTER(0xF8000120u)
#define APER_CLK_CTRL UTVM_REGISTER(0xF800012Cu)
#define UART_CLK_CTRL UTVM_REGISTER(0xF8000154u)
#define FPGA0_CLK_CTRL UTVM_REGISTER(0xF8000170u)
#define FPGA_RST_CTRL UTVM_REGISTER(0xF8000240u)
#define REBOOT_STATUS UTVM_REGISTER(0xF8000258u)
#define PSS_IDCODE UTVM_REGISTER(0xF8000530u)
#define MIO_PIN_14 UTVM_REGISTER(0xF8000738u)
#define MIO_PIN_15 UTVM_REGISTER(0xF800073Cu)
#define LVL_SHFTR_EN UTVM_REGISTER(0xF8000900u)
#define DEVCFG_INT_STS UTVM_REGISTER(0xF800700Cu)
#define UART0_CR UTVM_REGISTER(0xE0000000u)
#define UART0_MR UTVM_REGISTER(0xE0000004u)
#define UART0_IER UTVM_REGISTER(0xE0000008u)
#define UART0_IDR UTVM_REGISTER(0xE000000Cu)
#define UART0_ISR UTVM_REGISTER(0xE0000014u)
#define UART0_BAUDGEN UTVM_REGISTER(0xE0000018u)
#define UART0_RXWM UTVM_REGISTER(0xE0000020u)
#define UART0_SR UTVM_REGISTER(0xE000002Cu)
#define UART0_FIFO UTVM_REGISTER(0xE0000030u)
#define UART0_BAUDDIV UTVM_REGISTER(0xE0000034u)

#define SLCR_KEY 0xDF0Du
#define PLL_RESET (1u << 0)
#define PLL_POWER_DOWN (1u << 1)
#define PLL_BYPASS (1u << 4)
#define PLL_FACTOR_SHIFT 12u
#define PLL_FACTOR_MASK 0x7F000u
#define ARM_PLL_FACTOR 26u  /* 1300 MHz */
#define ARM_PLL_FILTER 0x001772C0u /* table 25-6: lock count 375, CP 2, RES 12 */
#define ARM_PLL_LOCKED (1u << 0)
#define IO_PLL_FACTOR 20u   /* 1000 MHz */
#define IO_PLL_FILTER 0x001F42C0u /* lock count 500, CP 2, RES 12 */
#define IO_PLL_LOCKED (1u << 2)
#define ARM_CLOCKS_BY_2 0x1F000200u
#define UART0_BUS_CLOCK 0x100000u
#define UART_CLOCKS_BY_10 0x00000A03u
#define LOGIC_CLOCK_BY_10 0x00100A00u /* of the I/O PLL: 100 MHz */
#define LOGIC_BOTH_WAYS 0xFu
#define LOGIC_IS_PROGRAMMED (1u << 2)
#define PIN_UART_RECEIVES 0x000006E1u /* LVCMOS33, UART, no output */
#define PIN_UART_SENDS 0x000006E0u

#define CR_RESET_BOTH 0x03u
#define CR_BOTH_ON 0x14u
#define MR_8N1 0x20u
#define EVENT_RECEIVED (1u << 0)
#define EVENT_SENT (1u << 3)
#define EVENTS 0x1FFFu
#define STATE_NOTHING_RECEIVED (1u << 1)
#define STATE_FULL (1u << 4)
#define UART0_LINE 59u

#define UART_HZ 100000000u
#define BAUD_DIVIDER 6u
#define TICKS_OF_5_INSTRUCTIONS 16u

const utvm_peripherals_t utvm_port_peripherals[] = {
    {0xE0000000u, 3u}, /* UG585, table 4-1: I/O peripherals */
    {0xF8000000u, 16u} /* system control, and what is private to the cores */
};
const uint32_t utvm_port_peripherals_count =
    (uint32_t)sizeof utvm_port_peripherals / (uint32_t)sizeof utvm_port_peripherals[0];

/* The chip's identity is 0 in QEMU, and has only a revision, no part number, in utvm's model. */
static bool is_emulated(void) {
  return (PSS_IDCODE << 4) == 0u;
}

/* The PLL may be set correctly already: the boot image may have done it, and it may clock the core. */
static void start_pll(uint32_t control, uint32_t filter_at, uint32_t factor, uint32_t filter, uint32_t locked) {
  const uint32_t setting = factor << PLL_FACTOR_SHIFT;
  const uint32_t now = UTVM_REGISTER(control);
  if ((now & (PLL_FACTOR_MASK | PLL_BYPASS | PLL_POWER_DOWN | PLL_RESET)) != setting) {
    UTVM_REGISTER(control) = setting | PLL_BYPASS;
    UTVM_REGISTER(filter_at) = filter;
    UTVM_REGISTER(control) = setting | PLL_BYPASS | PLL_RESET;
    UTVM_REGISTER(control) = setting | PLL_BYPASS;
    while ((PLL_STATUS & locked) == 0u) {
    }
    UTVM_REGISTER(control) = setting;
  }
}

static void start_clocks(void) {
  SLCR_UNLOCK = SLCR_KEY;
  start_pll(ARM_PLL_CTRL, ARM_PLL_CFG, ARM_PLL_FACTOR, ARM_PLL_FILTER, ARM_PLL_LOCKED);
  ARM_CLK_CTRL = ARM_CLOCKS_BY_2;
  start_pll(IO_PLL_CTRL, IO_PLL_CFG, IO_PLL_FACTOR, IO_PLL_FILTER, IO_PLL_LOCKED);
  APER_CLK_CTRL |= UART0_BUS_CLOCK;
  UART_CLK_CTRL = UART_CLOCKS_BY_10;
}

void utvm_port_init(void) {
  start_clocks();
  MIO_PIN_14 = PIN_UART_RECEIVES;
  MIO_PIN_15 = PIN_UART_SENDS;
  UART0_IDR = EVENTS;
  UART0_MR = MR_8N1;
  UART0_BAUDDIV = BAUD_DIVIDER - 1u;
  UART0_BAUDGEN = (UART_HZ + (BAUD_DIVIDER * UTVM_CONSOLE_BAUD / 2u)) / (BAUD_DIVIDER * UTVM_CONSOLE_BAUD);
  UART0_RXWM = 1u;
  UART0_CR = CR_RESET_BOTH;
  while ((UART0_CR & CR_RESET_BOTH) != 0u) {
  }
  UART0_CR = CR_BOTH_ON;
}

#ifdef UTVM_ACCELERATOR
/*
 * Programmable logic is at M_AXI_GP0. QEMU has none: the first MiB of DDR, which images leave alone, is there instead,
 * with a model behind it. Models know whether they were programmed. On the chip, a core that reads an address that
 * nothing answers hangs forever.
 */
uint32_t utvm_port_accelerator(uint32_t address) {
  return (PSS_IDCODE == 0u) ? 0u : (address & 0xFFF00000u);
}

bool utvm_port_start_accelerator(void) {
  const bool programmed = is_emulated() || ((DEVCFG_INT_STS & LOGIC_IS_PROGRAMMED) != 0u);
  if (programmed) {
    SLCR_UNLOCK = SLCR_KEY;
    FPGA0_CLK_CTRL = LOGIC_CLOCK_BY_10;
    LVL_SHFTR_EN = LOGIC_BOTH_WAYS;
    FPGA_RST_CTRL = 0u;
  }
  return programmed;
}
#endif

/*
 * On the chip, the global timer counts half as fast as a core (UG585, 8.3). In QEMU it ticks every 10 ns, an
 * instruction takes 32 ns, and the difference of two readings is wrong by less than a tick: the nearest whole number
 * of instructions is exact.
 */
uint64_t utvm_port_cycles_of_ticks(uint64_t ticks) {
  return is_emulated() ? (((5u * ticks) + (TICKS_OF_5_INSTRUCTIONS / 2u)) / TICKS_OF_5_INSTRUCTIONS)
                       : (2u * ticks);
}

uint64_t utvm_port_ticks(uint64_t cycles) {
  return is_emulated() ? ((TICKS_OF_5_INSTRUCTIONS * cycles) / 5u) : (cycles / 2u);
}

static void send(uint8_t byte) {
  while ((UART0_SR & STATE_FULL) != 0u) {
  }
  UART0_FIFO = byte;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    send((uint8_t)text[index]);
  }
}

void utvm_port_listen(void) {
  UART0_ISR = EVENTS;
  UART0_IER = EVENT_RECEIVED;
  utvm_interrupts_from(UART0_LINE);
}

/* The queue continues when all of this has been sent. The old event is cleared first. */
void utvm_port_send(void) {
  uint8_t byte;
  UART0_IDR = EVENT_SENT;
  UART0_ISR = EVENT_SENT;
  while (((UART0_SR & STATE_FULL) == 0u) && utvm_pipe_next(&byte)) {
    UART0_FIFO = byte;
    UART0_IER = EVENT_SENT;
  }
}

void utvm_port_drain(void) {
  /* Each byte is handed over as it is taken. */
}

void utvm_port_interrupt(void) {
  utvm_interrupts++;
  UART0_ISR = EVENT_RECEIVED;
  while ((UART0_SR & STATE_NOTHING_RECEIVED) == 0u) {
    utvm_pipe_received((uint8_t)UART0_FIFO);
  }
  utvm_port_send();
}

/* REBOOT_STATUS (UG585, B.28) keeps the causes until they are written. */
const char *utvm_port_reset_cause(void) {
  const uint32_t causes = REBOOT_STATUS >> 16;
  const char *words = "not known";
  if ((causes & (1u << 6)) != 0u) {
    words = "power on";
  } else if ((causes & (1u << 5)) != 0u) {
    words = "reset pin";
  } else if ((causes & (1u << 3)) != 0u) {
    words = "software";
  } else if ((causes & 0x7u) != 0u) {
    words = "watchdog";
  } else if ((causes & (1u << 4)) != 0u) {
    words = "debugger";
  } else {
    /* an unknown cause */
  }
  return words;
}
