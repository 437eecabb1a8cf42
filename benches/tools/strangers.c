/* strangers COUNT: starts COUNT processes that belong to no tree, prints "ready", and waits. They end
 * with it, and it ends with its parent. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST 10000

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (count < 0 || count > MOST)
		return 2;
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid < 0)
			return 1;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
