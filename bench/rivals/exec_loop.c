/* Start a program and wait for its end: each operation timed by itself.
 *
 * usage: exec_loop CPU SECONDS exec|spawn|shell
 *   exec   fork and execve of /bin/true
 *   spawn  posix_spawn of /bin/true
 *   shell  fork and execve of /bin/sh -c /bin/true
 * The environment of the program is empty.
 *
 * build: cc -O2 -pthread -Wl,-z,now -o exec_loop exec_loop.c (see rival.h for -z now) */
#include "rival.h"
#include <spawn.h>
#include <sys/wait.h>

static char *true_arguments[] = { "/bin/true", NULL };
static char *shell_arguments[] = { "/bin/sh", "-c", "/bin/true", NULL };
static char *no_environment[] = { NULL };

static pid_t start(const char *how)
{
	char **arguments = strcmp(how, "shell") == 0 ? shell_arguments : true_arguments;
	pid_t pid;

	if (strcmp(how, "spawn") == 0) {
		errno = posix_spawn(&pid, arguments[0], NULL, NULL, arguments, no_environment);
		return errno ? -1 : pid;
	}
	pid = fork();
	if (pid == 0) {
		execve(arguments[0], arguments, no_environment);
		_exit(127);
	}
	return pid;
}

static uint64_t once(const char *how)
{
	uint64_t begun = now();
	pid_t pid = start(how);
	int status;

	if (pid < 0)
		die(how);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("waitpid");
	return now() - begun;
}

int main(int argc, char **argv)
{
	if (argc != 4 || (strcmp(argv[3], "exec") && strcmp(argv[3], "spawn") && strcmp(argv[3], "shell"))) {
		fprintf(stderr, "usage: %s CPU SECONDS exec|spawn|shell\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *life = new_samples();
	char name[16];

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t time = once(argv[3]);

		if (done >= WARM_UP)
			keep(life, time);
	}
	snprintf(name, sizeof name, "%s.life", argv[3]);
	report(name, life);
	return 0;
}
