/* Processes on one CPU pass a byte round a ring of pipes, each working on a set of its own; laps are timed one by one.
 *
 * usage: ring_loop CPU SECONDS PROCESSES BYTES
 * Prints ring.hand_over, a lap divided by the processes, and ring.own, the time of one process alone with warm caches: a
 * write, a read, and the work. Their difference is the cost of a switch. */
#include "rival.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LINE = 64, BATCH = 64, MOST_PROCESSES = 400 };

static int pipes[MOST_PROCESSES][2], alone[2];
static pid_t children[MOST_PROCESSES];
static size_t bytes;

/* Adds one to a word in every line of the set. */
static void work(char *set)
{
	for (size_t at = 0; at < bytes; at += LINE)
		++*(volatile uint64_t *)(set + at);
}

static char *fresh_set(void)
{
	char *set = mmap(NULL, bytes + LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (set == MAP_FAILED)
		die("mmap");
	madvise(set, bytes + LINE, MADV_NOHUGEPAGE);
	work(set);
	return set;
}

static void pass(int to[2])
{
	char byte = 1;

	if (write(to[1], &byte, 1) != 1)
		die("write");
}

static void take(int from[2])
{
	char byte;

	if (read(from[0], &byte, 1) != 1)
		die("read");
}

static void member(int index)
{
	char *set = fresh_set();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		take(pipes[index - 1]);
		work(set);
		pass(pipes[index]);
	}
}

int main(int argc, char **argv)
{
	int processes = argc == 5 ? atoi(argv[3]) : 0;

	if (processes < 2 || processes > MOST_PROCESSES) {
		fprintf(stderr, "usage: %s CPU SECONDS PROCESSES BYTES (2 to %d processes)\n", argv[0], MOST_PROCESSES);
		return 2;
	}
	bytes = strtoul(argv[4], NULL, 10);
	double seconds = atof(argv[2]);
	struct samples *hand_over = new_samples(), *own = new_samples();

	pin(atoi(argv[1]));
	for (int i = 0; i < processes; i++)
		if (pipe(pipes[i]) != 0)
			die("pipe");
	if (pipe(alone) != 0)
		die("pipe");
	for (int i = 1; i < processes; i++) {
		children[i] = fork();
		if (children[i] == 0)
			member(i);
		if (children[i] < 0)
			die("fork");
	}

	char *set = fresh_set(), *other = fresh_set();
	uint64_t begun = now();
	for (unsigned lap = 0; !over(begun, seconds); lap++) {
		uint64_t start = now();

		pass(pipes[0]);
		take(pipes[processes - 1]);
		work(set);
		if (lap >= WARM_UP)
			keep(hand_over, (now() - start) / processes);
	}
	for (int batch = 0; batch < 256; batch++) {
		uint64_t start = now();

		for (int i = 0; i < BATCH; i++) {
			pass(alone);
			take(alone);
			work(other);
		}
		keep(own, (now() - start) / BATCH);
	}
	for (int i = 1; i < processes; i++)
		kill(children[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	report("ring.hand_over", hand_over);
	report("ring.own", own);
	return 0;
}
