/* Loads that wait for each other: one pointer in each cache line of a working set, all of them one random cycle.
 *
 * usage: chase_loop CPU SECONDS BYTES base|huge
 * Prints chase.load: one load, timed in batches of 2^14. Huge pages are requested (MADV_HUGEPAGE), base pages required. */
#include "batch.h"

enum { BATCH = 1 << 14, LINE = 64, HUGE_PAGE = 2 << 20 };

static uint64_t state = 88172645463325252u;

/* xorshift64, Marsaglia 2003 */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Sattolo's algorithm: one cycle through all lines, every one equally likely. */
static void **ring(size_t bytes, int huge)
{
	size_t lines = bytes / LINE;
	char *memory = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t *order = malloc(lines * sizeof *order);

	if (memory == MAP_FAILED || !order)
		die("memory");
	memory += HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE;
	if (madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
		die("madvise");
	for (size_t i = 0; i < lines; i++)
		order[i] = (uint32_t)i;
	for (size_t i = lines - 1; i > 0; i--) {
		size_t j = next_random() % i;
		uint32_t other = order[j];

		order[j] = order[i];
		order[i] = other;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(memory + i * LINE) = memory + (size_t)order[i] * LINE;
	free(order);
	return (void **)memory;
}

int main(int argc, char **argv)
{
	if (argc != 5 || (strcmp(argv[4], "base") && strcmp(argv[4], "huge"))) {
		fprintf(stderr, "usage: %s CPU SECONDS BYTES base|huge\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();

	pin(atoi(argv[1]));
	void **at = ring(strtoull(argv[3], NULL, 10), strcmp(argv[4], "huge") == 0);
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t start = now();

		for (int i = 0; i < BATCH; i += 16) {
#define HOP at = (void **)*at;
#define FOUR_HOPS HOP HOP HOP HOP
			FOUR_HOPS FOUR_HOPS FOUR_HOPS FOUR_HOPS
		}
		uint64_t time = now() - start;
		/* The chain must be followed although its end is unused. */
		__asm__ volatile("" : "+r"(at));
		if (done >= WARM_UP)
			keep(samples, time);
	}
	report_batches("chase.load", samples, BATCH);
	return 0;
}
