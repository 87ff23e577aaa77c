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

/* Knuth's generator for MMIX, and a number that stays. */
static struct sequence at_random = { 12345, 6364136223846793005u, 1442695040888963407u }, never = { 0, 1, 0 };

/* How much longer one takes than the other; nothing, if a disturbance makes it the shorter one. */
static uint64_t batch(void)
{
	uint64_t random = branches(&at_random), constant = branches(&never);

	return random > constant ? random - constant : 0;
}

int main(int argc, char **argv)
{
	return time_batches(argc, argv, "branch.mispredict", batch, BATCH / 2);
}
