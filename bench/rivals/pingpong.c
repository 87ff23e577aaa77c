/* Two processes pass a message to and fro over TCP (loopback), UDP (loopback) or Unix stream sockets; every round trip is
 * timed by itself, with the same calls as kelvin's: one send a message, as many recv as it takes.
 *
 * usage: pingpong CPU SECONDS tcp|udp|unix BYTES OTHER_CPU
 * Prints net.rtt; the faster and the slower half of the round trips by themselves, for over Unix sockets on one CPU there are
 * two modes, about equally often; and the context switches of this process for each round trip. */
#include "rival.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

static size_t bytes;
static char *message, *answer;

static void named(int socket, struct sockaddr_in *name)
{
	socklen_t length = sizeof *name;

	if (getsockname(socket, (struct sockaddr *)name, &length) != 0)
		die("getsockname");
}

static int bound(int type)
{
	struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int made = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (made < 0 || bind(made, (struct sockaddr *)&loopback, sizeof loopback) != 0)
		die("bind");
	return made;
}

static void joined(int from, int to)
{
	struct sockaddr_in name;

	named(to, &name);
	if (connect(from, (struct sockaddr *)&name, sizeof name) != 0)
		die("connect");
}

/* As kelvin does, before connecting, as a connection that began under bbr would stay paced: reno where there is no
 * cubic, or only root may choose it. */
static void prefer_congestion_control(int end)
{
	if (setsockopt(end, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		setsockopt(end, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static void connected(const char *protocol, int ends[2])
{
	int one = 1;

	if (strcmp(protocol, "unix") == 0) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
			die("socketpair");
	} else if (strcmp(protocol, "udp") == 0) {
		ends[0] = bound(SOCK_DGRAM);
		ends[1] = bound(SOCK_DGRAM);
		joined(ends[0], ends[1]);
		joined(ends[1], ends[0]);
	} else {
		int listening = bound(SOCK_STREAM);

		ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (ends[0] < 0 || listen(listening, 1) != 0)
			die("listen");
		prefer_congestion_control(listening);
		prefer_congestion_control(ends[0]);
		joined(ends[0], listening);
		ends[1] = accept(listening, NULL, NULL);
		close(listening);
		for (int i = 0; i < 2; i++)
			setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	}
}

static void put(int to, const char *from)
{
	if (send(to, from, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		die("send");
}

static void get(int from, char *to)
{
	for (size_t have = 0; have < bytes;) {
		ssize_t more = recv(from, to + have, bytes - have, 0);

		if (more <= 0)
			die("recv");
		have += more;
	}
}

static void give_back(int at)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		get(at, answer);
		put(at, answer);
	}
}

/* Of sorted samples those from one to before another. */
static void report_part(const char *name, const struct samples *sorted, uint32_t from, uint32_t to)
{
	struct samples *part = new_samples();

	for (uint32_t i = from; i < to; i++)
		keep(part, sorted->nanoseconds[i]);
	report(name, part);
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: %s CPU SECONDS tcp|udp|unix BYTES OTHER_CPU\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();
	/* Kelvin waits no longer than this either: half a second for a datagram, five seconds else. */
	int is_udp = strcmp(argv[3], "udp") == 0;
	struct timeval limit = { .tv_sec = is_udp ? 0 : 5, .tv_usec = is_udp ? 500000 : 0 };
	unsigned long trips = 0;
	int ends[2];

	bytes = atoi(argv[4]);
	message = malloc(bytes);
	answer = malloc(bytes);
	if (bytes == 0 || message == NULL || answer == NULL)
		die("malloc");
	memset(message, 0x5a, bytes);
	connected(argv[3], ends);
	if (setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
		die("SO_RCVTIMEO");
	pid_t pid = fork();
	if (pid == 0) {
		pin(atoi(argv[5]));
		give_back(ends[1]);
	}
	if (pid < 0)
		die("fork");
	close(ends[1]);
	pin(atoi(argv[1]));
	/* As many as kelvin makes under the counters, and some for its warm-up. */
	for (int i = 0; i < 80; i++) {
		put(ends[0], message);
		get(ends[0], answer);
	}
	long before = switches();
	for (uint64_t begun = now(); !over(begun, seconds); trips++) {
		message[0] = (char)trips;
		uint64_t start = now();

		put(ends[0], message);
		get(ends[0], answer);
		keep(samples, now() - start);
		if (answer[0] != message[0])
			die("an answer to another message");
	}
	double each = (double)(switches() - before) / trips;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("net.rtt", samples);
	if (samples->count > 1) {
		report_part("net.rtt.fast_half", samples, 0, samples->count / 2);
		report_part("net.rtt.slow_half", samples, samples->count / 2, samples->count);
	}
	printf("switches=%.3f\n", each);
	return 0;
}
