// SPDX-License-Identifier: GPL-2.0
/* The checks of the module that is loaded: one line each, and a last line that says how many there were. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static int checks;
static int failed;
size_t page_bytes;

void check(bool holds, const char *format, ...)
{
	va_list arguments;

	checks++;
	failed += !holds;
	printf("%s: ", holds ? "ok" : "FAILED");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

void refused(long result, int number, const char *what)
{
	int found = result == -1 ? errno : 0;

	if (found == number)
		check(true, "%s: %s", what, strerrorname_np(number));
	else
		check(false, "%s: %ld with errno %d, not %s", what, result, found, strerrorname_np(number));
}

long must(long result, const char *what)
{
	if (result >= 0)
		return result;
	printf("FAILED: %s: %s\n", what, strerror(errno));
	exit(1);
}

int failures(void)
{
	return failed;
}

int finish(void)
{
	if (failed)
		printf("kmod: %d of %d checks FAILED\n", failed, checks);
	else
		printf("kmod: all of %d checks passed\n", checks);
	return failed != 0;
}

int open_sender(void)
{
	return must(open("/dev/kelvin_sender", O_RDWR | O_CLOEXEC), "open /dev/kelvin_sender");
}

int open_receiver(void)
{
	return must(open("/dev/kelvin_receiver", O_RDWR | O_CLOEXEC), "open /dev/kelvin_receiver");
}

struct __kernel_sockaddr_storage loopback(int family, int port)
{
	struct __kernel_sockaddr_storage address = { .ss_family = family };
	struct sockaddr_in *four = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;

	if (family == AF_INET) {
		four->sin_port = htons(port);
		four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		six->sin6_port = htons(port);
		six->sin6_addr = in6addr_loopback;
	}
	return address;
}

/* Both families have it in the same place. */
static int port_of(const void *address)
{
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

int listen_end(int end)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 0);

	must(ioctl(end, KELVIN_LISTEN, &address), "KELVIN_LISTEN");
	must(ioctl(end, KELVIN_GETNAME, &address), "KELVIN_GETNAME");
	return port_of(&address);
}

int connect_end(int end, int port)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, port);

	return ioctl(end, KELVIN_CONNECT, &address);
}

int accept_end(int end)
{
	struct __kernel_sockaddr_storage address;

	return ioctl(end, KELVIN_ACCEPT, &address);
}

int listen_socket(int backlog, int *port)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 0);
	socklen_t length = sizeof(address);
	int listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(bind(listener, (struct sockaddr *)&address, sizeof(struct sockaddr_in)), "bind");
	must(listen(listener, backlog), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	*port = port_of(&address);
	return listener;
}

int connect_socket(int port)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, port);
	int peer = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(connect(peer, (struct sockaddr *)&address, sizeof(struct sockaddr_in)), "connect");
	return peer;
}

int peer_of(int end)
{
	int port, peer, listener = listen_socket(1, &port);

	must(connect_end(end, port), "KELVIN_CONNECT");
	peer = must(accept4(listener, NULL, NULL, SOCK_CLOEXEC), "accept");
	close(listener);
	return peer;
}

int set_window(int end, size_t bytes)
{
	__u64 argument = bytes;

	return ioctl(end, KELVIN_SET_WINDOW, &argument);
}

void *map_window(int end, size_t bytes)
{
	void *window = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, end, 0);

	must(window == MAP_FAILED ? -1 : 0, "mmap of a window");
	return window;
}

long span_call(int end, unsigned long command, size_t offset, size_t length)
{
	struct kelvin_span span = { .offset = offset, .length = length };

	if (command == KELVIN_RECEIVE)
		span.flags = KELVIN_ALL;
	return ioctl(end, command, &span);
}

static void *run_waiter(void *argument)
{
	struct waiter *waiter = argument;

	waiter->task = syscall(SYS_gettid);
	waiter->result = waiter->call(waiter->end);
	waiter->number = errno;
	return NULL;
}

/* S, for interruptible sleep, of a thread that has begun its call: nothing else there sleeps so. */
static bool sleeps(int task)
{
	char path[64], state = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", task);
	stat = fopen(path, "re");
	if (!stat)
		return false;
	if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(stat);
	return state == 'S';
}

void begin_wait(struct waiter *waiter, long (*call)(int end), int end)
{
	*waiter = (struct waiter){ .call = call, .end = end };
	must(-pthread_create(&waiter->thread, NULL, run_waiter, waiter), "pthread_create");
	while (!waiter->task || !sleeps(waiter->task))
		sched_yield();
}

void end_wait(struct waiter *waiter)
{
	pthread_join(waiter->thread, NULL);
	errno = waiter->number;
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	page_bytes = sysconf(_SC_PAGESIZE);
	check_refusals();
	check_waits();
	check_transfers();
	check_pages();
	check_races();
	check_lives();
	return finish();
}
