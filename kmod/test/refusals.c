// SPDX-License-Identifier: GPL-2.0
/* Every argument, length, pointer and state that the module refuses, with the errno. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define WINDOW_BYTES (16 * page_bytes)
#define MAX_WINDOW (16UL << 20)

static const struct {
	unsigned long command;
	const char *name;
} commands[] = {
	{ KELVIN_ABOUT, "KELVIN_ABOUT" },	  { KELVIN_CONNECT, "KELVIN_CONNECT" },
	{ KELVIN_LISTEN, "KELVIN_LISTEN" },	  { KELVIN_SET_WINDOW, "KELVIN_SET_WINDOW" },
	{ KELVIN_PTE, "KELVIN_PTE" },		  { KELVIN_GETNAME, "KELVIN_GETNAME" },
};

static void check_pointers(int end)
{
	void *addresses[] = { NULL, (void *)-4096UL, (void *)0x1000 };
	char call[80];

	for (size_t index = 0; index < sizeof(commands) / sizeof(*commands); index++)
		for (size_t position = 0; position < sizeof(addresses) / sizeof(*addresses); position++) {
			snprintf(call, sizeof(call), "%s at address %p", commands[index].name, addresses[position]);
			check_errno(ioctl(end, commands[index].command, addresses[position]), EFAULT, call);
		}
}

static void bad_pointers(void)
{
	int end = open_sender(), other = open_receiver(), peer, port = listen_end(end);

	check_pointers(end);
	peer = connect_socket(port);
	check_errno(ioctl(end, KELVIN_ACCEPT, (void *)0x1000), EFAULT, "KELVIN_ACCEPT at address 0x1000");
	check_errno(ioctl(end, KELVIN_CLOSE), ENOTCONN, "that connection is gone, KELVIN_CLOSE");
	check_errno(ioctl(end, KELVIN_SEND, NULL), EFAULT, "KELVIN_SEND at address 0");
	check_errno(ioctl(other, KELVIN_RECEIVE, NULL), EFAULT, "KELVIN_RECEIVE at address 0");
	close(peer);
	close(other);
	close(end);
}

static void bad_commands(void)
{
	int sender = open_sender(), receiver = open_receiver();
	struct kelvin_about about = { };

	check_errno(ioctl(sender, _IO(KELVIN_MAGIC, 99)), ENOTTY, "an ioctl that is not ours");
	check_errno(ioctl(sender, _IO('T', 1)), ENOTTY, "an ioctl of a terminal");
	check_errno(span_call(receiver, KELVIN_SEND, 0, 0), ENOTTY, "KELVIN_SEND at the receiver");
	check_errno(span_call(sender, KELVIN_RECEIVE, 0, 0), ENOTTY, "KELVIN_RECEIVE at the sender");
	check_errno(lseek(sender, 1, SEEK_SET), ESPIPE, "lseek");
	check_errno(pread(receiver, &about, 1, 1), ESPIPE, "pread");
	require(ioctl(sender, KELVIN_ABOUT, &about), "KELVIN_ABOUT");
	check(about.version == KELVIN_VERSION && about.page_bytes == page_bytes && about.window_bytes == MAX_WINDOW,
	      "KELVIN_ABOUT: version %u, windows up to %llu bytes", about.version, about.window_bytes);
	close(receiver);
	close(sender);
}

static int connect_family(int end, int family)
{
	struct __kernel_sockaddr_storage address = { .ss_family = family };

	return ioctl(end, KELVIN_CONNECT, &address);
}

static void bad_connections(void)
{
	int end = open_sender(), port, peer, listener = listen_on_socket(1, &port);

	close(listener);
	check_errno(connect_end(end, port), ECONNREFUSED, "KELVIN_CONNECT where nobody listens");
	check_errno(ioctl(end, KELVIN_CLOSE), ENOTCONN, "KELVIN_CLOSE after that");
	check_errno(connect_family(end, AF_UNSPEC), EAFNOSUPPORT, "KELVIN_CONNECT to no family");
	check_errno(connect_family(end, AF_UNIX), EAFNOSUPPORT, "KELVIN_CONNECT to AF_UNIX");
	check_errno(accept_end(end), EINVAL, "KELVIN_ACCEPT without KELVIN_LISTEN");
	check_errno(ioctl(end, KELVIN_UNLISTEN), EINVAL, "KELVIN_UNLISTEN without KELVIN_LISTEN");
	peer = connect_to_peer(end);
	check_errno(connect_end(end, port), EISCONN, "KELVIN_CONNECT twice");
	listen_end(end);
	check_errno(accept_end(end), EISCONN, "KELVIN_ACCEPT when connected");
	check(!ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
	check_errno(ioctl(end, KELVIN_CLOSE), ENOTCONN, "KELVIN_CLOSE twice");
	close(peer);
	close(end);
}

static int listen_at(int end, const struct __kernel_sockaddr_storage *address)
{
	return ioctl(end, KELVIN_LISTEN, address);
}

/* An address of the documentation range (TEST-NET-1), which no host has. */
static struct __kernel_sockaddr_storage foreign_address(void)
{
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 0);

	((struct sockaddr_in *)&address)->sin_addr.s_addr = htonl(0xc0000201);
	return address;
}

