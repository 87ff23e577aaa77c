/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers of the module's checks: counts, ends and peers, and a thread that waits in a call. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../kelvin.h"

/* Prints one line for a check. The program fails if a condition is false. */
void check(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Checks that a call returned -1 with this errno. */
void check_errno(long result, int expected, const char *call);
/* Ends the program if a call fails on which the checks depend. */
long require(long result, const char *call);
/* The number of failed checks, which is the exit status of a child. */
int failure_count(void);
int print_summary(void);

extern size_t page_bytes;

int open_sender(void);
int open_receiver(void);
struct __kernel_sockaddr_storage loopback(int family, int port);
/* Makes an end listen on loopback, at a free port that is returned. */
int listen_end(int end);
int connect_end(int end, int port);
int accept_end(int end);
/* Returns an ordinary socket that listens on loopback, and its port. */
int listen_on_socket(int backlog, int *port);
int connect_socket(int port);
/* Connects an end to an ordinary socket, and returns the socket. */
int connect_to_peer(int end);
int set_window(int end, size_t bytes);
void *map_window(int end, size_t bytes);
long span_call(int end, unsigned long command, size_t offset, size_t length);

/* A call in a thread of its own. */
struct waiter {
	long (*call)(int end);
	int end;
	long result;
	int error;
	atomic_int task;
	pthread_t thread;
};

/* Starts the thread, and returns when its call sleeps in the kernel. */
void start_waiter(struct waiter *waiter, long (*call)(int end), int end);
void join_waiter(struct waiter *waiter);

void check_refusals(void);
void check_waits(void);
void check_transfers(void);
void check_pages(void);
void check_races(void);
void check_lifetimes(void);

/* Transfers bytes by windows on both sides. Returns whether they are equal. Processes can call it at the same time. */
bool transfer_windows(unsigned int seed);

#endif
