/* Moves the wall clock of the processes it is loaded into (LD_PRELOAD) by the seconds that the file MOVED_CLOCK holds:
   eight octets, an integer of the machine, read anew at each look at the time. The monotonic clock, sleeps and waits
   stay as they are. (libfaketime 0.9.10 has time.sleep fail and locks hang in threads of Python 3.11.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int clock_function(clockid_t, struct timespec *);

static const volatile int64_t *offset_s;
static clock_function *true_clock;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MOVED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset_s = page;
}

int clock_gettime(clockid_t which, struct timespec *at)
{
    if (!true_clock)
        true_clock = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");
    int failed = true_clock(which, at);
    if (!failed && offset_s && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        at->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now))
        return -1;
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
