/* Preloaded into a Redis server: its wall clock shows the number in a file (us), and goes on by so many us whenever it is read.
 *
 * So a test decides what the time is; and with a step a schedule that is played twice sees the same time, and two moments
 * never have the same one. The file is mapped into memory: a look at it takes no system call. The monotonic clock stays the machine's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shown;
static int64_t step;

__attribute__((constructor)) static void map_file(void) {
  const char *path = getenv("TBLOOM_CLOCK_FILE");
  const char *given = getenv("TBLOOM_CLOCK_STEP");
  if (given) step = atoi(given);
  int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) shown = page;
}

static int64_t next_us(void) { return __atomic_add_fetch(shown, step, __ATOMIC_SEQ_CST); }

int clock_gettime(clockid_t id, struct timespec *out) {
  static int (*real)(clockid_t, struct timespec *);
  if (!shown || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return real(id, out);
  }
  int64_t us = next_us();
  out->tv_sec = us / 1000000;
  out->tv_nsec = us % 1000000 * 1000;
  return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
