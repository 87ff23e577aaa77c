// SPDX-License-Identifier: GPL-2.0
/*
 * Page-table entries looked up while another thread unmaps the address: the
 * tables on the way are freed under the walk.
 *
 * A walk that reads an upper entry a second time takes the one that munmap()
 * has cleared for the address of a table, and the kernel oopses.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define HUGE (2UL << 20)
/* A page alone in 512 GiB of addresses: to unmap it frees every table but the top one. */
#define ALONE ((char *)0x100000000000UL)
/* As many looks as found the oops every time; a guest that is too slow for them stops at the seconds. */
#define LOOKS 200000
#define SECONDS 10
/* The processor reads a table below an entry of a user's only where both have these. */
#define PRESENT 1
#define USER 4

static atomic_bool over;

/* Without the module's log of each page, which takes far longer than the walk; a kernel without it has no such file. */
static void stop_log(void)
{
	static const char command[] = "module kelvin -p";
	int control = open("/proc/dynamic_debug/control", O_WRONLY | O_CLOEXEC);

	if (control < 0)
		return;
	must(write(control, command, sizeof(command) - 1), "/proc/dynamic_debug/control");
	close(control);
}

/* Memory at the address, touched and taken away. */
static void live(size_t bytes, int advice)
{
	char *space = mmap(ALONE, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	must(space == MAP_FAILED ? -1 : 0, "mmap");
	if (advice)
		madvise(space, bytes, advice);
	space[0] = 1;
	/* A protection for a part splits a huge page. */
	if (advice)
		mprotect(space, page_bytes, PROT_READ);
	munmap(space, bytes);
}

static void *map_pages(void *lives)
{
	for (; !over; ++*(unsigned long *)lives)
		live(page_bytes, 0);
	return NULL;
}

static void *map_huge_pages(void *lives)
{
	for (; !over; ++*(unsigned long *)lives)
		live(HUGE, MADV_HUGEPAGE);
	return NULL;
}

/* The window of an end, mapped at the address: the module's own pages go and come. */
static void *map_windows(void *lives)
{
	int end = open_receiver();

	must(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	for (; !over; ++*(unsigned long *)lives) {
		char *window = mmap(ALONE, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, end, 0);

		must(window == MAP_FAILED ? -1 : 0, "mmap of a window");
		window[0] = 1;
		munmap(window, page_bytes);
	}
	close(end);
	return NULL;
}

/* Whether an entry above the last table is one that a user's address may go through. */
static bool is_plausible(struct kelvin_page page)
{
	return page.level == 1 || !(page.entry & PRESENT) || page.entry & USER;
}

static void race(void *(*mapper)(void *), const char *what)
{
	unsigned long lives = 0, looks = 0, failed = 0, odd = 0, depths = 0;
	int end = open_sender();
	time_t last = time(NULL) + SECONDS;
	pthread_t thread;

	over = false;
	must(-pthread_create(&thread, NULL, mapper, &lives), "pthread_create");
	/* Until both were at work in turn, which a busy host may delay. */
	for (; (looks < LOOKS || __builtin_popcountl(depths) < 2) && time(NULL) < last; looks++) {
		struct kelvin_page page = { .address = (uintptr_t)ALONE };

		failed += ioctl(end, KELVIN_PTE, &page) != 0;
		odd += !is_plausible(page);
		depths |= 1UL << page.level;
	}
	over = true;
	pthread_join(thread, NULL);
	printf("race: %s: %lu looks in %lu lives\n", what, looks, lives);
	check(lives > 1 && !failed && !odd, "%s under %s: each look is answered, none goes through an entry that is no user's",
	      "KELVIN_PTE", what);
	check(__builtin_popcountl(depths) > 1, "and they end in several tables (of levels %#lx)", depths);
	close(end);
}

void check_races(void)
{
	stop_log();
	race(map_pages, "munmap of a page alone in its tables");
	race(map_huge_pages, "splits of a huge page");
	race(map_windows, "munmap of a window");
}
