/* orphans COUNT BURST: a server that leaves COUNT orphans behind, BURST at a time. Each has ended before the
 * reaper adopts it. Prints three numbers: nanoseconds from the adoption of a burst until the reaper has reaped
 * all of it, summed up; the reaper's processor time meanwhile; 1 if all were reaped (else 0).
 * The reaper is the parent of this process, or the ancestor that adopts orphans. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int reaper;

static int read_file(const char *name, char *text, int size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", reaper, name);
	int fd = open(path, O_RDONLY), got = -1;
	if (fd >= 0) {
		got = read(fd, text, size - 1);
		close(fd);
	}
	text[got < 0 ? 0 : got] = 0;
	return got;
}

/* Time on a processor, from the scheduler's own account. */
static long used(void)
{
	char text[128];
	return read_file("schedstat", text, sizeof text) > 0 ? atol(text) : 0;
}

/* Whether this process is the only child of the reaper. */
static int alone(void)
{
	char name[64], text[64], own[32];
	snprintf(name, sizeof name, "task/%d/children", reaper);
	snprintf(own, sizeof own, "%d ", getpid());
	read_file(name, text, sizeof text);
	return strcmp(text, own) == 0;
}

int main(int argc, char **argv)
{
	int count = atoi(argv[1]), burst = atoi(argv[2]), done = 0, taken = 1;
	long wall = 0, before;
	struct timespec moment = { 0, 100000 };
	if (argc != 3 || count > 200000 || burst > 20000 || burst < 1)
		return 2;
	reaper = getppid();
	before = used();
	for (; done < count && taken; done += burst) {
		int ready[2];
		char byte;
		if (pipe(ready) != 0)
			return 1;
		pid_t maker = fork();
		if (maker == 0) {
			for (int i = 0; i < burst; i++)
				if (vfork() == 0)
					_exit(0);
			_exit(0);
		}
		close(ready[1]);
		/* End of file when the maker begins to exit: that is the hand-over. */
		if (maker < 0 || read(ready[0], &byte, 1) != 0)
			return 1;
		long start = nanoseconds();
		close(ready[0]);
		waitpid(maker, NULL, 0);
		while (!alone()) {
			if (nanoseconds() - start > 5000000000L) {
				taken = 0;
				break;
			}
			nanosleep(&moment, NULL);
		}
		wall += nanoseconds() - start;
	}
	printf("%ld %ld %d\n", wall, used() - before, taken);
	return 0;
}
