/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that jumps: preloaded, it adds the seconds in the file UTVM_FAULTS_CLOCK to what the wall clock says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *jump;

__attribute__((constructor)) static void find_jump(void) {
  const char *name = getenv("UTVM_FAULTS_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) {
    return;
  }
  void *page = mmap(0, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
  jump = page == MAP_FAILED ? 0 : page;
  close(file);
}

int clock_gettime(clockid_t which, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  }
  int code = real(which, now);
  if (code == 0 && which == CLOCK_REALTIME && jump) {
    now->tv_sec += *jump;
  }
  return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  int code = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return code;
}

time_t time(time_t *out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out) {
    *out = exact.tv_sec;
  }
  return exact.tv_sec;
}