static void bad_listeners(void)
{
	int end = open_receiver(), port, listener = listen_on_socket(1, &port);
	struct __kernel_sockaddr_storage used_address = loopback(AF_INET, port), foreign = foreign_address(), no_family = { };
	struct __kernel_sockaddr_storage ipv6 = loopback(AF_INET6, 0);

	check_errno(listen_at(end, &used_address), EADDRINUSE, "KELVIN_LISTEN where another listens");
	check_errno(listen_at(end, &foreign), EADDRNOTAVAIL, "KELVIN_LISTEN at another host's address");
	check_errno(listen_at(end, &no_family), EAFNOSUPPORT, "KELVIN_LISTEN at no family");
	check(!listen_at(end, &ipv6), "KELVIN_LISTEN on ::1");
	check_errno(listen_at(end, &ipv6), EBUSY, "KELVIN_LISTEN twice");
	fcntl(end, F_SETFL, O_NONBLOCK);
	check_errno(accept_end(end), EAGAIN, "KELVIN_ACCEPT of nobody with O_NONBLOCK");
	check(!ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
	check_errno(ioctl(end, KELVIN_UNLISTEN), EINVAL, "KELVIN_UNLISTEN twice");
	close(listener);
	close(end);
}

static void privileged_port(void)
{
	int end = open_receiver(), status;
	struct __kernel_sockaddr_storage address = loopback(AF_INET, 80);

	fflush(stdout);
	if (!require(fork(), "fork")) {
		require(setuid(65534), "setuid");
		_exit(listen_at(end, &address) == -1 && errno == EACCES);
	}
	wait(&status);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 1, "KELVIN_LISTEN at port 80 by an ordinary user: EACCES");
	close(end);
}

static void bad_windows(void)
{
	int end = open_sender();
	char *window;

	check_errno(set_window(end, 1), EINVAL, "a window of 1 byte");
	check_errno(set_window(end, page_bytes + 1), EINVAL, "a window of a page and a byte");
	check_errno(set_window(end, MAX_WINDOW + page_bytes), EINVAL, "a window above the largest");
	check_errno(set_window(end, -page_bytes), EINVAL, "a window of all but a page of 64 bits");
	check(!set_window(end, MAX_WINDOW), "the largest window");
	check(!set_window(end, WINDOW_BYTES), "another in its place");
	window = map_window(end, WINDOW_BYTES);
	check_errno(set_window(end, page_bytes), EBUSY, "another while it is mapped");
	check_errno(set_window(end, 0), EBUSY, "none while it is mapped");
	munmap(window + page_bytes, WINDOW_BYTES - page_bytes);
	check_errno(set_window(end, 0), EBUSY, "none while one page is mapped");
	munmap(window, page_bytes);
	check(!set_window(end, 0), "none when it is not");
	close(end);
}

static long try_mapping(int end, size_t bytes, int flags, off_t offset)
{
	void *window = mmap(NULL, bytes, PROT_READ, flags, end, offset);

	return window == MAP_FAILED ? -1 : munmap(window, bytes);
}

