/* Loops over arrays of doubles as anyone would write them: STREAM's copy and triad, a sum, a constant stored, memset of a byte and of zero.
 * What the compiler makes of them is the point, so this one is built with -O3 -march=native -fopenmp.
 *
 * usage: stream_loop FIRST_CPU THREADS SECONDS BYTES LOOP
 * LOOP is copy, triad, read, write, fill or zero; BYTES is the size of all its arrays together. Threads run on FIRST_CPU and
 * the CPUs below it. Prints stream.LOOP best=B median=M n=N, in bytes per second, counted as STREAM does: bytes that the
 * loop reads and bytes that it writes. Each sample is one pass, at least 20 us of it (more passes of small arrays).
 *
 * build: cc -O3 -march=native -fopenmp -o stream_loop stream_loop.c */
#include "rival.h"
#include <omp.h>

enum { MOST_PASSES = 100000, LEAST_NANOSECONDS = 20000 };

static double *a, *b, *c;
static size_t length;
static double rates[MOST_PASSES];
static volatile double sink;

static void copy(void)
{
#pragma omp parallel for
	for (size_t i = 0; i < length; i++)
		a[i] = b[i];
}

static void triad(void)
{
#pragma omp parallel for
	for (size_t i = 0; i < length; i++)
		a[i] = b[i] + 3.0 * c[i];
}

static void read_all(void)
{
	uint64_t sum = 0;
	const uint64_t *words = (const uint64_t *)b;

#pragma omp parallel for reduction(+ : sum)
	for (size_t i = 0; i < length; i++)
		sum += words[i];
	sink = (double)sum;
}

static void write_all(void)
{
#pragma omp parallel for
	for (size_t i = 0; i < length; i++)
		a[i] = 1.0;
}

static void fill(void)
{
#pragma omp parallel
	{
		size_t threads = (size_t)omp_get_num_threads(), own = length / threads;

		memset(a + own * (size_t)omp_get_thread_num(), 0x3f, own * sizeof *a);
	}
}

static void zero(void)
{
#pragma omp parallel
	{
		size_t threads = (size_t)omp_get_num_threads(), own = length / threads;

		memset(a + own * (size_t)omp_get_thread_num(), 0, own * sizeof *a);
	}
}

static const struct loop {
	const char *name;
	void (*run)(void);
	int arrays;
} loops[] = { { "copy", copy, 2 }, { "triad", triad, 3 }, { "read", read_all, 1 }, { "write", write_all, 1 }, { "fill", fill, 1 }, { "zero", zero, 1 } };

static double *array(void)
{
	size_t bytes = length * sizeof(double);
	double *values = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (values == MAP_FAILED)
		die("mmap");
	values = (double *)(((uintptr_t)values + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
	madvise(values, bytes, MADV_HUGEPAGE);
#pragma omp parallel for
	for (size_t i = 0; i < length; i++)
		values[i] = 1.0;
	return values;
}

static int ascending(const void *left, const void *right)
{
	double x = *(const double *)left, y = *(const double *)right;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	const struct loop *loop = NULL;

	if (argc == 6)
		for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
			if (strcmp(argv[5], loops[i].name) == 0)
				loop = &loops[i];
	if (loop == NULL) {
		fprintf(stderr, "usage: %s FIRST_CPU THREADS SECONDS BYTES copy|triad|read|write|fill|zero\n", argv[0]);
		return 2;
	}
	int first = atoi(argv[1]), threads = atoi(argv[2]);
	double seconds = atof(argv[3]);

	length = strtoull(argv[4], NULL, 10) / sizeof(double) / (size_t)loop->arrays / (size_t)threads * (size_t)threads;
	if (threads < 1 || first - threads + 1 < 0 || length == 0) {
		fprintf(stderr, "%s: no %d CPUs from CPU %d down, or no bytes\n", argv[0], threads, first);
		return 2;
	}
	omp_set_num_threads(threads);
#pragma omp parallel
	pin(first - omp_get_thread_num());
	a = array();
	b = loop->arrays > 1 || loop->run == read_all ? array() : a;
	c = loop->arrays > 2 ? array() : b;

	double bytes = (double)length * sizeof(double) * loop->arrays;
	unsigned passes = 1, count = 0;
	uint64_t begun, took;

	for (;;) {
		begun = now();
		for (unsigned i = 0; i < passes; i++) {
			loop->run();
			__asm__ volatile("" ::: "memory");
		}
		if (now() - begun >= LEAST_NANOSECONDS)
			break;
		passes *= 2;
	}
	for (begun = now(); count < MOST_PASSES && !over(begun, seconds);) {
		uint64_t start = now();

		for (unsigned i = 0; i < passes; i++) {
			loop->run();
			__asm__ volatile("" ::: "memory");
		}
		took = now() - start;
		rates[count++] = bytes * passes / (double)took * 1e9;
	}
	if (count == 0) {
		fprintf(stderr, "%s: no sample: give it more seconds\n", argv[0]);
		return 2;
	}
	qsort(rates, count, sizeof *rates, ascending);
	printf("stream.%s best=%.6g median=%.6g n=%u\n", loop->name, rates[count - 1], rates[count / 2], count);
	return 0;
}
