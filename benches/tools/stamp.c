/* stamp FD: a server that answers each SIGUSR1 with the time at which it got it: eight bytes of CLOCK_MONOTONIC
 * nanoseconds. "ready" is a first time. Ends when the reader has. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main(int argc, char **argv)
{
	int out = argc > 1 ? atoi(argv[1]) : 1, signal;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	alarm(600);
	do {
		long now = nanoseconds();
		if (write(out, &now, sizeof now) != sizeof now)
			return 0;
	} while (sigwait(&set, &signal) == 0);
	return 1;
}
