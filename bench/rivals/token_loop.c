/* Two processes on two CPUs pass a token to and fro over two pipes or, in shared memory, by a futex; batches of 64 round trips
 * are timed, and of each the mean is a sample.
 *
 * usage: token_loop CPU SECONDS pipe|futex OTHER_CPU
 * Prints token.round_trip. */
#include "rival.h"
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BATCH = 64 };

static int to[2], back[2];
static uint32_t *turn;
static int by_futex;

static void wait_for(uint32_t mine)
{
	for (;;) {
		uint32_t seen = __atomic_load_n(turn, __ATOMIC_ACQUIRE);

		if (seen == mine)
			return;
		if (syscall(SYS_futex, turn, FUTEX_WAIT, seen, NULL, NULL, 0) != 0 && errno != EAGAIN && errno != EINTR)
			die("FUTEX_WAIT");
	}
}

static void pass_to(uint32_t other)
{
	__atomic_store_n(turn, other, __ATOMIC_RELEASE);
	if (syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0) < 0)
		die("FUTEX_WAKE");
}

static void answer(void)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		if (by_futex) {
			wait_for(1);
			pass_to(0);
		} else if (read(to[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) {
			_exit(1);
		}
	}
}

static void round_trip(void)
{
	char byte = 1;

	if (by_futex) {
		pass_to(1);
		wait_for(0);
	} else if (write(to[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) {
		die("a round trip");
	}
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: %s CPU SECONDS pipe|futex OTHER_CPU\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();

	by_futex = strcmp(argv[3], "futex") == 0;
	turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (turn == MAP_FAILED || pipe(to) != 0 || pipe(back) != 0)
		die("set-up");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		pin(atoi(argv[4]));
		answer();
	}
	pin(atoi(argv[1]));
	for (int i = 0; i < BATCH; i++)
		round_trip();
	for (uint64_t begun = now(); !over(begun, seconds);) {
		uint64_t start = now();

		for (int i = 0; i < BATCH; i++)
			round_trip();
		keep(samples, (now() - start) / BATCH);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("token.round_trip", samples);
	return 0;
}
