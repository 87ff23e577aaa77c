/* Preloaded into a server, has each request that it receives wait: for a lock of the process, by itself, or for one of several places
 * behind it, as a slow upstream has them. Into a client, has each answer wait that it reads. Into any other program it does nothing.
 *
 * PLANTED_PLACES: how many may wait at a time (1: a lock; 0: any number, a sleep). PLANTED_US: microseconds that each waits.
 * PLANTED_STALL_MS: instead, all wait for so long once in each second. PLANTED_TURN_S: only in every other so many seconds.
 * PLANTED_READ_US: microseconds for which a client waits at each answer. PLANTED_SPIN: each waits for its place and in it on its CPU.
 * PLANTED_PERIOD_MS: the period of these stalls, 1000 if none is given.
 * PLANTED_HELD: each socket that sends requests has so many bytes of memory, until none has come for 100 ms.
 * PLANTED_FLUSHED: instead, each has so many bytes of PLANTED_LOG flushed to its device. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static sem_t places;
static long limit, microseconds, stall, period, turn, reading, spin, flushed, held;
static int is_server, log_file = -1;

static long of(const char *name)
{
	const char *text = getenv(name);
	return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void)
{
	char words[256] = "";
	FILE *file = fopen("/proc/self/cmdline", "r");
	size_t length = file ? fread(words, 1, sizeof words - 1, file) : 0;
	if (file)
		fclose(file);
	const char *second = words + strlen(words) + 1;
	is_server = second < words + length && strcmp(second, "serve") == 0;
	limit = of("PLANTED_PLACES");
	microseconds = of("PLANTED_US");
	stall = of("PLANTED_STALL_MS");
	period = of("PLANTED_PERIOD_MS");
	if (period == 0)
		period = 1000;
	held = of("PLANTED_HELD");
	turn = of("PLANTED_TURN_S");
	reading = of("PLANTED_READ_US");
	spin = of("PLANTED_SPIN");
	flushed = of("PLANTED_FLUSHED");
	if (is_server && flushed > 0)
		log_file = open(getenv("PLANTED_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	sem_init(&places, 0, limit > 0 ? (unsigned)limit : 1);
}

static long now_in_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void spin_here(void)
{
	while (limit > 0 && sem_trywait(&places) != 0)
		;
	for (long until = now_in_us() + microseconds; now_in_us() < until;)
		;
	if (limit > 0)
		sem_post(&places);
}

static void flush_here(void)
{
	char *bytes = calloc(1, (size_t)flushed);
	if (bytes == NULL || write(log_file, bytes, (size_t)flushed) != flushed || fsync(log_file) != 0)
		abort();
	free(bytes);
}

/* What sockets hold, and when they last had a request. */
static struct {
	char *bytes;
	long used;
} holds[4096];
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;

static void hold_here(int socket)
{
	static long looked;
	long now = now_in_us();
	pthread_mutex_lock(&holding);
	for (int other = 0; now - looked > 50000 && other < 4096; other++)
		if (holds[other].bytes != NULL && now - holds[other].used > 100000) {
			munmap(holds[other].bytes, (size_t)held);
			holds[other].bytes = NULL;
		}
	if (now - looked > 50000)
		looked = now;
	if (socket >= 0 && socket < 4096) {
		if (holds[socket].bytes == NULL) {
			holds[socket].bytes = mmap(NULL, (size_t)held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (holds[socket].bytes == MAP_FAILED)
				abort();
			memset(holds[socket].bytes, 1, (size_t)held);
		}
		holds[socket].used = now;
	}
	pthread_mutex_unlock(&holding);
}

static void wait_here(void)
{
	if (flushed > 0)
		return flush_here();
	if (spin > 0)
		return spin_here();
	if (turn > 0 && time(NULL) / turn % 2 != 0)
		return;
	if (stall > 0) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		long milliseconds = (now.tv_sec * 1000 + now.tv_nsec / 1000000) % period;
		if (milliseconds < stall)
			usleep((useconds_t)(stall - milliseconds) * 1000);
		return;
	}
	if (limit > 0)
		while (sem_wait(&places) != 0)
			;
	usleep((useconds_t)microseconds);
	if (limit > 0)
		sem_post(&places);
}

static int is_request(const char *bytes, ssize_t length)
{
	return length > 9 && memcmp(bytes, "GET /", 5) == 0 && memcmp(bytes, "GET /.k", 7) != 0;
}

static void look_at(int socket, const char *bytes, ssize_t length)
{
	if (is_server && held > 0 && is_request(bytes, length))
		hold_here(socket);
	else if (is_server && is_request(bytes, length))
		wait_here();
	else if (reading > 0 && !is_server && length > 9 && memcmp(bytes, "HTTP/1.1 ", 9) == 0)
		usleep((useconds_t)reading);
}

ssize_t recv(int socket, void *bytes, size_t most, int flags)
{
	static ssize_t (*next)(int, void *, size_t, int);
	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
	ssize_t length = next(socket, bytes, most, flags);
	look_at(socket, bytes, length);
	return length;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
	static ssize_t (*next)(int, struct msghdr *, int);
	if (!next)
		next = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
	ssize_t length = next(socket, message, flags);
	if (length > 0 && message->msg_iovlen > 0)
		look_at(socket, message->msg_iov[0].iov_base, length);
	return length;
}

ssize_t read(int file, void *bytes, size_t most)
{
	static ssize_t (*next)(int, void *, size_t);
	if (!next)
		next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	ssize_t length = next(file, bytes, most);
	look_at(file, bytes, length);
	return length;
}
