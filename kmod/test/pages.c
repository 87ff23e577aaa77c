// SPDX-License-Identifier: GPL-2.0
/*
 * Page-table entries of a file that the sender maps for reading, and of the
 * receiver's window: absent at first, after a read, and after a write.
 *
 * Published values: 8000000...025 for a sender's page, 8000000...067 for a receiver's.
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

#define HUGE_PAGE_BYTES (2UL << 20)

#if defined(__x86_64__)
#define FRAME_MASK 0x000ffffffffff000ull
/* Bits for the kernel's own use, for example soft-dirty. */
#define SOFTWARE_MASK 0x07f0000000000e00ull
#define PUBLISHED_SENDER 0x8000000000000025ull
#define PUBLISHED_RECEIVER 0x8000000000000067ull
/* The receiver's page before a write: not dirty. */
#define CLEAN_RECEIVER 0x8000000000000027ull
#else
#error "the expected entries are known for x86-64 only"
#endif

static struct kelvin_page lookup_page(int end, const volatile void *address)
{
	struct kelvin_page page = { .address = (uintptr_t)address };

	require(ioctl(end, KELVIN_PTE, &page), "KELVIN_PTE");
	return page;
}

static void check_flags(struct kelvin_page page, unsigned long long expected, const char *description)
{
	check(page.level == 1 && page.shift == 12 && page.found & KELVIN_PAGE_PRESENT &&
		      (page.entry & ~(FRAME_MASK | SOFTWARE_MASK)) == expected,
	      "%s: flags %#llx, of these %#llx of the kernel's own", description, page.entry & ~FRAME_MASK, page.entry & SOFTWARE_MASK);
}

static void check_absent(struct kelvin_page page, const char *description)
{
	check(page.found & KELVIN_PAGE_MAPPED && !(page.found & KELVIN_PAGE_PRESENT) && !page.entry,
	      "%s: no entry at level %u", description, page.level);
}

/* Compares the frame with that in /proc/self/pagemap. */
static void check_frame(struct kelvin_page page)
{
	int pagemap = require(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), "pagemap");
	uint64_t entry = 0;

	require(pread(pagemap, &entry, sizeof(entry), page.address / page_bytes * sizeof(entry)), "pread");
	check(page.found & KELVIN_PAGE_FRAME && (page.entry & FRAME_MASK) >> 12 == (entry & ((1ull << 55) - 1)),
	      "its frame is that of /proc/self/pagemap");
	close(pagemap);
}

static int create_file(const char *path)
{
	int file = require(open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), path);

	require(ftruncate(file, page_bytes), "ftruncate");
	require(pwrite(file, "kelvin", 6, 0), "pwrite");
	return file;
}

static void sender_pages(void)
{
	int end = open_sender(), file = create_file("/tmp/source");
	volatile char *mapped = mmap(NULL, page_bytes, PROT_READ, MAP_PRIVATE, file, 0);

	check_absent(lookup_page(end, mapped), "the sender's file, mapped for reading, before touch");
	check(mapped[0] == 'k', "it is read");
	check_flags(lookup_page(end, mapped), PUBLISHED_SENDER, "after read, clean and not writable as published");
	check_frame(lookup_page(end, mapped));
	munmap((void *)mapped, page_bytes);
	check(!(lookup_page(end, mapped).found & (KELVIN_PAGE_MAPPED | KELVIN_PAGE_PRESENT)), "unmapped: nothing there");
	close(file);
	close(end);
}

static void receiver_pages(void)
{
	int end = open_receiver(), file = create_file("/tmp/target");
	volatile char *mapped = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	volatile char *window;

	require(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	window = map_window(end, page_bytes);
	check_absent(lookup_page(end, window), "the receiver's window before touch");
	check(window[0] == 0, "it is read");
	check_flags(lookup_page(end, window), CLEAN_RECEIVER, "after read, writable and clean");
	window[0] = 1;
	check_flags(lookup_page(end, window), PUBLISHED_RECEIVER, "after write, writable and dirty as published");
	check_frame(lookup_page(end, window));
	mapped[0] = 1;
	check_flags(lookup_page(end, mapped), PUBLISHED_RECEIVER, "the receiver's file after write, as published");
	munmap((void *)mapped, page_bytes);
	munmap((void *)window, page_bytes);
	close(file);
	close(end);
}

/* The module writes received bytes through the kernel's mapping, which does not change the caller's entry. */
static void received_page(void)
{
	int end = open_receiver(), peer = connect_to_peer(end);
	volatile char *window;

	require(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	window = map_window(end, page_bytes);
	require(write(peer, "k", 1), "write");
	check(span_call(end, KELVIN_RECEIVE, 0, 1) == 1, "a byte is received into the window");
	check_absent(lookup_page(end, window), "the module wrote it, not the caller");
	check(window[0] == 'k', "it is read");
	check_flags(lookup_page(end, window), CLEAN_RECEIVER, "and clean for the caller");
	munmap((void *)window, page_bytes);
	close(peer);
	close(end);
}

static void huge_page(void)
{
	char *memory = mmap(NULL, 2 * HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *huge = (char *)(((uintptr_t)memory + HUGE_PAGE_BYTES - 1) & -HUGE_PAGE_BYTES);
	int end = open_sender();
	struct kelvin_page page;

	if (madvise(huge, HUGE_PAGE_BYTES, MADV_HUGEPAGE))
		printf("SKIPPED: a huge page's entry: this kernel has none\n");
	else {
		huge[0] = 1;
		page = lookup_page(end, huge + HUGE_PAGE_BYTES / 2);
		check(page.level == 2 && page.shift == 21 && page.found & KELVIN_PAGE_PRESENT && page.entry & 0x80,
		      "a huge page's entry is at level %u and covers 2^%u bytes", page.level, page.shift);
	}
	munmap(memory, 2 * HUGE_PAGE_BYTES);
	close(end);
}

static bool is_frame_hidden(int end, const volatile char *mapped)
{
	struct kelvin_page page;

	require(setuid(65534), "setuid");
	page = lookup_page(end, mapped);
	return !(page.found & KELVIN_PAGE_FRAME) && !(page.entry & FRAME_MASK) && page.entry & 1;
}

static void ordinary_user(void)
{
	volatile char variable = 1;
	int end = open_sender(), status;

	fflush(stdout);
	if (!require(fork(), "fork")) {
		variable = 2;
		_exit(is_frame_hidden(end, &variable));
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
