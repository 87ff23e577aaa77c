/* Two processes on one CPU pass a byte to and fro over two pipes; batches of 64 round trips are timed.
 *
 * usage: pipe_loop CPU SECONDS
 * Prints pipe.round_trip, and on a second line the context switches of this process for each round trip. */
#include "rival.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BATCH = 64 };

static int to[2], back[2];

static void answer(void)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(to[1]);
	while (read(to[0], &byte, 1) == 1)
		if (write(back[1], &byte, 1) != 1)
			_exit(1);
	_exit(0);
}

static void round_trips(void)
{
	char byte = 1;

	for (int i = 0; i < BATCH; i++)
		if (write(to[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			die("a round trip");
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();
	unsigned long batches = 0;
	int status;

	pin(atoi(argv[1]));
	if (pipe(to) != 0 || pipe(back) != 0)
		die("pipe");
	pid_t pid = fork();
	if (pid == 0)
		answer();
	if (pid < 0)
		die("fork");
	close(to[0]);
	for (int i = 0; i < WARM_UP; i++)
		round_trips();

	long before = switches();
	for (uint64_t begun = now(); !over(begun, seconds); batches++) {
		uint64_t start = now();

		round_trips();
		keep(samples, (now() - start) / BATCH);
	}
	double each = (double)(switches() - before) / BATCH / batches;
	close(to[1]);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("waitpid");
	report("pipe.round_trip", samples);
	printf("switches=%.3f\n", each);
	return 0;
}
