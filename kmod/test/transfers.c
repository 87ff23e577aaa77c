// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes through every pair of methods, each end in the role of the one that
 * listens and of the one that connects, against the module's other device and
 * against ordinary sockets, a connection for each file and one for all.
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
/* Of write and read: the published study's buffer. */
#define CALL 512

enum method { CALLS, WINDOWS, SOCKET };

static const char *const names_at_sender[] = { "write", "window", "socket" };
static const char *const names_at_receiver[] = { "read", "window", "socket" };

struct way {
	enum method sender, receiver;
	bool sender_listens, per_file, fasync;
};

/* One end: the module's, or a listener and a connection of ordinary sockets. */
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

/* No byte is that of its neighbours, of another page or of another file. */
static void fill(char *bytes, size_t length, unsigned int seed)
{
	unsigned int state = seed * 2654435761u + 1;

	for (size_t index = 0; index < length; index++) {
		state = state * 1664525u + 1013904223u;
		bytes[index] = state >> 24;
	}
}

static void side_open(struct side *side, bool sends, bool fasync)
{
	if (side->method == SOCKET) {
		side->end = side->listens ? listen_socket(4, &side->port) : -1;
		return;
	}
	side->end = sends ? open_sender() : open_receiver();
	if (fasync) {
		must(fcntl(side->end, F_SETOWN, getpid()), "F_SETOWN");
		must(fcntl(side->end, F_SETFL, O_ASYNC), "O_ASYNC");
	}
	if (side->method == WINDOWS) {
		must(set_window(side->end, WINDOW), "KELVIN_SET_WINDOW");
		side->window = map_window(side->end, WINDOW);
	}
	if (side->listens)
		side->port = listen_end(side->end);
}

static void side_close(struct side *side)
{
	if (side->window)
		munmap(side->window, WINDOW);
	if (side->end >= 0)
		close(side->end);
}

static void side_meet(struct side *side, int port)
{
	side->connection = side->end;
	if (side->method != SOCKET)
		must(side->listens ? accept_end(side->end) : connect_end(side->end, port), "to meet");
	else if (side->listens)
		side->connection = must(accept(side->end, NULL, NULL), "accept");
	else
		side->connection = connect_socket(port);
}

static void side_part(struct side *side)
{
	if (side->method == SOCKET)
		close(side->connection);
	else
		must(ioctl(side->end, KELVIN_CLOSE), "KELVIN_CLOSE");
}

static size_t least(size_t one, size_t other)
{
	return one < other ? one : other;
}

static long send_part(struct side *side, const char *bytes, size_t length)
{
	if (side->method != WINDOWS)
		return write(side->connection, bytes, least(length, CALL));
	length = least(length, WINDOW);
	memcpy(side->window, bytes, length);
	return span_call(side->end, KELVIN_SEND, 0, length);
}

static void side_send(struct side *side, const char *bytes, size_t length)
{
	while (length) {
		long sent = must(send_part(side, bytes, length), "to send");

		bytes += sent;
		length -= sent;
	}
}

static long receive_part(struct side *side, char *bytes, size_t length)
{
	long received;

	if (side->method != WINDOWS)
		return read(side->connection, bytes, least(length, CALL));
	received = span_call(side->end, KELVIN_RECEIVE, 0, least(length, WINDOW));
	if (received > 0)
		memcpy(bytes, side->window, received);
	return received;
}

/* So many, or until the stream ends. */
static size_t side_receive(struct side *side, char *bytes, size_t length)
{
	size_t had = 0;
	long received = 1;

	while (had < length && received) {
		received = must(receive_part(side, bytes + had, length - had), "to receive");
		had += received;
	}
	return had;
}

static void *send_files(void *argument)
{
	struct transfer *transfer = argument;
	struct side *side = &transfer->from;

	for (size_t file = 0; file < transfer->files; file++) {
		if (transfer->way.per_file || !file)
			side_meet(side, transfer->to.port);
		fill(transfer->sent, transfer->lengths[file], transfer->seed + file);
		side_send(side, transfer->sent, transfer->lengths[file]);
		if (transfer->way.per_file || file + 1 == transfer->files)
			side_part(side);
	}
	return NULL;
}

/* Exactly the file's bytes, and where its connection ends, nothing after them. */
static bool receive_file(struct transfer *transfer, size_t file, char *bytes, char *expected)
{
	size_t length = transfer->lengths[file];
	bool last = transfer->way.per_file || file + 1 == transfer->files;

	fill(expected, length, transfer->seed + file);
	return side_receive(&transfer->to, bytes, length + last) == length && !memcmp(bytes, expected, length);
}

static bool receive_files(struct transfer *transfer, size_t most)
{
	char *bytes = malloc(most + 1), *expected = malloc(most + 1);
	bool right = true;

	for (size_t file = 0; file < transfer->files; file++) {
		if (transfer->way.per_file || !file)
			side_meet(&transfer->to, transfer->from.port);
		right &= receive_file(transfer, file, bytes, expected);
		if (transfer->way.per_file || file + 1 == transfer->files)
			side_part(&transfer->to);
	}
	free(expected);
	free(bytes);
	return right;
}

