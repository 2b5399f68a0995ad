/* Preloaded into a Redis server: adds the number of milliseconds in the file SHIFT_FILE to its clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift_ms(void) {
  char text[32] = {0};
  const char *path = getenv("SHIFT_FILE");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return 0;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  return size > 0 ? atoll(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *out) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, out);
  if (id == CLOCK_REALTIME) {
    long long ns = out->tv_nsec + shift_ms() * 1000000;
    out->tv_sec += ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    if (out->tv_nsec < 0) { out->tv_nsec += 1000000000; out->tv_sec--; }
  }
  return result;
}

int gettimeofday(struct timeval *out, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
