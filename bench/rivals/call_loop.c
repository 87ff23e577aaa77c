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

static uint64_t batch(void)
{
	uint64_t start = now();

	for (int i = 0; i < BATCH; i++)
		callee();
	return now() - start;
}

int main(int argc, char **argv)
{
	return time_batches(argc, argv, "call.direct", batch, BATCH);
}
