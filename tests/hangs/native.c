/* Hangs that only native code can have; built by kinds.py with the compiler that Inductor needs anyway. */
#include <pthread.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

/* The parent of a vfork waits uninterruptibly ("D") until the child ends. */
void uninterruptible(void) {
    if (vfork() == 0) {
        struct timespec long_time = {600, 0};
        nanosleep(&long_time, 0);
        _exit(0);
    }
}

void take(void) { pthread_mutex_lock(&held); }

void spin(void) {
    for (volatile long z = 0;; z++) {
    }
}
