/* Empty start/stop pairs of the clock that kelvin uses, back to back: the same instructions in a bare loop.
 *
 * usage: clock_pair CPU SECONDS
 * Prints clock.pair: one pair, timed in batches of 2^12 by CLOCK_MONOTONIC. */
#include "batch.h"

enum { BATCH = 1 << 12 };

static inline void pair(void)
{
#if defined(__x86_64__)
	uint32_t low, high, processor;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	__asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(processor) : : "memory");
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
#else
#error "no counter is known for this architecture"
#endif
}

static uint64_t batch(void)
{
	uint64_t start = now();

	for (int i = 0; i < BATCH; i++)
		pair();
	return now() - start;
}

int main(int argc, char **argv)
{
	return time_batches(argc, argv, "clock.pair", batch, BATCH);
}
