/* many NEWS-FD COUNT COMMAND...: starts COMMAND COUNT times, each with a pipe of its own as stdin, as a host
 * with many servers does; writes a line to the descriptor when all are started, and waits to be killed. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int news = argc > 3 ? atoi(argv[1]) : -1, count = argc > 3 ? atoi(argv[2]) : 0;
	struct rlimit files;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (news < 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
		return 2;
	struct rlimit given = files;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < count; i++) {
		int ends[2];
		if (pipe2(ends, 02000000 /* O_CLOEXEC */) != 0)
			return 3;
		pid_t child = fork();
		if (child < 0)
			return 4;
		if (child == 0) {
			dup2(ends[0], 0);
			close(news);
			setrlimit(RLIMIT_NOFILE, &given);
			execvp(argv[3], argv + 3);
			_exit(127);
		}
		close(ends[0]);
	}
	if (write(news, "\n", 1) != 1)
		return 5;
	close(news);
	for (;;)
		pause();
}
