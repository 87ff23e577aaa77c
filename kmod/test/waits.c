// SPDX-License-Identifier: GPL-2.0
/* What ends a call that waits: a signal, a close by another thread, a peer that vanishes; and what poll says meanwhile. */
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
#define WINDOW (16UL << 20)

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
	return span_call(end, KELVIN_SEND, 0, WINDOW);
}

/* Until it fails: writes are cut short before. */
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

/* Again and again: one that comes before the call waits would be lost. */
static void alarms(bool on)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval every = { };

	every.it_interval.tv_usec = every.it_value.tv_usec = on ? 20000 : 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

/* Ends by a signal, since the listener takes no more connections. */
static void interrupted_connect(int end)
{
	int port, listener = listen_socket(0, &port), peers[2];

	for (int index = 0; index < 2; index++) {
		struct __kernel_sockaddr_storage address = loopback(AF_INET, port);

		peers[index] = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
		connect(peers[index], (struct sockaddr *)&address, sizeof(struct sockaddr_in));
	}
	alarms(true);
	refused(connect_end(end, port), EINTR, "KELVIN_CONNECT and a signal");
	alarms(false);
	check(!ioctl(end, KELVIN_CLOSE), "the attempt goes on until KELVIN_CLOSE");
	close(peers[0]);
	close(peers[1]);
	close(listener);
}

