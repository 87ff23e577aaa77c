/* Keeps a CPU from going idle, yielding to everything else (SCHED_IDLE), until it is killed.
 *
 * usage: awake CPU */
#include "rival.h"

int main(int argc, char **argv)
{
	struct sched_param none = { 0 };

	if (argc != 2) {
		fprintf(stderr, "usage: %s CPU\n", argv[0]);
		return 2;
	}
	pin(atoi(argv[1]));
	if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
		die("SCHED_IDLE");
	for (;;)
		__asm__ volatile("");
}
