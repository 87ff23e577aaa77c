/* SPDX-License-Identifier: GPL-2.0 */
/* What the checks of the module share: counting, ends and peers, and a call that waits in a thread of its own. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../kelvin.h"

/* One line for each; the program fails if one does not hold. */
void check(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* That a call returned -1 with this errno. */
void refused(long result, int number, const char *what);
/* Ends the program: what the checks stand on is broken. */
long must(long result, const char *what);
/* In a child: how many of its own checks failed is its exit status. */
int failures(void);
int finish(void);

extern size_t page_bytes;

int open_sender(void);
int open_receiver(void);
struct __kernel_sockaddr_storage loopback(int family, int port);
/* Has an end listen on loopback, at a free port. */
int listen_end(int end);
int connect_end(int end, int port);
int accept_end(int end);
/* An ordinary socket that listens on loopback, and its port. */
int listen_socket(int backlog, int *port);
int connect_socket(int port);
/* Connects an end to an ordinary socket, and returns that. */
int peer_of(int end);
int set_window(int end, size_t bytes);
void *map_window(int end, size_t bytes);
long span_call(int end, unsigned long command, size_t offset, size_t length);

/* A call in a thread of its own. */
struct waiter {
	long (*call)(int end);
	int end;
	long result;
	int number;
	atomic_int task;
	pthread_t thread;
};

/* Returns when the call sleeps in the kernel. */
void begin_wait(struct waiter *waiter, long (*call)(int end), int end);
void end_wait(struct waiter *waiter);

void check_refusals(void);
void check_waits(void);
void check_transfers(void);
void check_pages(void);
void check_races(void);
void check_lives(void);

/* A transfer of its own bytes by windows on both sides, for processes at once. */
bool transfer_alone(unsigned int seed);

#endif