static void interrupted(void)
{
	int receiver = open_receiver(), peer;

	must(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	listen_end(receiver);
	alarms(true);
	refused(accept_end(receiver), EINTR, "KELVIN_ACCEPT and a signal");
	alarms(false);
	interrupted_connect(receiver);
	peer = peer_of(receiver);
	alarms(true);
	refused(read_call(receiver), EINTR, "read and a signal");
	refused(receive_call(receiver), EINTR, "KELVIN_RECEIVE and a signal");
	refused(write_call(receiver), EINTR, "write and a signal");
	alarms(false);
	close(peer);
	close(receiver);
}

struct closing {
	const char *what;
	long (*call)(int end);
	unsigned long command;
};

/* What was moved before, or that the end was shut. */
static void closed_under(int end, const struct closing *closing)
{
	struct waiter waiter;

	begin_wait(&waiter, closing->call, end);
	must(ioctl(end, closing->command), "the ioctl that closes");
	end_wait(&waiter);
	if (closing->call == write_call && waiter.number == ENOTCONN)
		check(waiter.result == -1, "%s and KELVIN_CLOSE: ENOTCONN of the next one", closing->what);
	else if (closing->call == send_call && waiter.result > 0)
		check((size_t)waiter.result < WINDOW, "%s and KELVIN_CLOSE: %ld bytes", closing->what, waiter.result);
	else
		refused(waiter.result, ESHUTDOWN, closing->what);
}

static void closed_by_another_thread(void)
{
	const struct closing accepting = { "KELVIN_ACCEPT and KELVIN_UNLISTEN", accept_call, KELVIN_UNLISTEN };
	const struct closing of_receiver[] = { { "read", read_call, KELVIN_CLOSE },
					       { "KELVIN_RECEIVE", receive_call, KELVIN_CLOSE },
					       { "write", write_call, KELVIN_CLOSE } };
	const struct closing sending = { "KELVIN_SEND", send_call, KELVIN_CLOSE };
	int receiver = open_receiver(), sender = open_sender(), peer;

	must(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	must(set_window(sender, WINDOW), "KELVIN_SET_WINDOW");
	listen_end(receiver);
	closed_under(receiver, &accepting);
	for (size_t index = 0; index < sizeof(of_receiver) / sizeof(*of_receiver); index++) {
		peer = peer_of(receiver);
		closed_under(receiver, &of_receiver[index]);
		close(peer);
	}
	peer = peer_of(sender);
	closed_under(sender, &sending);
	close(peer);
	close(sender);
	close(receiver);
}

static void reset(int peer)
{
	struct linger none = { .l_onoff = 1 };

	setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(peer);
}

static void vanished_under(long (*call)(int end), const char *what)
{
	int end = call == send_call ? open_sender() : open_receiver();
	struct waiter waiter;
	int peer;

	must(set_window(end, WINDOW), "KELVIN_SET_WINDOW");
	peer = peer_of(end);
	begin_wait(&waiter, call, end);
	reset(peer);
	end_wait(&waiter);
	if (call == send_call && waiter.result > 0)
		check((size_t)waiter.result < WINDOW, "%s: %ld bytes", what, waiter.result);
	else
		check(waiter.result == -1 && (waiter.number == ECONNRESET || waiter.number == EPIPE), "%s: %s", what,
		      strerrorname_np(waiter.number));
	if (call == write_call || call == send_call) {
		/* An error that waits is told once. */
		write(end, buffer, 1);
		refused(write(end, buffer, 1), EPIPE, "a write after that");
	}
	check(!ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE of what it left");
	close(end);
}

static void ended_by_peer(void)
{
	int receiver = open_receiver(), peer;

	must(set_window(receiver, page_bytes), "KELVIN_SET_WINDOW");
	peer = peer_of(receiver);
	must(write(peer, "12345", 5), "write");
	close(peer);
	check(receive_call(receiver) == 5, "KELVIN_RECEIVE of a page, of which 5 bytes came: 5");
	check(receive_call(receiver) == 0 && read_call(receiver) == 0, "and then the end of the stream: 0");
	close(receiver);
}

/* The default of SIGPIPE stands: it would end this program. */
static void vanished_peers(void)
{
	vanished_under(read_call, "read, and the peer resets");
	vanished_under(receive_call, "KELVIN_RECEIVE, and the peer resets");
	vanished_under(write_call, "write, and the peer resets");
	vanished_under(send_call, "KELVIN_SEND, and the peer resets");
	ended_by_peer();
}

static void killed_end(void)
{
	int port, listener = listen_socket(1, &port), status, peer, child;
	long bytes;

	fflush(stdout);
	child = must(fork(), "fork");
	if (!child) {
		int end = open_sender();

		must(set_window(end, WINDOW), "KELVIN_SET_WINDOW");
		must(connect_end(end, port), "KELVIN_CONNECT");
		while (send_call(end) > 0)
			;
		_exit(1);
	}
	peer = must(accept(listener, NULL, NULL), "accept");
	must(read(peer, buffer, sizeof(buffer)), "read");
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

static short events_of(int end, short wanted)
{
	struct pollfd one = { .fd = end, .events = wanted };

	must(poll(&one, 1, 0), "poll");
	return one.revents;
}

static long poll_in(int end)
{
	struct pollfd one = { .fd = end, .events = POLLIN };

	return poll(&one, 1, -1) == 1 ? one.revents : -1;
}

static long poll_out(int end)
{
	struct pollfd one = { .fd = end, .events = POLLOUT };

	return poll(&one, 1, -1) == 1 ? one.revents : -1;
}

static long epoll_in(int end)
{
	struct epoll_event one = { .events = EPOLLIN };
	int set = epoll_create1(EPOLL_CLOEXEC);

	epoll_ctl(set, EPOLL_CTL_ADD, end, &one);
	if (epoll_wait(set, &one, 1, -1) != 1)
		one.events = 0;
	close(set);
	return one.events;
}

static void polled(void)
{
	int end = open_receiver(), port, peer;
	struct waiter waiter;

	check(events_of(end, POLLIN) == POLLHUP, "poll without a connection: POLLHUP");
	port = listen_end(end);
	check(events_of(end, POLLIN) == 0, "poll of an end that listens: nothing yet");
	begin_wait(&waiter, poll_in, end);
	peer = connect_socket(port);
	end_wait(&waiter);
	check(waiter.result == POLLIN, "poll wakes for a connection");
	must(accept_end(end), "KELVIN_ACCEPT");
	begin_wait(&waiter, poll_in, end);
	must(write(peer, "k", 1), "write");
	end_wait(&waiter);
	check(waiter.result == POLLIN, "poll wakes for a byte");
	must(read(end, buffer, 1), "read");
	begin_wait(&waiter, epoll_in, end);
	must(ioctl(end, KELVIN_UNLISTEN), "KELVIN_UNLISTEN");
	must(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
	end_wait(&waiter);
	check(waiter.result & EPOLLHUP, "epoll wakes for a connection closed by another thread: EPOLLHUP");
	close(peer);
	close(end);
}

static void polled_for_room(void)
{
	int end = open_receiver(), peer = peer_of(end);
	struct waiter waiter;
	long sent = 0, one;

	check(events_of(end, POLLOUT) == POLLOUT, "poll of an idle connection: POLLOUT");
	fcntl(end, F_SETFL, O_NONBLOCK);
	while ((one = write(end, buffer, sizeof(buffer))) > 0)
		sent += one;
	refused(one, EAGAIN, "write to a full connection with O_NONBLOCK");
	begin_wait(&waiter, poll_out, end);
	for (; sent > 0; sent -= one)
		one = must(read(peer, buffer, sizeof(buffer)), "read");
	end_wait(&waiter);
	check(waiter.result == POLLOUT, "poll wakes for room");
	close(peer);
	close(end);
}

static void connected_later(void)
{
	int end = open_sender(), port, listener = listen_socket(1, &port);

	fcntl(end, F_SETFL, O_NONBLOCK);
	refused(connect_end(end, port), EINPROGRESS, "KELVIN_CONNECT with O_NONBLOCK");
	check(poll_out(end) == POLLOUT && !connect_end(end, port), "poll, and KELVIN_CONNECT again: connected");
	refused(connect_end(end, port), EISCONN, "and again");
	must(ioctl(end, KELVIN_CLOSE), "KELVIN_CLOSE");
	close(listener);
	refused(connect_end(end, port), EINPROGRESS, "KELVIN_CONNECT with O_NONBLOCK where nobody listens");
	poll_out(end);
	refused(connect_end(end, port), ECONNREFUSED, "poll, and KELVIN_CONNECT again");
	refused(ioctl(end, KELVIN_CLOSE), ENOTCONN, "KELVIN_CLOSE after that");
	close(end);
}

/* Nobody gets one whom F_SETOWN does not name: so it was in the published study. */
static void signalled(void)
{
	struct timespec most = { .tv_sec = 60 };
	int end = open_receiver(), peer = peer_of(end);
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	must(fcntl(end, F_SETOWN, getpid()), "F_SETOWN");
	must(fcntl(end, F_SETFL, O_ASYNC), "O_ASYNC");
	must(write(peer, "k", 1), "write");
	check(sigtimedwait(&set, NULL, &most) == SIGIO, "SIGIO comes with a byte after O_ASYNC");
	check(read_call(end) == 1, "and a read without O_NONBLOCK gets it");
	check(!fcntl(end, F_SETFL, 0), "O_ASYNC is taken back");
	close(peer);
	close(end);
}

void check_waits(void)
{
	interrupted();
	closed_by_another_thread();
	vanished_peers();
	killed_end();
	polled();
	polled_for_room();
	connected_later();
	signalled();
}
