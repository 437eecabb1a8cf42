/* tree FIFO SHAPE COUNT [ignore]: a tree of COUNT processes that each hold FIFO open for writing, so
 * that its reader learns by the end of file when the last one is gone. Each writes one byte when it is
 * set up. "ignore": SIGTERM is ignored. Shapes: flat (children of the first), daemon (double-forked,
 * each in a session of its own), wide (a fan-out of ten), deep (a chain).
 * Bounded: the count is an argument, and every member ends by itself after LIFE seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFE 120
#define MOST 10000

static int fifo;

static void stay(void)
{
	alarm(LIFE);
	if (write(fifo, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static pid_t make(void)
{
	pid_t pid = fork();
	if (pid < 0)
		_exit(1);
	return pid;
}

static void daemonize(void)
{
	pid_t pid = make();
	if (pid > 0) {
		waitpid(pid, NULL, 0);
		return;
	}
	setsid();
	if (make() == 0)
		stay();
	_exit(0);
}

/* A process with `count` - 1 others below it, ten to a parent. */
static void wide(int count)
{
	int below = count - 1;
	for (int child = 0; child < 10 && below > 0; child++) {
		int share = (below + 9 - child) / (10 - child);
		below -= share;
		if (make() == 0)
			wide(share);
	}
	stay();
}

int main(int argc, char **argv)
{
	int count = argc > 3 ? atoi(argv[3]) : 0;
	if (count < 1 || count > MOST)
		return 2;
	fifo = open(argv[1], O_WRONLY | O_CLOEXEC);
	if (fifo < 0)
		return 1;
	if (argc > 4)
		signal(SIGTERM, SIG_IGN);
	if (strcmp(argv[2], "flat") == 0) {
		for (int child = 1; child < count; child++)
			if (make() == 0)
				stay();
	} else if (strcmp(argv[2], "daemon") == 0) {
		for (int child = 1; child < count; child++)
			daemonize();
	} else if (strcmp(argv[2], "wide") == 0) {
		wide(count);
	} else {
		while (--count > 0 && make() == 0)
			;
	}
	stay();
}
