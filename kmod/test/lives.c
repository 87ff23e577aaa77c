// SPDX-License-Identifier: GPL-2.0
/* Open files by the thousand, at once, in several processes and beyond their process, and the module taken away under them. */
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

/* A thousand of them are more than the guest has: none may be left. */
#define WINDOW (1UL << 20)
#define MOST_OPEN 64
#define LARGEST (16UL << 20)

static void live(int number)
{
	int end = number % 2 ? open_sender() : open_receiver(), port;
	char *window;

	must(set_window(end, WINDOW), "KELVIN_SET_WINDOW");
	window = map_window(end, WINDOW);
	window[0] = window[WINDOW - 1] = 1;
	port = listen_end(end);
	/* To itself: a connection that nobody accepts. */
	must(connect_end(end, port), "KELVIN_CONNECT");
	munmap(window, WINDOW);
	close(end);
}

static void many(void)
{
	int number;

	for (number = 0; number < 1000; number++)
		live(number);
	check(true, "%d opens and closes, each with a window, a listener and a connection", number);
}

static void many_at_once(void)
{
	int ends[MOST_OPEN];

	for (int index = 0; index < MOST_OPEN; index++)
		ends[index] = index % 2 ? open_sender() : open_receiver();
	refused(open("/dev/kelvin_sender", O_RDWR), EMFILE, "one more open than opens_most");
	for (int index = 0; index < MOST_OPEN; index++)
		close(ends[index]);
	close(open_sender());
	check(true, "when they are closed, there is room again");
}

static void two_processes(void)
{
	int status, right = 0;

	fflush(stdout);
	for (int child = 0; child < 2; child++)
		if (!must(fork(), "fork"))
			_exit(transfer_alone(100 * child + 7) ? 0 : 1);
	while (wait(&status) > 0)
		right += WIFEXITED(status) && !WEXITSTATUS(status);
	check(right == 2, "two processes at once: each has its own bytes");
}

/* The window stays with whoever maps it, also in a child, and without its open file. */
static void outlived(void)
{
	int end = open_sender(), status;
	char *window;

	must(set_window(end, WINDOW), "KELVIN_SET_WINDOW");
	window = map_window(end, WINDOW);
	close(end);
	window[0] = 1;
	fflush(stdout);
	if (!must(fork(), "fork")) {
		window[1] = 2;
		_exit(0);
	}
	wait(&status);
	check(window[0] == 1 && window[1] == 2, "a window outlives its file's close, and is one with a child's");
	refused(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while only a mapping is left");
	munmap(window, WINDOW);
}

static int load(const char *path)
{
	int file = must(open(path, O_RDONLY | O_CLOEXEC), path);
	int result = syscall(SYS_finit_module, file, "", 0);

	close(file);
	return result;
}

static long accept_call(int end)
{
	return accept_end(end);
}

static void unloaded(void)
{
	int end = open_receiver();
	struct waiter waiter;

	refused(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while a device is open");
	listen_end(end);
	begin_wait(&waiter, accept_call, end);
	refused(syscall(SYS_delete_module, "kelvin", O_NONBLOCK), EAGAIN, "unload while a call waits");
	must(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
	end_wait(&waiter);
	close(end);
	check(!syscall(SYS_delete_module, "kelvin", O_NONBLOCK), "unload when all is closed");
	check(access("/dev/kelvin_sender", F_OK) && access("/dev/kelvin_receiver", F_OK), "the devices are gone");
	check(!load("/bin/kelvin.ko"), "load again");
}

/* A connection comes and the listener goes at once: whichever is first, no socket is lost. */
static void raced(void)
{
	int end = open_receiver(), accepted = 0, shut = 0;
	struct waiter waiter;

	for (int round = 0; round < 300; round++) {
		int port = listen_end(end), peer;

		begin_wait(&waiter, accept_call, end);
		peer = connect_socket(port);
		must(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
		end_wait(&waiter);
		accepted += !waiter.result;
		shut += waiter.result && waiter.number == ESHUTDOWN;
		if (!waiter.result)
			must(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
		close(peer);
	}
	check(accepted + shut == 300, "a listener ends as connections come: %d accepted, %d not", accepted, shut);
	close(end);
}

static void modes(void)
{
	struct stat sender, receiver;

	must(stat("/dev/kelvin_sender", &sender), "stat");
	must(stat("/dev/kelvin_receiver", &receiver), "stat");
	check((sender.st_mode & 07777) == 0600 && (receiver.st_mode & 07777) == 0600, "the devices are root's alone: mode 0600");
}

static void write_to(const char *path, const char *text)
{
	int file = must(open(path, O_WRONLY | O_CLOEXEC), path);

	must(write(file, text, strlen(text)), path);
	close(file);
}

static long number_in(const char *path)
{
	FILE *file = fopen(path, "re");
	long number = -1;

	if (file && fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

static void charged(void)
{
	int end = open_sender();
	long before, after;

	mkdir("/tmp/cgroup", 0700);
	must(mount("none", "/tmp/cgroup", "cgroup2", 0, NULL), "mount cgroup2");
	write_to("/tmp/cgroup/cgroup.subtree_control", "+memory");
	mkdir("/tmp/cgroup/one", 0700);
	write_to("/tmp/cgroup/one/cgroup.procs", "0");
	before = number_in("/tmp/cgroup/one/memory.current");
	must(set_window(end, LARGEST), "KELVIN_SET_WINDOW");
	after = number_in("/tmp/cgroup/one/memory.current");
	/* Charges are taken ahead in batches: not all of it need be new. */
	check(before >= 0 && after - before > (long)LARGEST * 9 / 10, "a window is charged to the caller: %ld bytes", after - before);
	close(end);
	write_to("/tmp/cgroup/cgroup.procs", "0");
	rmdir("/tmp/cgroup/one");
	umount("/tmp/cgroup");
}

/* TCP sockets in use or allocated, in the whole guest: those of the module are among them. */
static int sockets(void)
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

static void none_left(void)
{
	/* Those that were closed end when their peers have answered. */
	for (int tries = 0; sockets() && tries < 3000; tries++)
		usleep(10000);
	check(sockets() == 0, "no TCP socket is left: %d", sockets());
}

void check_lives(void)
{
	modes();
	many();
	many_at_once();
	two_processes();
	outlived();
	raced();
	unloaded();
	charged();
	none_left();
}
