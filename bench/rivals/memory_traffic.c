/* Copies memory on one CPU, more than caches hold, until it is killed: a neighbour of whoever uses memory on another.
 *
 * usage: memory_traffic CPU */
#include "rival.h"

enum { BYTES = 256 << 20 };

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s CPU\n", argv[0]);
		return 2;
	}
	pin(atoi(argv[1]));
	char *from = malloc(BYTES), *to = malloc(BYTES);

	if (from == NULL || to == NULL)
		die("malloc");
	memset(from, 1, BYTES);
	for (;;) {
		memcpy(to, from, BYTES);
		/* The copy is what it is for. */
		__asm__ volatile("" : : "r"(to) : "memory");
	}
}
