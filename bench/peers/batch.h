/* For peers whose operation is too short to be timed by itself: samples are times of batches. */
#ifndef BATCH_H
#define BATCH_H

#include "peer.h"

/* The line of `report`, each figure divided by the operations of a batch. */
static inline void report_batches(const char *name, struct samples *samples, unsigned operations)
{
	uint32_t n = samples->count;
	double sum = 0, median;

	if (n == 0) {
		fprintf(stderr, "%s: no sample: give it more seconds\n", name);
		exit(2);
	}
	for (uint32_t i = 0; i < n; i++)
		sum += samples->nanoseconds[i];
	qsort(samples->nanoseconds, n, sizeof *samples->nanoseconds, by_size);
	median = n % 2 ? samples->nanoseconds[n / 2]
		       : (samples->nanoseconds[n / 2 - 1] + (double)samples->nanoseconds[n / 2]) / 2;
	printf("%s median_ns=%.4f mean_ns=%.4f n=%u\n", name, median / operations, sum / n / operations, n);
}

#endif
