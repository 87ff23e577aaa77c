/* A leak of known size, for a program that is started with this library in LD_PRELOAD: 1 KiB, written to, of each message that it
 * receives. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES 1024

ssize_t recvmsg(int from, struct msghdr *message, int flags)
{
	static ssize_t (*of_the_library)(int, struct msghdr *, int);
	ssize_t received;

	if (of_the_library == NULL)
		of_the_library = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
	received = of_the_library(from, message, flags);
	/* A look leaves the message where it is. */
	if (received > 0 && !(flags & MSG_PEEK)) {
		void *lost = malloc(BYTES);

		if (lost != NULL)
			memset(lost, 1, BYTES);
		/* The compiler must not see that nobody has it. */
		__asm__ volatile("" : : "r"(lost) : "memory");
	}
	return received;
}
