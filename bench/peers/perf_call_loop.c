/* The loop of `perf bench syscall basic` around a call of the C library that stays in user mode: what that tool's figure
 * contains beside the system call (tools/perf/bench/syscall.c: a counted loop, a switch over the call, the call through
 * the procedure linkage table, a few instructions of the wrapper).
 *
 * usage: perf_call_loop CPU SECONDS
 * Prints perf.loop: one iteration, timed in batches of 2^16. */
#include "batch.h"

enum { BATCH = 1 << 16 };

/* Calls of a few instructions in the C library, under names that tell the compiler nothing of what they do. */
extern int short_call(void) __asm__("getpagesize");
extern int other_call(void) __asm__("getpid");

/* Not a constant for the compiler, as it is not in perf. */
static volatile int which = 1;

static uint64_t batch(int call, int loops)
{
	uint64_t begun = now();

	for (int i = 0; i < loops; i++) {
		switch (call) {
		case 1:
			short_call();
			break;
		case 2:
			other_call();
			break;
		default:
			break;
		}
	}
	return now() - begun;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t time = batch(which, BATCH);

		if (done >= WARM_UP)
			keep(samples, time);
	}
	report_batches("perf.loop", samples, BATCH);
	return 0;
}
