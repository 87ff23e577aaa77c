/* What the figure of `perf bench syscall basic` contains beside the system call: a counted loop with a switch over the
 * call, the C library's wrapper, and the return from it, which the processor mispredicts after each system call where a
 * mitigation flushes its return predictions. The same loop as perf's (tools/perf/bench/syscall.c) around getppid of the C
 * library, less a bare loop around the instruction, batch beside batch.
 *
 * usage: perf_call_loop CPU SECONDS
 * Prints perf.loop: the difference for one call, medians and means of batches of 2^12. */
#include "batch.h"
#include <sys/syscall.h>

enum { BATCH = 1 << 12 };

/* Not a constant for the compiler, as it is not in perf. */
static volatile int which = SYS_getppid;

static inline long bare_call(void)
{
#if defined(__x86_64__)
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"((long)SYS_getppid) : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long number __asm__("x8") = SYS_getppid;
	register long result __asm__("x0");

	__asm__ volatile("svc 0" : "=r"(result) : "r"(number) : "memory");
	return result;
#else
#error "no system call instruction is known for this architecture"
#endif
}

static uint64_t as_perf_does(int call)
{
	uint64_t begun = now();

	for (int i = 0; i < BATCH; i++) {
		switch (call) {
		case SYS_getppid:
			getppid();
			break;
		case SYS_getpgid:
			getpgid(0);
			break;
		default:
			break;
		}
	}
	return now() - begun;
}

static uint64_t bare(void)
{
	uint64_t begun = now();

	for (int i = 0; i < BATCH; i++)
		if (bare_call() < 0)
			die("getppid");
	return now() - begun;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *wrapped = new_samples(), *alone = new_samples();

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		uint64_t wrapped_time = as_perf_does(which), alone_time = bare();

		if (done >= WARM_UP) {
			keep(wrapped, wrapped_time);
			keep(alone, alone_time);
		}
	}
	struct figures with = figures_of("perf.loop", wrapped), without = figures_of("perf.loop", alone);

	printf("perf.loop median_ns=%.4f mean_ns=%.4f n=%u\n", (with.median - without.median) / BATCH,
	       (with.mean - without.mean) / BATCH, with.n);
	return 0;
}