static bool transfer_by(const struct way *way, const size_t *lengths, size_t files, unsigned int seed)
{
	struct transfer transfer = {
		.way = *way, .lengths = lengths, .files = files, .seed = seed,
		.from = { .method = way->sender, .listens = way->sender_listens },
		.to = { .method = way->receiver, .listens = !way->sender_listens },
	};
	size_t most = 0;
	pthread_t thread;
	bool right;

	for (size_t file = 0; file < files; file++)
		most = lengths[file] > most ? lengths[file] : most;
	transfer.sent = malloc(most + 1);
	side_open(&transfer.from, true, way->fasync);
	side_open(&transfer.to, false, way->fasync);
	must(-pthread_create(&thread, NULL, send_files, &transfer), "pthread_create");
	right = receive_files(&transfer, most);
	pthread_join(thread, NULL);
	side_close(&transfer.from);
	side_close(&transfer.to);
	free(transfer.sent);
	return right;
}

static void check_way(const struct way *way)
{
	const size_t lengths[] = { 0, 1, page_bytes - 1, page_bytes, page_bytes + 1, WINDOW, WINDOW + 1 };
	const size_t files = sizeof(lengths) / sizeof(*lengths);

	check(transfer_by(way, lengths, files, 1), "%s to %s, %s listens, %s connection%s: %zu files of 0 to %zu bytes",
	      names_at_sender[way->sender], names_at_receiver[way->receiver], way->sender_listens ? "sender" : "receiver",
	      way->per_file ? "per-file" : "persistent", way->fasync ? ", O_ASYNC" : "", files, lengths[files - 1]);
}

static void check_pair(enum method sender, enum method receiver)
{
	for (int variant = 0; variant < 8; variant++) {
		struct way way = { sender, receiver, variant & 1, variant & 2, variant & 4 };

		check_way(&way);
	}
}

/* Windows that a call does not start at their first byte. */
static void odd_spans(void)
{
	int sender = open_sender(), receiver = open_receiver();
	size_t offset = page_bytes - 3, length = 2 * page_bytes + 7;
	char *from, *to;

	must(set_window(sender, WINDOW), "KELVIN_SET_WINDOW");
	must(set_window(receiver, WINDOW), "KELVIN_SET_WINDOW");
	from = map_window(sender, WINDOW);
	to = map_window(receiver, WINDOW);
	fill(from, WINDOW, 5);
	must(connect_end(sender, listen_end(receiver)), "KELVIN_CONNECT");
	must(accept_end(receiver), "KELVIN_ACCEPT");
	check(span_call(sender, KELVIN_SEND, offset, length) == (long)length, "KELVIN_SEND from an odd offset");
	check(span_call(receiver, KELVIN_RECEIVE, 5, length) == (long)length, "KELVIN_RECEIVE at another");
	check(!memcmp(to + 5, from + offset, length), "the bytes are the same");
	check(!memcmp(to, "\0\0\0\0", 5) && !to[5 + length], "and none beside them was touched");
	munmap(from, WINDOW);
	munmap(to, WINDOW);
	close(sender);
	close(receiver);
}

/* More than a connection buffers: a write waits in its middle, where another could begin. */
#define RECORD (4UL << 20)
#define RECORDS 3

static void *write_records(void *argument)
{
	static atomic_int number;
	char *record = malloc(RECORD);
	int end = *(int *)argument;

	memset(record, 'a' + number++, RECORD);
	for (int index = 0; index < RECORDS; index++)
		must(write(end, record, RECORD) == (long)RECORD ? 0 : -1, "write");
	free(record);
	return NULL;
}

static bool whole_records(int peer, char *record)
{
	for (int index = 0; index < 2 * RECORDS; index++)
		if (recv(peer, record, RECORD, MSG_WAITALL) != (long)RECORD || memcmp(record, record + 1, RECORD - 1))
			return false;
	return true;
}

static void two_threads(void)
{
	int end = open_sender(), peer = peer_of(end);
	char *record = malloc(RECORD);
	pthread_t threads[2];

	for (int index = 0; index < 2; index++)
		must(-pthread_create(&threads[index], NULL, write_records, &end), "pthread_create");
	check(whole_records(peer, record), "two threads write to one end: each write's bytes stay together");
	close(peer);
	for (int index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
	free(record);
	close(end);
}

bool transfer_alone(unsigned int seed)
{
	const struct way way = { .sender = WINDOWS, .receiver = WINDOWS, .per_file = true };
	const size_t lengths[] = { 20 * WINDOW + 1, 1, 5 * WINDOW };

	return transfer_by(&way, lengths, 3, seed);
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
	odd_spans();
	two_threads();
}
