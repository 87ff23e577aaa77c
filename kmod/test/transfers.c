// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers by every pair of methods. Each end listens or connects. The peer
 * is the module's other device or an ordinary socket. There is a connection
 * for each file, or one for all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define WINDOW (16 * page_bytes)
/* Bytes of a write or read: the buffer size of the published study. */
#define CALL_BYTES 512

enum method { CALLS, WINDOWS, SOCKET };

static const char *const names_at_sender[] = { "write", "window", "socket" };
static const char *const names_at_receiver[] = { "read", "window", "socket" };

struct way {
	enum method sender, receiver;
	bool sender_listens, per_file, fasync;
};

/* One side: an end of the module, or a listener and a connection of ordinary sockets. */
struct side {
	enum method method;
	bool listens;
	int end, connection, port;
	char *window;
};

struct transfer {
	struct way way;
	struct side from, to;
	unsigned int seed;
	const size_t *lengths;
	size_t files;
	char *sent;
};

/* Pseudo-random bytes, which differ between neighbours, pages and files. */
static void fill(char *bytes, size_t length, unsigned int seed)
{
	unsigned int state = seed * 2654435761u + 1;

	for (size_t index = 0; index < length; index++) {
		state = state * 1664525u + 1013904223u;
		bytes[index] = state >> 24;
	}
}

static void open_side(struct side *side, bool sends, bool fasync)
{
	if (side->method == SOCKET) {
		side->end = side->listens ? listen_on_socket(4, &side->port) : -1;
		return;
	}
	side->end = sends ? open_sender() : open_receiver();
	if (fasync) {
		require(fcntl(side->end, F_SETOWN, getpid()), "F_SETOWN");
		require(fcntl(side->end, F_SETFL, O_ASYNC), "O_ASYNC");
	}
	if (side->method == WINDOWS) {
		require(set_window(side->end, WINDOW), "KELVIN_SET_WINDOW");
		side->window = map_window(side->end, WINDOW);
	}
	if (side->listens)
		side->port = listen_end(side->end);
}

static void close_side(struct side *side)
{
	if (side->window)
		munmap(side->window, WINDOW);
	if (side->end >= 0)
		close(side->end);
}

static void connect_side(struct side *side, int port)
{
	side->connection = side->end;
	if (side->method != SOCKET)
		require(side->listens ? accept_end(side->end) : connect_end(side->end, port), "to meet");
	else if (side->listens)
		side->connection = require(accept(side->end, NULL, NULL), "accept");
	else
		side->connection = connect_socket(port);
}

static void disconnect_side(struct side *side)
{
	if (side->method == SOCKET)
		close(side->connection);
	else
		require(ioctl(side->end, KELVIN_CLOSE), "KELVIN_CLOSE");
}

static size_t smaller(size_t first, size_t second)
{
	return first < second ? first : second;
}

static long send_part(struct side *side, const char *bytes, size_t length)
{
	if (side->method != WINDOWS)
		return write(side->connection, bytes, smaller(length, CALL_BYTES));
	length = smaller(length, WINDOW);
	memcpy(side->window, bytes, length);
	return span_call(side->end, KELVIN_SEND, 0, length);
}

static void send_all(struct side *side, const char *bytes, size_t length)
{
	while (length) {
		long sent = require(send_part(side, bytes, length), "to send");

		bytes += sent;
		length -= sent;
	}
}

static long receive_part(struct side *side, char *bytes, size_t length)
{
	long received;

	if (side->method != WINDOWS)
		return read(side->connection, bytes, smaller(length, CALL_BYTES));
	received = span_call(side->end, KELVIN_RECEIVE, 0, smaller(length, WINDOW));
	if (received > 0)
		memcpy(bytes, side->window, received);
	return received;
}

/* Receives `length` bytes, or fewer if the stream ends. */
static size_t receive_all(struct side *side, char *bytes, size_t length)
{
	size_t total = 0;
	long received = 1;

	while (total < length && received) {
		received = require(receive_part(side, bytes + total, length - total), "to receive");
		total += received;
	}
	return total;
}

static void *send_files(void *argument)
{
	struct transfer *transfer = argument;
	struct side *side = &transfer->from;

	for (size_t file = 0; file < transfer->files; file++) {
		if (transfer->way.per_file || !file)
			connect_side(side, transfer->to.port);
		fill(transfer->sent, transfer->lengths[file], transfer->seed + file);
		send_all(side, transfer->sent, transfer->lengths[file]);
		if (transfer->way.per_file || file + 1 == transfer->files)
			disconnect_side(side);
	}
	return NULL;
}

/* Whether exactly the bytes of the file arrive, with nothing after them at the end of a connection. */
static bool receive_file(struct transfer *transfer, size_t file, char *bytes, char *expected)
{
	size_t length = transfer->lengths[file];
	bool is_last = transfer->way.per_file || file + 1 == transfer->files;

	fill(expected, length, transfer->seed + file);
	return receive_all(&transfer->to, bytes, length + is_last) == length && !memcmp(bytes, expected, length);
}

static bool receive_files(struct transfer *transfer, size_t max_length)
{
	char *bytes = malloc(max_length + 1), *expected = malloc(max_length + 1);
	bool is_equal = true;

	for (size_t file = 0; file < transfer->files; file++) {
		if (transfer->way.per_file || !file)
			connect_side(&transfer->to, transfer->from.port);
		is_equal &= receive_file(transfer, file, bytes, expected);
		if (transfer->way.per_file || file + 1 == transfer->files)
			disconnect_side(&transfer->to);
	}
	free(expected);
	free(bytes);
	return is_equal;
}

