/* startup RUNS PAUSE 'COMMAND|ARG|...' ...: starts the commands in turn, each after a pause of PAUSE ms. As in real
 * life, each start pays for work that the kernel has deferred at the end of the one before. Prints for each command
 * a line of RUNS times in nanoseconds, from posix_spawn until reaped, then a line of processor times of the same runs.
 * The runs are in rounds, each in a random order: the load of the machine affects all commands alike, and none of
 * them always follows the same other one. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define WARM_UP 20
#define MAX_ARGS 32

static long nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static long processor(const struct rusage *use)
{
	return (use->ru_utime.tv_sec + use->ru_stime.tv_sec) * 1000000000L +
	       (use->ru_utime.tv_usec + use->ru_stime.tv_usec) * 1000L;
}

int main(int argc, char **argv)
{
	int runs = atoi(argv[1]), pause = atoi(argv[2]), count = argc - 3;
	char *(*commands)[MAX_ARGS] = calloc(count, sizeof *commands);
	long *wall = calloc((size_t)count * runs, sizeof *wall);
	long *cpu = calloc((size_t)count * runs, sizeof *cpu);
	int *order = calloc(count, sizeof *order);
	char *environment[] = { "PATH=/usr/bin:/bin", "HOME=/", NULL };

	for (int i = 0; i < count; i++) {
		int n = 0;
		order[i] = i;
		for (char *word = strtok(argv[3 + i], "|"); word; word = strtok(NULL, "|"))
			if (n < MAX_ARGS - 1)
				commands[i][n++] = word;
	}
	srandom(1);
	for (int run = pause > 0 ? -1 : -WARM_UP; run < runs; run++) {
		for (int j = count - 1; j > 0; j--) {
			int other = random() % (j + 1), one = order[j];
			order[j] = order[other];
			order[other] = one;
		}
		for (int j = 0; j < count; j++) {
			int i = order[j], status;
			struct rusage use;
			pid_t pid;
			if (pause > 0)
				usleep(pause * 1000);
			long start = nanoseconds();
			if (posix_spawn(&pid, commands[i][0], NULL, NULL, commands[i], environment) != 0) {
				fprintf(stderr, "startup: cannot start %s\n", commands[i][0]);
				return 1;
			}
			wait4(pid, &status, 0, &use);
			long end = nanoseconds();
			if (status != 0) {
				fprintf(stderr, "startup: %s: wait status %#x\n", commands[i][0], status);
				return 1;
			}
			if (run >= 0) {
				wall[(size_t)i * runs + run] = end - start;
				cpu[(size_t)i * runs + run] = processor(&use);
			}
		}
	}
	for (int i = 0; i < count; i++) {
		for (int run = 0; run < runs; run++)
			printf("%ld ", wall[(size_t)i * runs + run]);
		printf("\n");
		for (int run = 0; run < runs; run++)
			printf("%ld ", cpu[(size_t)i * runs + run]);
		printf("\n");
	}
	return 0;
}
