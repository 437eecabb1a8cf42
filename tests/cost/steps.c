/* steps FILE SECONDS COMMAND...: runs COMMAND and counts the instructions that each of its processes executes in user
 * space, by single-stepping them all. Writes a line to FILE for each process, "PID INSTRUCTIONS", and exits as COMMAND
 * does. A process counts from the exec of COMMAND on, or from its own fork, until it ends or executes another program.
 * From then on it runs untraced: it is the server, which costs nothing here.
 *
 * A profiler that translates the program, such as callgrind, must understand each system call, and refuses some flags of
 * clone3(). The processor steps through anything.
 *
 * Leaves nothing behind: after SECONDS, at SIGTERM, or when the parent has ended, every process below is killed, and the
 * exit status is 124. Should this process itself be killed, the kernel kills the traced ones (PTRACE_O_EXITKILL). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICKS_PER_SECOND 10
#define MOST 4096
#define OPTIONS (PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)

static struct process {
	pid_t pid;
	int ended, started;
	long steps;
} processes[MOST];
static int known;
static volatile sig_atomic_t ticks, stopped;

static void die(const char *what)
{
	perror(what);
	exit(125);
}

/* The timer repeats, so that a tick just before waitpid() blocks is made up for by the next one. */
static void on_signal(int signal)
{
	if (signal == SIGALRM)
		ticks++;
	else
		stopped = 1;
}

/* The living process with that pid. One that is not known yet was made by a traced process. */
static struct process *find(pid_t pid)
{
	for (int index = known - 1; index >= 0; index--)
		if (processes[index].pid == pid && !processes[index].ended)
			return &processes[index];
	if (known == MOST) {
		fprintf(stderr, "steps: more than %d processes\n", MOST);
		exit(125);
	}
	processes[known] = (struct process){ .pid = pid, .started = 1 };
	return &processes[known++];
}

static pid_t start(char **command)
{
	int gate[2];
	char go;
	if (pipe(gate) != 0)
		die("steps: pipe");
	pid_t pid = fork();
	if (pid < 0)
		die("steps: fork");
	if (pid == 0) {
		/* Without a tracer, the end of file comes instead of the byte. */
		close(gate[1]);
		if (read(gate[0], &go, 1) != 1)
			_exit(125);
		close(gate[0]);
		execv(command[0], command);
		perror(command[0]);
		_exit(127);
	}
	close(gate[0]);
	if (ptrace(PTRACE_SEIZE, pid, 0, OPTIONS) != 0)
		die("steps: ptrace");
	find(pid)->started = 0;
	if (write(gate[1], "", 1) != 1)
		die("steps: write");
	close(gate[1]);
	return pid;
}

/* Goes on with a stopped process. The process may be gone already, by SIGKILL: its end is reported next. */
static void go_on(struct process *process, int signal)
{
	ptrace(process->started ? PTRACE_SINGLESTEP : PTRACE_CONT, process->pid, 0, (long)signal);
}

static void on_stop(struct process *process, int status)
{
	int signal = WSTOPSIG(status), event = status >> 16;
	siginfo_t info;
	if (event == PTRACE_EVENT_EXEC && process->started) {
		ptrace(PTRACE_DETACH, process->pid, 0, 0);
		process->ended = 1;
	} else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
		/* Stopped by a signal such as SIGSTOP: stays so until SIGCONT, as it would without a tracer. */
		ptrace(PTRACE_LISTEN, process->pid, 0, 0);
	} else if (event != 0) {
		process->started |= event == PTRACE_EVENT_EXEC;
		go_on(process, 0);
	} else if (ptrace(PTRACE_GETSIGINFO, process->pid, 0, &info) != 0) {
		go_on(process, 0);
	} else if (signal != SIGTRAP || (info.si_code <= 0 && info.si_pid != 0)) {
		/* Sent by someone, so it is for the process. */
		go_on(process, signal);
	} else {
		/* Also after each round of a repeated instruction: what copies more costs more. */
		process->steps++;
		go_on(process, 0);
	}
}

/* Kills every child. Orphans become children too, since this process is a subreaper. */
static void kill_children(void)
{
	int pid;
	FILE *children;
	for (int index = 0; index < known; index++)
		if (!processes[index].ended)
			kill(processes[index].pid, SIGKILL);
	children = fopen("/proc/thread-self/children", "r");
	while (children && fscanf(children, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (children)
		fclose(children);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: steps FILE SECONDS COMMAND...\n");
		return 125;
	}
	FILE *file = fopen(argv[1], "we");
	if (!file)
		die(argv[1]);
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval timer = { { 0, 1000000 / TICKS_PER_SECOND }, { 0, 1000000 / TICKS_PER_SECOND } };
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setitimer(ITIMER_REAL, &timer, NULL);
	pid_t first = start(argv + 3);
	int end = 0, status, late = 0, most = atoi(argv[2]) * TICKS_PER_SECOND;
	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);
		if (pid < 0 && errno != EINTR)
			break;
		late |= stopped || ticks > most;
		if (pid > 0 && WIFSTOPPED(status)) {
			on_stop(find(pid), status);
		} else if (pid > 0) {
			for (int index = 0; index < known; index++)
				processes[index].ended |= processes[index].pid == pid;
			if (pid == first)
				end = status;
		}
		if (late)
			kill_children();
	}
	for (int index = 0; index < known; index++)
		fprintf(file, "%d %ld\n", (int)processes[index].pid, processes[index].steps);
	if (fclose(file) != 0)
		die(argv[1]);
	if (late)
		fprintf(stderr, "steps: stopped, after %d s\n", (int)ticks / TICKS_PER_SECOND);
	return late ? 124 : WIFEXITED(end) ? WEXITSTATUS(end) : 128 + WTERMSIG(end);
}
