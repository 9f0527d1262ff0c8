/* Steps the wall clock of one process: loaded before the C library, it adds an offset to what clock_gettime says of
 * CLOCK_REALTIME. The offset, in milliseconds, is the first 8 bytes of the file that CHAOS_CLOCK names, and may change
 * at any time; the next 8 bytes count how often a stepped time was told. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct shared {
    int64_t offset_ms;
    int64_t told;
};

static struct shared *shared;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) abort();
    void *mapped = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    close(file);
    shared = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result != 0 || !shared || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int64_t offset = __atomic_load_n(&shared->offset_ms, __ATOMIC_RELAXED);
    if (offset == 0) return result;
    __atomic_fetch_add(&shared->told, 1, __ATOMIC_RELAXED);
    int64_t seconds = offset / 1000, nanos = (offset % 1000) * 1000000 + time->tv_nsec;
    if (nanos < 0) nanos += 1000000000, seconds -= 1;
    if (nanos >= 1000000000) nanos -= 1000000000, seconds += 1;
    time->tv_sec += seconds;
    time->tv_nsec = nanos;
    return result;
}
