/* host PIDFILE-FD COMMAND...: starts COMMAND with a pipe as its stdin, as a host does, writes its pid
 * to the descriptor, and waits to be killed. Ends with its parent. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int ends[2], news = argc > 2 ? atoi(argv[1]) : -1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (news < 0 || pipe(ends) != 0)
		return 2;
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[0], 0);
		close(ends[0]);
		close(ends[1]);
		close(news);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	close(ends[0]);
	dprintf(news, "%d\n", child);
	close(news);
	for (;;)
		pause();
}
