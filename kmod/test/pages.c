// SPDX-License-Identifier: GPL-2.0
/*
 * Page-table entries of a file that the sender maps for reading, and of the
 * receiver's window: absent, then as read, then as written.
 *
 * Published: a sender's page reads 8000000...025, a receiver's 8000000...067.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define HUGE (2UL << 20)

#if defined(__x86_64__)
#define FRAME 0x000ffffffffff000ull
/* Left to the kernel's own bookkeeping, of which "written since it was last asked" is one. */
#define SOFTWARE 0x07f0000000000e00ull
#define PUBLISHED_SENDER 0x8000000000000025ull
#define PUBLISHED_RECEIVER 0x8000000000000067ull
/* The receiver's before it is written: not dirty. */
#define READ_RECEIVER 0x8000000000000027ull
#else
#error "what the entries must be is known for x86-64"
#endif

static struct kelvin_page look(int end, const volatile void *address)
{
	struct kelvin_page page = { .address = (uintptr_t)address };

	must(ioctl(end, KELVIN_PTE, &page), "KELVIN_PTE");
	return page;
}

static void check_flags(struct kelvin_page page, unsigned long long expected, const char *what)
{
	check(page.level == 1 && page.shift == 12 && page.found & KELVIN_PAGE_PRESENT &&
		      (page.entry & ~(FRAME | SOFTWARE)) == expected,
	      "%s: flags %#llx, of these %#llx of the kernel's own", what, page.entry & ~FRAME, page.entry & SOFTWARE);
}

static void check_absent(struct kelvin_page page, const char *what)
{
	check(page.found & KELVIN_PAGE_MAPPED && !(page.found & KELVIN_PAGE_PRESENT) && !page.entry,
	      "%s: no entry at level %u", what, page.level);
}

/* The frame, as the kernel says it elsewhere. */
static void check_frame(struct kelvin_page page)
{
	int map = must(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), "pagemap");
	uint64_t entry = 0;

	must(pread(map, &entry, sizeof(entry), page.address / page_bytes * sizeof(entry)), "pread");
	check(page.found & KELVIN_PAGE_FRAME && (page.entry & FRAME) >> 12 == (entry & ((1ull << 55) - 1)),
	      "its frame is that of /proc/self/pagemap");
	close(map);
}

static int file_of(const char *path)
{
	int file = must(open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), path);

	must(ftruncate(file, page_bytes), "ftruncate");
	must(pwrite(file, "kelvin", 6, 0), "pwrite");
	return file;
}

static void sender_pages(void)
{
	int end = open_sender(), file = file_of("/tmp/source");
	volatile char *mapped = mmap(NULL, page_bytes, PROT_READ, MAP_PRIVATE, file, 0);

	check_absent(look(end, mapped), "the sender's file, mapped for reading, before touch");
	check(mapped[0] == 'k', "it is read");
	check_flags(look(end, mapped), PUBLISHED_SENDER, "after read, clean and not writable as published");
	check_frame(look(end, mapped));
	munmap((void *)mapped, page_bytes);
	check(!(look(end, mapped).found & (KELVIN_PAGE_MAPPED | KELVIN_PAGE_PRESENT)), "unmapped: nothing there");
	close(file);
	close(end);
}

static void receiver_pages(void)
{
	int end = open_receiver(), file = file_of("/tmp/target");
	volatile char *mapped = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	volatile char *window;

	must(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	window = map_window(end, page_bytes);
	check_absent(look(end, window), "the receiver's window before touch");
	check(window[0] == 0, "it is read");
	check_flags(look(end, window), READ_RECEIVER, "after read, writable and clean");
	window[0] = 1;
	check_flags(look(end, window), PUBLISHED_RECEIVER, "after write, writable and dirty as published");
	check_frame(look(end, window));
	mapped[0] = 1;
	check_flags(look(end, mapped), PUBLISHED_RECEIVER, "the receiver's file after write, as published");
	munmap((void *)mapped, page_bytes);
	munmap((void *)window, page_bytes);
	close(file);
	close(end);
}

/* What the module itself receives is written by the kernel's mapping: the caller's entry does not tell of it. */
static void received_page(void)
{
	int end = open_receiver(), peer = peer_of(end);
	volatile char *window;

	must(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	window = map_window(end, page_bytes);
	must(write(peer, "k", 1), "write");
	check(span_call(end, KELVIN_RECEIVE, 0, 1) == 1, "a byte is received into the window");
	check_absent(look(end, window), "the module wrote it, not the caller");
	check(window[0] == 'k', "it is read");
	check_flags(look(end, window), READ_RECEIVER, "and clean for the caller");
	munmap((void *)window, page_bytes);
	close(peer);
	close(end);
}

static void huge_page(void)
{
	char *space = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *huge = (char *)(((uintptr_t)space + HUGE - 1) & -HUGE);
	int end = open_sender();
	struct kelvin_page page;

	if (madvise(huge, HUGE, MADV_HUGEPAGE))
		printf("SKIPPED: a huge page's entry: this kernel has none\n");
	else {
		huge[0] = 1;
		page = look(end, huge + HUGE / 2);
		check(page.level == 2 && page.shift == 21 && page.found & KELVIN_PAGE_PRESENT && page.entry & 0x80,
		      "a huge page's entry is at level %u and covers 2^%u bytes", page.level, page.shift);
	}
	munmap(space, 2 * HUGE);
	close(end);
}

static bool hides_frame(int end, const volatile char *mapped)
{
	struct kelvin_page page;

	must(setuid(65534), "setuid");
	page = look(end, mapped);
	return !(page.found & KELVIN_PAGE_FRAME) && !(page.entry & FRAME) && page.entry & 1;
}

static void ordinary_user(void)
{
	volatile char here = 1;
	int end = open_sender(), status;

	fflush(stdout);
	if (!must(fork(), "fork")) {
		here = 2;
		_exit(hides_frame(end, &here));
	}
	wait(&status);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 1, "an ordinary user's entry has its flags, and no frame");
	close(end);
}

void check_pages(void)
{
	sender_pages();
	receiver_pages();
	received_page();
	huge_page();
	ordinary_user();
}
