/* Moves files over loopback by the system calls that kelvin send and kelvin receive make, and does nothing else: no digests, no
 * messages, no decisions, no checks of what comes. What a transfer costs beyond its calls is the difference to this.
 *
 *   move_files receive PORT DIRECTORY [rw|splice]
 *   move_files send PORT FILE|DIRECTORY [rw|sendfile]
 *
 * A file larger than 64 KiB goes alone, by calls of 64 KiB (rw) or 1 MiB. The files of a directory go in batches of at most 128
 * files and 256 KiB: each is looked at and opened from its directory, asked for extended attributes, read, checked (fstat) and
 * closed; at the other end made without a name, written, given its time, linked into its place where nothing is there, and
 * closed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PART = 64 << 10, CALL = 1 << 20, BATCH = 128, BATCH_BYTES = 256 << 10, NAME = 256 };

/* What goes before the content of a file; a length of no name ends all. */
struct entry {
	uint32_t name;
	uint32_t mode;
	uint64_t bytes;
	struct timespec modified;
	char text[NAME];
};

/* What goes before a batch. */
struct batch {
	uint32_t files;
	uint32_t is_large;
	struct entry entries[BATCH];
};

static struct batch batch;
static char content[BATCH_BYTES];

static void check(long result, const char *what)
{
	if (result < 0)
		err(2, "%s", what);
}

static void put(int to, const void *bytes, size_t count)
{
	for (const char *at = bytes; count > 0;) {
		ssize_t sent = send(to, at, count, 0);
		check(sent, "send");
		at += sent;
		count -= sent;
	}
}

static int get(int from, void *bytes, size_t count)
{
	for (char *at = bytes; count > 0;) {
		ssize_t got = recv(from, at, count, 0);
		check(got, "recv");
		if (got == 0)
			return 0;
		at += got;
		count -= got;
	}
	return 1;
}

static size_t head(const struct batch *one)
{
	return offsetof(struct batch, entries) + one->files * sizeof *one->entries;
}

/* Describes a file as the next one of the batch. */
static struct entry *add(const char *name, const struct stat *found)
{
	struct entry *entry = &batch.entries[batch.files++];

	entry->name = strlen(name);
	entry->mode = found->st_mode & 0777;
	entry->bytes = found->st_size;
	entry->modified = found->st_mtim;
	if (entry->name >= NAME)
		errx(2, "%s: a long name", name);
	memcpy(entry->text, name, entry->name + 1);
	return entry;
}

static void send_large(int to, const char *path, int by_calls_of_two)
{
	struct stat found;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	const char *name = strrchr(path, '/');

	check(file, path);
	check(fstat(file, &found), path);
	batch.files = 0;
	batch.is_large = 1;
	add(name ? name + 1 : path, &found);
	put(to, &batch, head(&batch));
	for (off_t at = 0; at < found.st_size;) {
		ssize_t some;
		if (by_calls_of_two) {
			some = pread(file, content, PART, at);
			check(some, "read");
			put(to, content, some);
			at += some;
		} else {
			some = sendfile(to, file, &at, CALL);
			check(some, "sendfile");
		}
		if (some == 0)
			errx(2, "%s became shorter", path);
	}
	close(file);
}

struct found {
	char name[NAME];
	struct stat stat;
};

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct found *)one)->name, ((const struct found *)other)->name);
}

static void send_batch(int to, size_t bytes)
{
	struct iovec parts[] = {{&batch, head(&batch)}, {content, bytes}};
	ssize_t sent = writev(to, parts, 2);

	check(sent, "writev");
	if ((size_t)sent < parts[0].iov_len) {
		put(to, (char *)&batch + sent, parts[0].iov_len - sent);
		sent = parts[0].iov_len;
	}
	put(to, content + (sent - parts[0].iov_len), bytes - (sent - parts[0].iov_len));
	batch.files = 0;
}

