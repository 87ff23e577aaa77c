/* For programs whose operation is too short to be timed by itself: samples are times of batches. */
#ifndef BATCH_H
#define BATCH_H

#include "rival.h"

struct figures {
	double median, mean;
	uint32_t n;
};

/* Median and mean of samples, which are sorted by it. */
static inline struct figures figures_of(const char *name, struct samples *samples)
{
	uint32_t n = samples->count, *times = samples->nanoseconds;
	double sum = 0;

	if (n == 0) {
		fprintf(stderr, "%s: no sample: give it more seconds\n", name);
		exit(2);
	}
	for (uint32_t i = 0; i < n; i++)
		sum += times[i];
	qsort(times, n, sizeof *times, by_size);
	double median = n % 2 ? times[n / 2] : (times[n / 2 - 1] + (double)times[n / 2]) / 2;

	return (struct figures){ median, sum / n, n };
}

/* The line of `report`, each figure divided by the operations of a batch. */
static inline void report_batches(const char *name, struct samples *samples, unsigned operations)
{
	struct figures figures = figures_of(name, samples);

	printf("%s median_ns=%.4f mean_ns=%.4f n=%u\n", name, figures.median / operations, figures.mean / operations,
	       figures.n);
}

#endif
