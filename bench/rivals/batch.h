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

/* The whole program `NAME CPU SECONDS`: batches of so many operations, each of which `batch` does and times. */
static inline int time_batches(int argc, char **argv, const char *name, uint64_t (*batch)(void), unsigned operations)
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
		uint64_t time = batch();

		if (done >= WARM_UP)
			keep(samples, time);
	}
	report_batches(name, samples, operations);
	return 0;
}

#endif