static void send_small(int to, const char *path)
{
	DIR *directory = opendir(path);
	struct found *all = NULL;
	size_t count = 0, bytes = 0;

	if (!directory)
		err(2, "%s", path);
	int from = dirfd(directory);

	for (struct dirent *one; (one = readdir(directory));) {
		if (one->d_name[0] == '.')
			continue;
		if (!(count & (count - 1)))
			all = realloc(all, (count ? 2 * count : 1) * sizeof *all);
		snprintf(all[count++].name, NAME, "%s", one->d_name);
	}
	qsort(all, count, sizeof *all, by_name);
	for (size_t i = 0; i < count; i++)
		check(fstatat(from, all[i].name, &all[i].stat, AT_SYMLINK_NOFOLLOW), all[i].name);
	for (size_t i = 0; i < count; i++) {
		struct stat now;
		size_t size = all[i].stat.st_size;
		const char *name = all[i].name;

		if (batch.files == BATCH || bytes + size > BATCH_BYTES) {
			send_batch(to, bytes);
			bytes = 0;
		}
		int file = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		check(file, name);
		check(flistxattr(file, NULL, 0), name);
		if (read(file, content + bytes, size) != (ssize_t)size)
			errx(2, "%s became shorter", name);
		check(fstat(file, &now), name);
		close(file);
		add(name, &now);
		bytes += size;
	}
	if (batch.files)
		send_batch(to, bytes);
	closedir(directory);
	free(all);
}

static void receive_large(int from, int directory, int by_calls_of_two)
{
	struct entry *entry = &batch.entries[0];
	int pipes[2], file = openat(directory, entry->text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, entry->mode);
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry->modified};
	off64_t at = 0;

	check(file, entry->text);
	check(pipe(pipes), "pipe");
	check(fcntl(pipes[1], F_SETPIPE_SZ, CALL), "a pipe of 1 MiB");
	while ((uint64_t)at < entry->bytes) {
		uint64_t left = entry->bytes - at;
		ssize_t some;
		if (by_calls_of_two) {
			some = recv(from, content, left < PART ? left : PART, MSG_WAITALL);
			check(some, "recv");
			check(pwrite(file, content, some, at), "write");
			at += some;
		} else {
			some = splice(from, NULL, pipes[1], NULL, left < CALL ? left : CALL, SPLICE_F_MOVE);
			check(some, "splice");
			for (ssize_t held = some; held > 0;) {
				ssize_t written = splice(pipes[0], NULL, file, &at, held, SPLICE_F_MOVE);
				check(written, "splice");
				held -= written;
			}
		}
		if (some == 0)
			errx(2, "the sender is gone");
	}
	check(futimens(file, times), "a time");
	close(file);
}

static void receive_small(int from, int directory)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < batch.files; i++)
		bytes += batch.entries[i].bytes;
	if (bytes > BATCH_BYTES || !get(from, content, bytes))
		errx(2, "the sender is gone");
	bytes = 0;
	for (uint32_t i = 0; i < batch.files; i++) {
		struct entry *entry = &batch.entries[i];
		struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry->modified};

		int file = openat(directory, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, entry->mode);
		check(file, entry->text);
		if (pwrite(file, content + bytes, entry->bytes, 0) != (ssize_t)entry->bytes)
			errx(2, "a short write");
		check(futimens(file, times), "a time");
		check(linkat(file, "", directory, entry->text, AT_EMPTY_PATH), entry->text);
		close(file);
		bytes += entry->bytes;
	}
}

static void receive(int from, const char *path, int by_calls_of_two)
{
	int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	check(directory, path);
	while (get(from, &batch, offsetof(struct batch, entries))) {
		if (batch.files > BATCH || !get(from, batch.entries, batch.files * sizeof *batch.entries))
			errx(2, "the sender is gone");
		if (batch.is_large) {
			receive_large(from, directory, by_calls_of_two);
			continue;
		}
		receive_small(from, directory);
	}
}

int main(int count, char **words)
{
	if (count < 4)
		errx(2, "send|receive PORT PATH [rw]");
	int own = socket(AF_INET, SOCK_STREAM, 0), one = 1, by_two = count > 4 && !strcmp(words[4], "rw");
	struct sockaddr_in address = {AF_INET, htons(atoi(words[2])), {htonl(INADDR_LOOPBACK)}, {0}};

	check(own, "socket");
	if (!strcmp(words[1], "receive")) {
		check(setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "socket");
		check(bind(own, (struct sockaddr *)&address, sizeof address), "bind");
		check(listen(own, 1), "listen");
		int from = accept(own, NULL, NULL);
		check(from, "accept");
		receive(from, words[3], by_two);
		return 0;
	}
	struct stat found;
	check(connect(own, (struct sockaddr *)&address, sizeof address), "connect");
	check(setsockopt(own, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "socket");
	check(stat(words[3], &found), words[3]);
	if (S_ISDIR(found.st_mode))
		send_small(own, words[3]);
	else
		send_large(own, words[3], by_two);
	/* The other end says that it is done by closing. */
	check(shutdown(own, SHUT_WR), "shutdown");
	return recv(own, content, 1, 0) == 0 ? 0 : 2;
}
