/* Appends a line to FSYNC_LOG for each fsync and fdatasync: when it began and ended, in microseconds of the monotonic
   clock, and the program. See programs/slowest.ts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int timed(const char *name, int file) {
  static int log = -1;
  int (*real)(int) = dlsym(RTLD_NEXT, name);
  long long from = now_us();
  int result = real(file);
  int error = errno;
  const char *path = getenv("FSYNC_LOG");
  if (log == -1 && path != NULL) log = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (log != -1) dprintf(log, "[\"%s: fsync\",%lld,%lld]\n", program_invocation_short_name, from, now_us());
  errno = error;
  return result;
}

int fsync(int file) { return timed("fsync", file); }
int fdatasync(int file) { return timed("fdatasync", file); }
