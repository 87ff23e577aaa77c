/* Shared by these programs: pinning, a clock, samples that fork need not copy, and one line of output per figure.
 *
 * The samples lie in a shared mapping: fork copies no page tables of it, so that measuring does not enlarge what is
 * measured. All of it is touched before the first operation is timed.
 *
 * Link with -z now, as hardened distributions do: bound lazily, every forked child would look up _exit and execve anew,
 * which makes fork + exit + wait up to a fifth longer and is no work of the kernel's. */
#ifndef RIVAL_H
#define RIVAL_H

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SAMPLES = 1 << 18, WARM_UP = 50 };

struct samples {
	uint32_t count;
	uint32_t nanoseconds[MOST_SAMPLES];
};

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static inline uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0)
		die("sched_setaffinity");
}

static inline struct samples *new_samples(void)
{
	struct samples *samples = mmap(NULL, sizeof *samples, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (samples == MAP_FAILED)
		die("mmap");
	return samples;
}

static inline void keep(struct samples *samples, uint64_t nanoseconds)
{
	if (samples->count < MOST_SAMPLES)
		samples->nanoseconds[samples->count++] = (uint32_t)nanoseconds;
}

static inline int by_size(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return (a > b) - (a < b);
}

/* `fork.life median_ns=81234.0 mean_ns=83456.7 n=12000` */
static inline void report(const char *name, struct samples *samples)
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
	printf("%s median_ns=%.1f mean_ns=%.1f n=%u\n", name, median, sum / n, n);
}

/* Whether the time of the run is over; the first operations warm up and are not kept. */
static inline int over(uint64_t begun, double seconds)
{
	return (double)(now() - begun) >= seconds * 1e9;
}

#endif
