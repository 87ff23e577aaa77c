/* A process connects over loopback to another one, sends a byte, waits for one in answer, and closes; batches of 16 such
 * transactions are timed. The accepting process resets what the client has closed, so that no port stays in TIME_WAIT.
 *
 * usage: connect_loop CPU SECONDS OTHER_CPU
 * Prints net.crr: nanoseconds a transaction. */
#include "rival.h"
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BATCH = 16 };

static struct sockaddr_in address = { .sin_family = AF_INET };

static void accept_all(int listening)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	struct timeval limit = { .tv_sec = 5 };
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		int one = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

		if (one < 0 || setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
		    setsockopt(one, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) != 0)
			die("accept");
		if (recv(one, &byte, 1, 0) != 1 || send(one, &byte, 1, MSG_NOSIGNAL) != 1 || recv(one, &byte, 1, 0) != 0)
			die("answer");
		close(one);
	}
}

static void transaction(void)
{
	int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte = 1;

	if (one < 0 || connect(one, (struct sockaddr *)&address, sizeof address) != 0)
		die("connect");
	if (send(one, &byte, 1, MSG_NOSIGNAL) != 1 || recv(one, &byte, 1, 0) != 1)
		die("ask");
	close(one);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s CPU SECONDS OTHER_CPU\n", argv[0]);
		return 2;
	}
	double seconds = atof(argv[2]);
	struct samples *samples = new_samples();
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof address;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listening, (struct sockaddr *)&address, sizeof address) != 0 || listen(listening, 128) != 0 ||
	    getsockname(listening, (struct sockaddr *)&address, &length) != 0)
		die("listen");
	pid_t pid = fork();
	if (pid == 0) {
		pin(atoi(argv[3]));
		accept_all(listening);
	}
	if (pid < 0)
		die("fork");
	close(listening);
	pin(atoi(argv[1]));
	for (int i = 0; i < 100; i++)
		transaction();
	for (uint64_t begun = now(); !over(begun, seconds);) {
		uint64_t start = now();

		for (int i = 0; i < BATCH; i++)
			transaction();
		keep(samples, (now() - start) / BATCH);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("net.crr", samples);
	return 0;
}
