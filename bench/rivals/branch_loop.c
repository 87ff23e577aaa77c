/* A mispredicted branch: a loop whose branch goes at random, less the same loop whose branch is never taken.
 *
 * usage: branch_loop CPU SECONDS
 * Prints branch.mispredict: half of the random outcomes are mispredicted. Batches of 2^13 branches, by CLOCK_MONOTONIC. */
#include "batch.h"

enum { BATCH = 1 << 13 };

struct sequence {
	uint64_t state, multiplier, increment;
};

/* The branch must stay one: an instruction that the compiler cannot move is behind it. */
static uint64_t __attribute__((noinline)) branches(struct sequence *of)
{
	uint64_t start = now(), state = of->state, multiplier = of->multiplier, increment = of->increment;

	for (int i = 0; i < BATCH; i++) {
		state = state * multiplier + increment;
		if ((int64_t)state < 0)
			__asm__ volatile("nop");
	}
	of->state = state;
	return now() - start;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();
	/* Knuth's generator for MMIX. */
	struct sequence random = { 12345, 6364136223846793005u, 1442695040888963407u }, never = { 0, 1, 0 };

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t at_random = branches(&random), constant = branches(&never);

		if (done >= WARM_UP && at_random > constant)
			keep(samples, at_random - constant);
	}
	report_batches("branch.mispredict", samples, BATCH / 2);
	return 0;
}
