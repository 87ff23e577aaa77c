/* Calls of a procedure without arguments that does nothing, kept from being inlined.
 *
 * usage: call_loop CPU SECONDS
 * Prints call.direct: one call and return, timed in batches of 2^14. */
#include "batch.h"

enum { BATCH = 1 << 14 };

static __attribute__((noinline)) void callee(void)
{
	__asm__ volatile("");
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
		uint64_t start = now();

		for (int i = 0; i < BATCH; i++)
			callee();
		uint64_t time = now() - start;
		if (done >= WARM_UP)
			keep(samples, time);
	}
	report_batches("call.direct", samples, BATCH);
	return 0;
}