static bool transfer_files(const struct way *way, const size_t *lengths, size_t files, unsigned int seed)
{
	struct transfer transfer = {
		.way = *way, .lengths = lengths, .files = files, .seed = seed,
		.from = { .method = way->sender, .listens = way->sender_listens },
		.to = { .method = way->receiver, .listens = !way->sender_listens },
	};
	size_t max_length = 0;
	pthread_t thread;
	bool is_equal;

	for (size_t file = 0; file < files; file++)
		max_length = lengths[file] > max_length ? lengths[file] : max_length;
	transfer.sent = malloc(max_length + 1);
	open_side(&transfer.from, true, way->fasync);
	open_side(&transfer.to, false, way->fasync);
	require(-pthread_create(&thread, NULL, send_files, &transfer), "pthread_create");
	is_equal = receive_files(&transfer, max_length);
	pthread_join(thread, NULL);
	close_side(&transfer.from);
	close_side(&transfer.to);
	free(transfer.sent);
	return is_equal;
}

static void check_variant(const struct way *way)
{
	const size_t lengths[] = { 0, 1, page_bytes - 1, page_bytes, page_bytes + 1, WINDOW, WINDOW + 1 };
	const size_t files = sizeof(lengths) / sizeof(*lengths);

	check(transfer_files(way, lengths, files, 1), "%s to %s, %s listens, %s connection%s: %zu files of 0 to %zu bytes",
	      names_at_sender[way->sender], names_at_receiver[way->receiver], way->sender_listens ? "sender" : "receiver",
	      way->per_file ? "per-file" : "persistent", way->fasync ? ", O_ASYNC" : "", files, lengths[files - 1]);
}

static void check_pair(enum method sender, enum method receiver)
{
	for (int variant = 0; variant < 8; variant++) {
		struct way way = { sender, receiver, variant & 1, variant & 2, variant & 4 };

		check_variant(&way);
	}
}

/* Calls with offsets and lengths that are not aligned to pages. */
static void unaligned_spans(void)
{
	int sender = open_sender(), receiver = open_receiver();
	size_t offset = page_bytes - 3, length = 2 * page_bytes + 7;
	char *source, *destination;

	require(set_window(sender, WINDOW), "KELVIN_SET_WINDOW");
	require(set_window(receiver, WINDOW), "KELVIN_SET_WINDOW");
	source = map_window(sender, WINDOW);
	destination = map_window(receiver, WINDOW);
	fill(source, WINDOW, 5);
	require(connect_end(sender, listen_end(receiver)), "KELVIN_CONNECT");
	require(accept_end(receiver), "KELVIN_ACCEPT");
	check(span_call(sender, KELVIN_SEND, offset, length) == (long)length, "KELVIN_SEND from an odd offset");
	check(span_call(receiver, KELVIN_RECEIVE, 5, length) == (long)length, "KELVIN_RECEIVE at another");
	check(!memcmp(destination + 5, source + offset, length), "the bytes are the same");
	check(!memcmp(destination, "\0\0\0\0", 5) && !destination[5 + length], "and no adjacent byte was changed");
	munmap(source, WINDOW);
	munmap(destination, WINDOW);
	close(sender);
	close(receiver);
}

/* More than a connection buffers, so that a write waits in the middle and another could start. */
#define RECORD (4UL << 20)
#define RECORDS 3

static void *write_records(void *argument)
{
	static atomic_int number;
	char *record = malloc(RECORD);
	int end = *(int *)argument;

	memset(record, 'a' + number++, RECORD);
	for (int index = 0; index < RECORDS; index++)
		require(write(end, record, RECORD) == (long)RECORD ? 0 : -1, "write");
	free(record);
	return NULL;
}

static bool are_records_intact(int peer, char *record)
{
	for (int index = 0; index < 2 * RECORDS; index++)
		if (recv(peer, record, RECORD, MSG_WAITALL) != (long)RECORD || memcmp(record, record + 1, RECORD - 1))
			return false;
	return true;
}

static void write_from_two_threads(void)
{
	int end = open_sender(), peer = connect_to_peer(end);
	char *record = malloc(RECORD);
	pthread_t threads[2];

	for (int index = 0; index < 2; index++)
		require(-pthread_create(&threads[index], NULL, write_records, &end), "pthread_create");
	check(are_records_intact(peer, record), "two threads write to one end: each write's bytes stay together");
	close(peer);
	for (int index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
	free(record);
	close(end);
}

bool transfer_windows(unsigned int seed)
{
	const struct way way = { .sender = WINDOWS, .receiver = WINDOWS, .per_file = true };
	const size_t lengths[] = { 20 * WINDOW + 1, 1, 5 * WINDOW };

	return transfer_files(&way, lengths, 3, seed);
}

static void on_signal(int number)
{
	(void)number;
}

void check_transfers(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigset_t none;

	sigemptyset(&none);
	sigaction(SIGIO, &action, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (enum method sender = CALLS; sender <= SOCKET; sender++)
		for (enum method receiver = CALLS; receiver <= SOCKET; receiver++)
			if (sender != SOCKET || receiver != SOCKET)
				check_pair(sender, receiver);
	unaligned_spans();
	write_from_two_threads();
}
