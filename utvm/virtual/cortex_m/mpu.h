/* SPDX-License-Identifier: Apache-2.0 */
/* The memory protection unit: registers, and the rights that follow from them; mpu.py mirrors it. */
#ifndef UTVM_MPU_H
#define UTVM_MPU_H

#include <stdint.h>

enum { MPU_REGIONS = 16, MPU_KNOWN = 256, MPU_GRANULE_BITS = 5 };
enum { MPU_ENABLE = 1, MPU_HFNMIENA = 2, MPU_PRIVDEFENA = 4 };
/* Rights of unprivileged code; those of privileged code are three bits above. */
enum { RIGHT_READ = 1, RIGHT_WRITE = 2, RIGHT_EXECUTE = 4, PRIVILEGED_SHIFT = 3 };
/* used */
enum { MPU_ENABLED_ONCE = 1, MPU_UNPRIVILEGED = 2, MPU_FILTERS_DATA = 4, MPU_FILTERS_CODE = 8 };
enum { MODE_UNREAD = 0, MODE_UNPRIVILEGED = 1, MODE_PRIVILEGED = 2, MODE_UNCHECKED = 3 };

typedef struct {
  uint32_t v8;      /* the registers of Armv8-M: RBAR and RLAR */
  uint32_t count;   /* of regions */
  uint32_t control; /* MPU_CTRL; from here on, a reset clears */
  uint32_t used;    /* whether it was enabled, unprivileged code ran, and it may refuse accesses to memory */
  uint32_t address; /* of the access that was refused */
  /* private */
  uint32_t mode;   /* of the code that runs */
  uint32_t number; /* MPU_RNR */
  uint32_t attributes[2];
  uint32_t regions[MPU_REGIONS][2];
  uint32_t granules[MPU_KNOWN]; /* number + 1 of those whose rights are known */
  uint8_t rights[MPU_KNOWN];
} mpu_t;

uint32_t utvm_permits(mpu_t *mpu, uint32_t address, uint32_t size, uint32_t rights);

#endif
