// SPDX-License-Identifier: GPL-2.0
/* The checks of the loaded module: one line for each, and a last line with their number. */
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

static int check_count;
static int failed_checks;
size_t page_bytes;

void check(bool condition, const char *format, ...)
{
	va_list arguments;

	check_count++;
	failed_checks += !condition;
	printf("%s: ", condition ? "ok" : "FAILED");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

void check_errno(long result, int expected, const char *call)
{
	int actual = result == -1 ? errno : 0;

	if (actual == expected)
		check(true, "%s: %s", call, strerrorname_np(expected));
	else
		check(false, "%s: %ld with errno %d, not %s", call, result, actual, strerrorname_np(expected));
}

long require(long result, const char *call)
{
	if (result >= 0)
		return result;
	printf("FAILED: %s: %s\n", call, strerror(errno));
	exit(1);
}

int failure_count(void)
{
	return failed_checks;
}

int print_summary(void)
{
	if (failed_checks)
		printf("kmod: %d of %d checks FAILED\n", failed_checks, check_count);
	else
		printf("kmod: all of %d checks passed\n", check_count);
	return failed_checks != 0;
}

int open_sender(void)
{
	return require(open("/dev/kelvin_sender", O_RDWR | O_CLOEXEC), "open /dev/kelvin_sender");
}

int open_receiver(void)
{
	return require(open("/dev/kelvin_receiver", O_RDWR | O_CLOEXEC), "open /dev/kelvin_receiver");
}

struct __kernel_sockaddr_storage loopback(int family, int port)
{
	struct __kernel_sockaddr_storage address = { .ss_family = family };
	struct sockaddr_in *ipv4 = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)&address;

	if (family == AF_INET) {
		ipv4->sin_port = htons(port);
		ipv4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		ipv6->sin6_port = htons(port);
		ipv6->sin6_addr = in6addr_loopback;
	}
	return address;
}

/* Both address families have the port at the same offset. */
static int address_port(const void *address)
{
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

int listen_end(int end)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 0);

	require(ioctl(end, KELVIN_LISTEN, &address), "KELVIN_LISTEN");
	require(ioctl(end, KELVIN_GETNAME, &address), "KELVIN_GETNAME");
	return address_port(&address);
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

int listen_on_socket(int backlog, int *port)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 0);
	socklen_t length = sizeof(address);
	int listener = require(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	require(bind(listener, (struct sockaddr *)&address, sizeof(struct sockaddr_in)), "bind");
	require(listen(listener, backlog), "listen");
	require(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	*port = address_port(&address);
	return listener;
}

int connect_socket(int port)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, port);
	int peer = require(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	require(connect(peer, (struct sockaddr *)&address, sizeof(struct sockaddr_in)), "connect");
	return peer;
}

int connect_to_peer(int end)
{
	int port, peer, listener = listen_on_socket(1, &port);

	require(connect_end(end, port), "KELVIN_CONNECT");
	peer = require(accept4(listener, NULL, NULL, SOCK_CLOEXEC), "accept");
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

	require(window == MAP_FAILED ? -1 : 0, "mmap of a window");
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
	waiter->error = errno;
	return NULL;
}

/* Whether a thread that has started its call is in interruptible sleep (S). Only the call sleeps in this state. */
static bool is_sleeping(int task)
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

void start_waiter(struct waiter *waiter, long (*call)(int end), int end)
{
	*waiter = (struct waiter){ .call = call, .end = end };
	require(-pthread_create(&waiter->thread, NULL, run_waiter, waiter), "pthread_create");
	while (!waiter->task || !is_sleeping(waiter->task))
		sched_yield();
}

void join_waiter(struct waiter *waiter)
{
	pthread_join(waiter->thread, NULL);
	errno = waiter->error;
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
	check_lifetimes();
	return print_summary();
}
