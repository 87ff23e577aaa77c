/* pthread_create and pthread_join of a thread that ends at once: each operation timed by itself.
 *
 * usage: thread_loop CPU SECONDS
 * Prints thread.create, until pthread_create returns, and thread.join, until pthread_join has returned too.
 *
 * build: cc -O2 -pthread -Wl,-z,now -o thread_loop thread_loop.c (see rival.h for -z now) */
#include "rival.h"
#include <pthread.h>

static void *nothing(void *argument)
{
	return argument;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *create = new_samples(), *join = new_samples();

	pin(atoi(argv[1]));
	uint64_t begun = now();
	for (unsigned done = 0; !over(begun, seconds); done++) {
		pthread_t thread;
		uint64_t start = now();

		errno = pthread_create(&thread, NULL, nothing, NULL);
		uint64_t created = now();
		if (errno)
			die("pthread_create");
		errno = pthread_join(thread, NULL);
		uint64_t joined = now();
		if (errno)
			die("pthread_join");
		if (done >= WARM_UP) {
			keep(create, created - start);
			keep(join, joined - start);
		}
	}
	report("thread.create", create);
	report("thread.join", join);
	return 0;
}
