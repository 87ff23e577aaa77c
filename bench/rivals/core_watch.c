/* How much of its core a CPU has now: independent adds, which a busy sibling thread slows, over dependent
 * multiplies, which it hardly slows, so that the core's frequency cancels.
 *
 * usage: core_watch CPU
 * Prints core.share median_ns=R mean_ns=R n=N: the time of 16384 adds over that of 2752 multiplies, times 1000 (no
 * nanoseconds, but in the form of the other programs). On a processor other than x86-64 and aarch64 it does not build.
 *
 * build: cc -O2 -o core_watch core_watch.c */
#include "rival.h"

enum { READINGS = 500 };

#define EIGHT(text) text text text text text text text text

#if defined __x86_64__
#define ADDS "add $1, %[a]\n add $1, %[b]\n add $1, %[c]\n add $1, %[d]\n add $1, %[e]\n add $1, %[f]\n add $1, %[g]\n add $1, %[h]\n"
#define MULTIPLY "imul %[a], %[a]\n"
#elif defined __aarch64__
#define ADDS "add %[a], %[a], 1\n add %[b], %[b], 1\n add %[c], %[c], 1\n add %[d], %[d], 1\n add %[e], %[e], 1\n add %[f], %[f], 1\n add %[g], %[g], 1\n add %[h], %[h], 1\n"
#define MULTIPLY "mul %[a], %[a], %[a]\n"
#else
#error "no kernels for this processor"
#endif

static uint64_t adds(void)
{
	uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
	uint64_t begun = now();

	for (int i = 0; i < 256; i++)
		__asm__ volatile(EIGHT(ADDS) : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [e] "+r"(e),
				 [f] "+r"(f), [g] "+r"(g), [h] "+r"(h));
	return now() - begun;
}

static uint64_t multiplies(void)
{
	uint64_t a = 3, begun = now();

	for (int i = 0; i < 43; i++)
		__asm__ volatile(EIGHT(EIGHT(MULTIPLY)) : [a] "+r"(a));
	return now() - begun;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s CPU\n", argv[0]);
		return 2;
	}
	struct samples *shares = new_samples();

	pin(atoi(argv[1]));
	for (int reading = 0; reading < WARM_UP + READINGS; reading++) {
		double share = (double)adds() / (double)multiplies();

		if (reading >= WARM_UP)
			keep(shares, (uint64_t)(share * 1000));
	}
	report("core.share", shares);
	return 0;
}
