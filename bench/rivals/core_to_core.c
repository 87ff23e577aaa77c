/* Core-to-core latency of a cache line: shows whether two CPUs share a last-level cache now.
 *
 * usage: core_to_core CPU OTHER_CPU
 * Prints core_to_core.line median_ns=N mean_ns=N n=N, one way, over samples of 200 round trips each. */
#include "rival.h"
#include <pthread.h>
#include <stdatomic.h>

enum { TRIPS = 200, SAMPLES = 51 };

static _Alignas(128) atomic_uint line;

static void *answer(void *other)
{
	pin(*(int *)other);
	for (unsigned trip = 0; trip < TRIPS * SAMPLES; trip++) {
		while (atomic_load_explicit(&line, memory_order_acquire) != 2 * trip + 1)
			;
		atomic_store_explicit(&line, 2 * trip + 2, memory_order_release);
	}
	return NULL;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

int main(int count, char **words)
{
	double times[SAMPLES], sum = 0;
	int other;
	pthread_t thread;

	if (count != 3) {
		fprintf(stderr, "usage: core_to_core CPU OTHER_CPU\n");
		return 2;
	}
	pin(atoi(words[1]));
	other = atoi(words[2]);
	if (pthread_create(&thread, NULL, answer, &other) != 0)
		die("pthread_create");
	for (unsigned sample = 0, trip = 0; sample < SAMPLES; sample++) {
		uint64_t begun = now();

		for (unsigned end = trip + TRIPS; trip < end; trip++) {
			atomic_store_explicit(&line, 2 * trip + 1, memory_order_release);
			while (atomic_load_explicit(&line, memory_order_acquire) != 2 * trip + 2)
				;
		}
		times[sample] = (double)(now() - begun) / TRIPS / 2;
	}
	pthread_join(thread, NULL);
	qsort(times, SAMPLES, sizeof *times, ascending);
	for (int sample = 0; sample < SAMPLES; sample++)
		sum += times[sample];
	printf("core_to_core.line median_ns=%.3f mean_ns=%.3f n=%d\n", times[SAMPLES / 2], sum / SAMPLES, SAMPLES);
	return 0;
}
