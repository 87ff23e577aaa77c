/* An HTTP proxy that holds one lock while it waits and while a request is answered, or that accepts few connections of one request each:
 * limits that no resource of a host shows.
 *
 * usage: locked_proxy PORT MICROSECONDS [ACCEPTED]
 *
 * Forwards each request for GET to the port on loopback, over one connection for each of its clients, MICROSECONDS after it got the
 * lock. With ACCEPTED it takes no lock, accepts at most so many connections a second, and ends each after its first answer. Prints the
 * port at which it listens, and serves until it is killed. */
#include "rival.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 8192
#define PART (256 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sockaddr_in upstream;
static struct timespec hold;
static long accepted;

static int write_all(int to, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t done = write(to, data, bytes);

		if (done <= 0)
			return -1;
		data += done;
		bytes -= (size_t)done;
	}
	return 0;
}

/* Reads until the end of a head; what lies behind it stays in the buffer. Returns the bytes of the head, 0 at the end. */
static size_t read_head(int from, char *buffer, size_t *filled)
{
	for (;;) {
		char *end;
		ssize_t done;

		buffer[*filled] = '\0';
		end = strstr(buffer, "\r\n\r\n");
		if (end != NULL)
			return (size_t)(end - buffer) + 4;
		if (*filled == HEAD - 1)
			return 0;
		done = read(from, buffer + *filled, HEAD - 1 - *filled);
		if (done <= 0)
			return 0;
		*filled += (size_t)done;
	}
}

static void drop(char *buffer, size_t *filled, size_t bytes)
{
	memmove(buffer, buffer + bytes, *filled - bytes);
	*filled -= bytes;
}

static long length_of(const char *head)
{
	const char *line = strcasestr(head, "\r\ncontent-length:");

	return line == NULL ? -1 : atol(line + strlen("\r\ncontent-length:"));
}

/* Passes one answer on. */
static int relay(int from, int to, char *answer, size_t *filled, char *part)
{
	size_t head = read_head(from, answer, filled);
	long left = head > 0 ? length_of(answer) : -1;
	size_t begun;

	if (left < 0)
		return -1;
	begun = *filled - head;
	if (begun > (size_t)left)
		begun = (size_t)left;
	if (accepted > 0) {
		static const char last[] = "Connection: close\r\n\r\n";

		if (write_all(to, answer, head - 2) != 0 || write_all(to, last, sizeof(last) - 1) != 0 ||
		    write_all(to, answer + head, begun) != 0)
			return -1;
	} else if (write_all(to, answer, head + begun) != 0) {
		return -1;
	}
	drop(answer, filled, head + begun);
	for (left -= (long)begun; left > 0;) {
		ssize_t done = read(from, part, left < PART ? (size_t)left : PART);

		if (done <= 0 || write_all(to, part, (size_t)done) != 0)
			return -1;
		left -= done;
	}
	return 0;
}

static void *serve(void *argument)
{
	int client = (int)(intptr_t)argument, server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	char *request = malloc(HEAD), *answer = malloc(HEAD), *part = malloc(PART);
	size_t asked = 0, answered = 0, head;
	int failed = request == NULL || answer == NULL || part == NULL;

	failed = failed || server < 0 || connect(server, (struct sockaddr *)&upstream, sizeof(upstream)) != 0;
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	while (!failed && (head = read_head(client, request, &asked)) > 0) {
		if (accepted == 0)
			pthread_mutex_lock(&lock);
		nanosleep(&hold, NULL);
		failed = write_all(server, request, head) != 0 || relay(server, client, answer, &answered, part) != 0;
		if (accepted == 0)
			pthread_mutex_unlock(&lock);
		drop(request, &asked, head);
		failed = failed || accepted > 0;
	}
	close(client);
	close(server);
	free(request);
	free(answer);
	free(part);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(own);
	int listener;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: %s PORT MICROSECONDS [ACCEPTED]\n", argv[0]);
		return 2;
	}
	accepted = argc == 4 ? atol(argv[3]) : 0;
	signal(SIGPIPE, SIG_IGN);
	upstream = own;
	upstream.sin_port = htons((uint16_t)atoi(argv[1]));
	hold.tv_sec = atol(argv[2]) / 1000000;
	hold.tv_nsec = atol(argv[2]) % 1000000 * 1000;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&own, size) != 0 || listen(listener, 1024) != 0 ||
	    getsockname(listener, (struct sockaddr *)&own, &size) != 0)
		die("listen");
	printf("%d\n", ntohs(own.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (client < 0)
			continue;
		if (accepted > 0)
			usleep((useconds_t)(1000000 / accepted));
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client) != 0)
			die("pthread_create");
		pthread_detach(thread);
	}
}