static void bad_mappings(void)
{
	int end = open_sender(), read_only = require(open("/dev/kelvin_sender", O_RDONLY), "open");

	check_errno(try_mapping(end, page_bytes, MAP_SHARED, 0), ENOBUFS, "mmap without a window");
	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	check_errno(try_mapping(end, WINDOW_BYTES + page_bytes, MAP_SHARED, 0), EINVAL, "mmap of more than the window");
	check_errno(try_mapping(end, page_bytes, MAP_SHARED, WINDOW_BYTES), EINVAL, "mmap behind the window");
	check_errno(try_mapping(end, WINDOW_BYTES, MAP_SHARED, page_bytes), EINVAL, "mmap across the window's end");
	check_errno(try_mapping(end, page_bytes, MAP_PRIVATE, 0), EINVAL, "a private mmap");
	check(!try_mapping(end, page_bytes, MAP_SHARED, WINDOW_BYTES - page_bytes), "mmap of the window's last page");
	require(set_window(read_only, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	check(mmap(NULL, WINDOW_BYTES, PROT_WRITE, MAP_SHARED, read_only, 0) == MAP_FAILED && errno == EACCES,
	      "a writable mmap of a file open for reading: EACCES");
	check_errno(write(read_only, "", 1), EBADF, "write to it");
	close(read_only);
	close(end);
}

/* The kernel does not ask a driver whether mremap() may grow a mapping. */
static void touch_beyond_window(int end)
{
	char *window = map_window(end, WINDOW_BYTES);

	window = mremap(window, WINDOW_BYTES, 2 * WINDOW_BYTES, MREMAP_MAYMOVE);
	if (window == MAP_FAILED)
		_exit(1);
	window[WINDOW_BYTES - 1] = 1;
	window[WINDOW_BYTES] = 1;
	_exit(2);
}

static void grow_mapping(void)
{
	int end = open_sender(), status;

	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	fflush(stdout);
	if (!require(fork(), "fork"))
		touch_beyond_window(end);
	wait(&status);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "a mapping grown beyond the window, touched there: SIGBUS");
	check(!set_window(end, 0), "its process gone, the window is free");
	close(end);
}

static long send_span(int end, struct kelvin_span span)
{
	return ioctl(end, KELVIN_SEND, &span);
}

static void bad_spans(void)
{
	int end = open_sender(), receiver = open_receiver(), peer;

	check_errno(span_call(end, KELVIN_SEND, 0, 1), ENOBUFS, "KELVIN_SEND without a window");
	check_errno(span_call(receiver, KELVIN_RECEIVE, 0, 1), ENOBUFS, "KELVIN_RECEIVE without a window");
	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	require(set_window(receiver, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	check_errno(span_call(end, KELVIN_SEND, 0, WINDOW_BYTES), ENOTCONN, "KELVIN_SEND without a connection");
	check_errno(span_call(receiver, KELVIN_RECEIVE, 0, 0), ENOTCONN, "KELVIN_RECEIVE without a connection");
	peer = connect_to_peer(end);
	check_errno(span_call(end, KELVIN_SEND, 0, WINDOW_BYTES + 1), EINVAL, "KELVIN_SEND of a window and a byte");
	check_errno(span_call(end, KELVIN_SEND, WINDOW_BYTES, 1), EINVAL, "KELVIN_SEND behind the window");
	check_errno(span_call(end, KELVIN_SEND, WINDOW_BYTES + 1, 0), EINVAL, "KELVIN_SEND of nothing behind the window");
	check_errno(span_call(end, KELVIN_SEND, -1, 2), EINVAL, "KELVIN_SEND of an offset that overflows");
	check_errno(span_call(end, KELVIN_SEND, 1, -1), EINVAL, "KELVIN_SEND of a length that overflows");
	check_errno(span_call(receiver, KELVIN_RECEIVE, 1, WINDOW_BYTES), EINVAL, "KELVIN_RECEIVE across the window's end");
	check_errno(send_span(end, (struct kelvin_span){ .flags = KELVIN_ALL }), EINVAL, "KELVIN_SEND with KELVIN_ALL");
	check_errno(send_span(end, (struct kelvin_span){ .flags = 2 }), EINVAL, "KELVIN_SEND with an unknown flag");
	check_errno(send_span(end, (struct kelvin_span){ .reserved = 1 }), EINVAL, "KELVIN_SEND with what is reserved");
	check(span_call(end, KELVIN_SEND, WINDOW_BYTES, 0) == 0, "KELVIN_SEND of nothing at the window's end");
	close(peer);
	close(receiver);
	close(end);
}

static void bad_bytes(void)
{
	int end = open_receiver(), peer;
	char byte = 0;

	check_errno(write(end, "", 1), ENOTCONN, "write without a connection");
	check_errno(read(end, &byte, 1), ENOTCONN, "read without a connection");
	peer = connect_to_peer(end);
	check_errno(write(end, (void *)0x1000, 1), EFAULT, "write from address 0x1000");
	require(write(peer, "k", 1), "write");
	check_errno(read(end, (void *)0x1000, 1), EFAULT, "read to address 0x1000");
	check(read(end, &byte, 1) == 1 && byte == 'k', "the byte is still there");
	check(write(end, "", 0) == 0 && read(end, &byte, 0) == 0, "write and read of nothing");
	fcntl(end, F_SETFL, O_NONBLOCK);
	check_errno(read(end, &byte, 1), EAGAIN, "read of nothing yet with O_NONBLOCK");
	close(peer);
	close(end);
}

static void bad_pages(void)
{
	struct kelvin_page page = { .address = -4096UL };
	int end = open_sender();

	check_errno(ioctl(end, KELVIN_PTE, &page), EINVAL, "KELVIN_PTE of the kernel's address");
	page = (struct kelvin_page){ .address = (uintptr_t)&page, .reserved = 1 };
	check_errno(ioctl(end, KELVIN_PTE, &page), EINVAL, "KELVIN_PTE with what is reserved");
	close(end);
}

void check_refusals(void)
{
	bad_commands();
	bad_pointers();
	bad_connections();
	bad_listeners();
	privileged_port();
	bad_windows();
	bad_mappings();
	grow_mapping();
	bad_spans();
	bad_bytes();
	bad_pages();
}
