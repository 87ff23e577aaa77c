// SPDX-License-Identifier: GPL-2.0
/* Events that end a waiting call: a signal, a close by another thread, a reset by the peer. Also the events that poll reports. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* More than the sockets of both sides buffer. */
#define WINDOW_BYTES (16UL << 20)

static char buffer[1 << 16];

static long accept_call(int end)
{
	return accept_end(end);
}

static long read_call(int end)
{
	return read(end, buffer, sizeof(buffer));
}

static long receive_call(int end)
{
	return span_call(end, KELVIN_RECEIVE, 0, page_bytes);
}

static long send_call(int end)
{
	return span_call(end, KELVIN_SEND, 0, WINDOW_BYTES);
}

/* Repeats until it fails, since earlier writes may be short. */
static long write_call(int end)
{
	long written;

	do
		written = write(end, buffer, sizeof(buffer));
	while (written >= 0);
	return written;
}

static void on_signal(int number)
{
	(void)number;
}

/* Repeated signals, since a single one before the call waits would have no effect. */
static void set_alarms(bool is_on)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval interval = { };

	interval.it_interval.tv_usec = interval.it_value.tv_usec = is_on ? 20000 : 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &interval, NULL);
}

/* A signal ends KELVIN_CONNECT, since the backlog of the listener is full. */
static void interrupted_connect(int end)
{
	int port, listener = listen_on_socket(0, &port), peers[2];

	for (int index = 0; index < 2; index++) {
		struct __kernel_sockaddr_storage address = loopback(AF_INET, port);

		peers[index] = require(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
		connect(peers[index], (struct sockaddr *)&address, sizeof(struct sockaddr_in));
	}
	set_alarms(true);
	check_errno(connect_end(end, port), EINTR, "KELVIN_CONNECT and a signal");
	set_alarms(false);
	check(!ioctl(end, KELVIN_CLOSE), "the attempt goes on until KELVIN_CLOSE");
	close(peers[0]);
	close(peers[1]);
	close(listener);
}

static void interrupted_calls(void)
{
	int receiver = open_receiver(), peer;

	require(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	listen_end(receiver);
	set_alarms(true);
	check_errno(accept_end(receiver), EINTR, "KELVIN_ACCEPT and a signal");
	set_alarms(false);
	interrupted_connect(receiver);
	peer = connect_to_peer(receiver);
	set_alarms(true);
	check_errno(read_call(receiver), EINTR, "read and a signal");
	check_errno(receive_call(receiver), EINTR, "KELVIN_RECEIVE and a signal");
	check_errno(write_call(receiver), EINTR, "write and a signal");
	set_alarms(false);
	close(peer);
	close(receiver);
}

struct closing {
	const char *what;
	long (*call)(int end);
	unsigned long command;
};

/* The call returns the bytes that were moved before, or ESHUTDOWN. */
static void close_during_call(int end, const struct closing *closing)
{
	struct waiter waiter;

	start_waiter(&waiter, closing->call, end);
	require(ioctl(end, closing->command), "the ioctl that closes");
	join_waiter(&waiter);
	if (closing->call == write_call && waiter.error == ENOTCONN)
		check(waiter.result == -1, "%s and KELVIN_CLOSE: ENOTCONN of the next one", closing->what);
	else if (closing->call == send_call && waiter.result > 0)
		check((size_t)waiter.result < WINDOW_BYTES, "%s and KELVIN_CLOSE: %ld bytes", closing->what, waiter.result);
	else
		check_errno(waiter.result, ESHUTDOWN, closing->what);
}

static void closed_by_another_thread(void)
{
	const struct closing accepting = { "KELVIN_ACCEPT and KELVIN_UNLISTEN", accept_call, KELVIN_UNLISTEN };
	const struct closing receiver_calls[] = { { "read", read_call, KELVIN_CLOSE },
					       { "KELVIN_RECEIVE", receive_call, KELVIN_CLOSE },
					       { "write", write_call, KELVIN_CLOSE } };
	const struct closing sending = { "KELVIN_SEND", send_call, KELVIN_CLOSE };
	int receiver = open_receiver(), sender = open_sender(), peer;

	require(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	require(set_window(sender, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	listen_end(receiver);
	close_during_call(receiver, &accepting);
	for (size_t index = 0; index < sizeof(receiver_calls) / sizeof(*receiver_calls); index++) {
		peer = connect_to_peer(receiver);
		close_during_call(receiver, &receiver_calls[index]);
		close(peer);
	}
	peer = connect_to_peer(sender);
	close_during_call(sender, &sending);
	close(peer);
	close(sender);
	close(receiver);
}

static void reset_connection(int peer)
{
	struct linger none = { .l_onoff = 1 };

	setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(peer);
}

static void reset_during_call(long (*call)(int end), const char *description)
{
	int end = call == send_call ? open_sender() : open_receiver();
	struct waiter waiter;
	int peer;

	require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
	peer = connect_to_peer(end);
	start_waiter(&waiter, call, end);
	reset_connection(peer);
	join_waiter(&waiter);
	if (call == send_call && waiter.result > 0)
		check((size_t)waiter.result < WINDOW_BYTES, "%s: %ld bytes", description, waiter.result);
	else
		check(waiter.result == -1 && (waiter.error == ECONNRESET || waiter.error == EPIPE), "%s: %s", description,
		      strerrorname_np(waiter.error));
	if (call == write_call || call == send_call) {
		/* A pending error is reported once. */
		write(end, buffer, 1);
		check_errno(write(end, buffer, 1), EPIPE, "a write after that");
	}
	check(!ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE of what it left");
	close(end);
}

static void end_of_stream(void)
{
	int receiver = open_receiver(), peer;

	require(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	peer = connect_to_peer(receiver);
	require(write(peer, "12345", 5), "write");
	close(peer);
	check(receive_call(receiver) == 5, "KELVIN_RECEIVE of a page, of which 5 bytes came: 5");
	check(receive_call(receiver) == 0 && read_call(receiver) == 0, "and then the end of the stream: 0");
	close(receiver);
}

/* SIGPIPE has its default action: it would end this program. */
static void vanished_peers(void)
{
	reset_during_call(read_call, "read, and the peer resets");
	reset_during_call(receive_call, "KELVIN_RECEIVE, and the peer resets");
	reset_during_call(write_call, "write, and the peer resets");
	reset_during_call(send_call, "KELVIN_SEND, and the peer resets");
	end_of_stream();
}

static void killed_end(void)
{
	int port, listener = listen_on_socket(1, &port), status, peer, child;
	long bytes;

	fflush(stdout);
	child = require(fork(), "fork");
	if (!child) {
		int end = open_sender();

		require(set_window(end, WINDOW_BYTES), "KELVIN_SET_WINDOW");
		require(connect_end(end, port), "KELVIN_CONNECT");
		while (send_call(end) > 0)
			;
		_exit(1);
	}
	peer = require(accept(listener, NULL, NULL), "accept");
	require(read(peer, buffer, sizeof(buffer)), "read");
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a process is killed in KELVIN_SEND");
	do
		bytes = read(peer, buffer, sizeof(buffer));
	while (bytes > 0);
	check(!bytes || errno == ECONNRESET, "its peer sees the end of the stream");
	close(peer);
	close(listener);
}

static short poll_events(int end, short wanted)
{
	struct pollfd entry = { .fd = end, .events = wanted };

	require(poll(&entry, 1, 0), "poll");
	return entry.revents;
}

static long poll_in(int end)
{
	struct pollfd entry = { .fd = end, .events = POLLIN };

	return poll(&entry, 1, -1) == 1 ? entry.revents : -1;
}

static long poll_out(int end)
{
	struct pollfd entry = { .fd = end, .events = POLLOUT };

	return poll(&entry, 1, -1) == 1 ? entry.revents : -1;
}

static long epoll_in(int end)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	epoll_ctl(epoll, EPOLL_CTL_ADD, end, &event);
	if (epoll_wait(epoll, &event, 1, -1) != 1)
		event.events = 0;
	close(epoll);
	return event.events;
}

static void poll_wakes(void)
{
	int end = open_receiver(), port, peer;
	struct waiter waiter;

	check(poll_events(end, POLLIN) == POLLHUP, "poll without a connection: POLLHUP");
	port = listen_end(end);
	check(poll_events(end, POLLIN) == 0, "poll of an end that listens: nothing yet");
	start_waiter(&waiter, poll_in, end);
	peer = connect_socket(port);
	join_waiter(&waiter);
	check(waiter.result == POLLIN, "poll wakes for a connection");
	require(accept_end(end), "KELVIN_ACCEPT");
	start_waiter(&waiter, poll_in, end);
	require(write(peer, "k", 1), "write");
	join_waiter(&waiter);
	check(waiter.result == POLLIN, "poll wakes for a byte");
	require(read(end, buffer, 1), "read");
	start_waiter(&waiter, epoll_in, end);
	require(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
	require(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
	join_waiter(&waiter);
	check(waiter.result & EPOLLHUP, "epoll wakes for a connection closed by another thread: EPOLLHUP");
	close(peer);
	close(end);
}

static void poll_wakes_for_space(void)
{
	int end = open_receiver(), peer = connect_to_peer(end);
	struct waiter waiter;
	long sent = 0, count;

	check(poll_events(end, POLLOUT) == POLLOUT, "poll of an idle connection: POLLOUT");
	fcntl(end, F_SETFL, O_NONBLOCK);
	while ((count = write(end, buffer, sizeof(buffer))) > 0)
		sent += count;
	check_errno(count, EAGAIN, "write to a full connection with O_NONBLOCK");
	start_waiter(&waiter, poll_out, end);
	for (; sent > 0; sent -= count)
		count = require(read(peer, buffer, sizeof(buffer)), "read");
	join_waiter(&waiter);
	check(waiter.result == POLLOUT, "poll wakes for buffer space");
	close(peer);
	close(end);
}

static void nonblocking_connect(void)
{
	int end = open_sender(), port, listener = listen_on_socket(1, &port);

	fcntl(end, F_SETFL, O_NONBLOCK);
	check_errno(connect_end(end, port), EINPROGRESS, "KELVIN_CONNECT with O_NONBLOCK");
	check(poll_out(end) == POLLOUT && !connect_end(end, port), "poll, and KELVIN_CONNECT again: connected");
	check_errno(connect_end(end, port), EISCONN, "and again");
	require(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
	close(listener);
	check_errno(connect_end(end, port), EINPROGRESS, "KELVIN_CONNECT with O_NONBLOCK where nobody listens");
	poll_out(end);
	check_errno(connect_end(end, port), ECONNREFUSED, "poll, and KELVIN_CONNECT again");
	check_errno(ioctl(end, KELVIN_CLOSE), ENOTCONN, "KELVIN_CLOSE after that");
	close(end);
}

/* Only the process named by F_SETOWN gets the signal, as in the published study. */
static void signal_on_byte(void)
{
	struct timespec timeout = { .tv_sec = 60 };
	int end = open_receiver(), peer = connect_to_peer(end);
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	require(fcntl(end, F_SETOWN, getpid()), "F_SETOWN");
	require(fcntl(end, F_SETFL, O_ASYNC), "O_ASYNC");
	require(write(peer, "k", 1), "write");
	check(sigtimedwait(&set, NULL, &timeout) == SIGIO, "SIGIO comes with a byte after O_ASYNC");
	check(read_call(end) == 1, "and a read without O_NONBLOCK gets it");
	check(!fcntl(end, F_SETFL, 0), "O_ASYNC is cleared");
	close(peer);
	close(end);
}

void check_waits(void)
{
	interrupted_calls();
	closed_by_another_thread();
	vanished_peers();
	killed_end();
	poll_wakes();
	poll_wakes_for_space();
	nonblocking_connect();
	signal_on_byte();
}
