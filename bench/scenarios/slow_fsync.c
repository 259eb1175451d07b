/* Delays fsync and fdatasync by SLOW_FSYNC_US microseconds, as a slow disk would: see slow_disk.ts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void) {
  const char *us = getenv("SLOW_FSYNC_US");
  long ns = us == NULL ? 0 : atol(us) * 1000;
  struct timespec time = {ns / 1000000000, ns % 1000000000};
  nanosleep(&time, NULL);
}

int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  delay();
  return real(fd);
}

int fdatasync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
  delay();
  return real(fd);
}
