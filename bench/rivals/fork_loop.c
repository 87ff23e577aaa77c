/* fork (or vfork), _exit in the child, waitpid: each operation timed by itself.
 *
 * usage: fork_loop CPU SECONDS fork|vfork
 * Prints NAME.create, until the call returns in the parent, and NAME.life, until the child is reaped.
 *
 * build: cc -O2 -pthread -Wl,-z,now -o fork_loop fork_loop.c (see rival.h for -z now) */
#include "rival.h"
#include <sys/wait.h>

static void once(int use_vfork, uint64_t *create, uint64_t *life)
{
	uint64_t begun = now();
	pid_t pid = use_vfork ? vfork() : fork();
	int status;

	if (pid == 0)
		_exit(0);
	*create = now() - begun;
	if (pid < 0)
		die("fork");
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("waitpid");
	*life = now() - begun;
}

int main(int argc, char **argv)
{
	if (argc != 4 || (strcmp(argv[3], "fork") && strcmp(argv[3], "vfork"))) {
		fprintf(stderr, "usage: %s CPU SECONDS fork|vfork\n", argv[0]);
		return 2;
	}
	int use_vfork = strcmp(argv[3], "vfork") == 0;
	double seconds = atof(argv[2]);
	struct samples *create = new_samples(), *life = new_samples();

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t create_time, life_time;

		once(use_vfork, &create_time, &life_time);
		if (done >= WARM_UP) {
			keep(create, create_time);
			keep(life, life_time);
		}
	}
	report(use_vfork ? "vfork.create" : "fork.create", create);
	report(use_vfork ? "vfork.life" : "fork.life", life);
	return 0;
}
