/* Clocks of a process, changed by the test that started it.
 *
 * Preloaded into a process, this library overrides the wall clock: clock_gettime (REALTIME and
 * REALTIME_COARSE), gettimeofday and time. A step of the wall clock moves no other clock, as on a
 * real machine. CLOCK_BOOTTIME can be set forward separately, as a suspend does.
 * CLOCK_MONOTONIC stays correct. A program that makes the system calls directly is not affected.
 *
 * The file named by TENURE_CLOCK_SHIM holds five 64-bit words, see clock_shim.rs:
 *   version    odd while the other words are being changed
 *   offset_ns  added to the real time
 *   base_ns    the real time at which the rate began
 *   rate_ppb   how much faster than the real clock, in parts per billion; may be negative
 *   asleep_ns  added to CLOCK_BOOTTIME
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
/* A writer that was killed during a write must not hang its readers. */
#define TRIES_MAX 1000

struct shift {
    int64_t version;
    int64_t offset_ns;
    int64_t base_ns;
    int64_t rate_ppb;
    int64_t asleep_ns;
};

static const volatile struct shift *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TENURE_CLOCK_SHIM");
    if (!path) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(struct shift), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) shift = page;
}

static struct shift read_shift(void) {
    struct shift now = {0};
    for (int tries = 0; shift && tries < TRIES_MAX; tries++) {
        now.version = shift->version;
        __sync_synchronize();
        now.offset_ns = shift->offset_ns;
        now.base_ns = shift->base_ns;
        now.rate_ppb = shift->rate_ppb;
        now.asleep_ns = shift->asleep_ns;
        __sync_synchronize();
        if (now.version % 2 == 0 && now.version == shift->version) break;
    }
    return now;
}

static int64_t shifted(clockid_t clock, int64_t now_ns) {
    struct shift now = read_shift();
    if (clock == CLOCK_BOOTTIME) return now_ns + now.asleep_ns;
    __int128 gained_ns = (__int128)(now_ns - now.base_ns) * now.rate_ppb / NS_PER_S;
    return now_ns + now.offset_ns + (int64_t)gained_ns;
}

static int is_turned(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_BOOTTIME;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    /* Another library's constructor may call this before ours has run. */
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, time);
    if (result == 0 && is_turned(clock)) {
        int64_t ns = shifted(clock, time->tv_sec * NS_PER_S + time->tv_nsec);
        time->tv_sec = ns / NS_PER_S;
        time->tv_nsec = ns % NS_PER_S;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (result == 0 && time) {
        time->tv_sec = now.tv_sec;
        time->tv_usec = now.tv_nsec / 1000;
    }
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
