// SPDX-License-Identifier: GPL-2.0
/* Lifetimes: thousands of open files, in sequence and at the same time, in several processes, and unloading of the module. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A thousand windows exceed the memory of the guest, so none may leak. */
#define WINDOW_BYTES (1UL << 20)
#define MAX_OPEN_FILES 64
#define MAX_WINDOW (16UL << 20)

static void open_and_close(int number)
{
	int end = number % 2 ? open_sender() : open_receiver(), port;
	char *window;

	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	window = map_window(end, WINDOW_BYTES);
	window[0] = window[WINDOW_BYTES - 1] = 1;
	port = listen_end(end);
	/* The end connects to itself, and no call accepts the connection. */
	require(connect_end(end, port), "KELVIN_CONNECT");
	munmap(window, WINDOW_BYTES);
	close(end);
}

static void open_repeatedly(void)
{
	int number;

	for (number = 0; number < 1000; number++)
		open_and_close(number);
	check(true, "%d opens and closes, each with a window, a listener and a connection", number);
}

static void open_maximum(void)
{
	int ends[MAX_OPEN_FILES];

	for (int index = 0; index < MAX_OPEN_FILES; index++)
		ends[index] = index % 2 ? open_sender() : open_receiver();
	check_errno(open("/dev/kelvin_sender", O_RDWR), EMFILE, "one more open than opens_most");
	for (int index = 0; index < MAX_OPEN_FILES; index++)
		close(ends[index]);
	close(open_sender());
	check(true, "when they are closed, there is room again");
}

static void transfer_in_two_processes(void)
{
	int status, successes = 0;

	fflush(stdout);
	for (int child = 0; child < 2; child++)
		if (!require(fork(), "fork"))
			_exit(transfer_windows(100 * child + 7) ? 0 : 1);
	while (wait(&status) > 0)
		successes += WIFEXITED(status) && !WEXITSTATUS(status);
	check(successes == 2, "two processes at once: each has its own bytes");
}

/* A mapped window outlives its open file, in a child too. */
static void window_outlives_file(void)
{
	int end = open_sender(), status;
	char *window;

	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	window = map_window(end, WINDOW_BYTES);
	close(end);
	window[0] = 1;
	fflush(stdout);
	if (!require(fork(), "fork")) {
		window[1] = 2;
		_exit(0);
	}
	wait(&status);
	check(window[0] == 1 && window[1] == 2, "a window outlives its file's close, and is one with a child's");
	check_errno(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while only a mapping is left");
	munmap(window, WINDOW_BYTES);
}

static int load_module(const char *path)
{
	int file = require(open(path, O_RDONLY | O_CLOEXEC), path);
	int result = syscall(SYS_finit_module, file, "", 0);

	close(file);
	return result;
}

static long accept_call(int end)
{
	return accept_end(end);
}

static void unload_module(void)
{
	int end = open_receiver();
	struct waiter waiter;

	check_errno(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while a device is open");
	listen_end(end);
	start_waiter(&waiter, accept_call, end);
	check_errno(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while a call waits");
	require(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
	join_waiter(&waiter);
	close(end);
	check(!syscall(SYS_delete_module, "kelvin", O_NONBLOCK), "unload when all is closed");
	check(access("/dev/kelvin_sender", F_OK) && access("/dev/kelvin_receiver", F_OK), "the devices are gone");
	check(!load_module("/bin/kelvin.ko"), "load again");
}

/* A connection arrives while the listener is closed: in either order no socket leaks. */
static void race_unlisten(void)
{
	int end = open_receiver(), accepted = 0, refused = 0;
	struct waiter waiter;

	for (int round = 0; round < 300; round++) {
		int port = listen_end(end), peer;

		start_waiter(&waiter, accept_call, end);
		peer = connect_socket(port);
		require(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
		join_waiter(&waiter);
		accepted += !waiter.result;
		refused += waiter.result && waiter.error == ESHUTDOWN;
		if (!waiter.result)
			require(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
		close(peer);
	}
	check(accepted + refused == 300, "a listener ends as connections come: %d accepted, %d not", accepted, refused);
	close(end);
}

static void device_modes(void)
{
	struct stat sender, receiver;

	require(stat("/dev/kelvin_sender", &sender), "stat");
	require(stat("/dev/kelvin_receiver", &receiver), "stat");
	check((sender.st_mode & 07777) == 0600 && (receiver.st_mode & 07777) == 0600, "the devices are root's alone: mode 0600");
}

static void write_to(const char *path, const char *text)
{
	int file = require(open(path, O_WRONLY | O_CLOEXEC), path);

	require(write(file, text, strlen(text)), path);
	close(file);
}

static long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long number = -1;

	if (file && fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

static void window_is_charged(void)
{
	int end = open_sender();
	long before, after;

	mkdir("/tmp/cgroup", 0700);
	require(mount("none", "/tmp/cgroup", "cgroup2", 0, NULL), "mount cgroup2");
	write_to("/tmp/cgroup/cgroup.subtree_control", "+memory");
	mkdir("/tmp/cgroup/one", 0700);
	write_to("/tmp/cgroup/one/cgroup.procs", "0");
	before = read_number("/tmp/cgroup/one/memory.current");
	require(set_window(end, MAX_WINDOW), "KELVIN_SET_WINDOW");
	after = read_number("/tmp/cgroup/one/memory.current");
	/* The kernel charges memory in batches, so a part may be charged already. */
	check(before >= 0 && after - before > (long)MAX_WINDOW * 9 / 10, "a window is charged to the caller: %ld bytes", after - before);
	close(end);
	write_to("/tmp/cgroup/cgroup.procs", "0");
	rmdir("/tmp/cgroup/one");
	umount("/tmp/cgroup");
}

/* The number of TCP sockets in use or allocated in the guest, including those of the module. */
static int tcp_socket_count(void)
{
	FILE *file = fopen("/proc/net/sockstat", "re");
	int used = -1, orphans = 0, waiting, allocated = 0;

	if (!file)
		return -1;
	if (fscanf(file, "%*[^\n] TCP: inuse %d orphan %d tw %d alloc %d", &used, &orphans, &waiting, &allocated) != 4)
		used = -1;
	fclose(file);
	return used < 0 ? -1 : used + orphans + allocated;
}

static void no_sockets_remain(void)
{
	/* Closed sockets are freed after their peers have answered. */
	for (int tries = 0; tcp_socket_count() && tries < 3000; tries++)
		usleep(10000);
	check(tcp_socket_count() == 0, "no TCP socket is left: %d", tcp_socket_count());
}

void check_lifetimes(void)
{
	device_modes();
	open_repeatedly();
	open_maximum();
	transfer_in_two_processes();
	window_outlives_file();
	race_unlisten();
	unload_module();
	window_is_charged();
	no_sockets_remain();
}
