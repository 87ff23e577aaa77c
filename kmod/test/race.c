// SPDX-License-Identifier: GPL-2.0
/*
 * Looks up page-table entries while another thread unmaps the address, so
 * that page tables are freed during the walk.
 *
 * A walk that reads an upper entry twice may read it again after munmap()
 * has cleared it, use it as the address of a table, and oops.
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

#define HUGE_PAGE_BYTES (2UL << 20)
/* The only page in 512 GiB of addresses: munmap() of it frees every table except the top one. */
#define LONE_ADDRESS ((char *)0x100000000000UL)
/* This number of lookups always triggered the oops. A slow guest stops after the seconds. */
#define MAX_LOOKUPS 200000
#define MAX_SECONDS 10
/* The processor walks below an entry of a user address only if both flags are set. */
#define PRESENT 1
#define USER 4

static atomic_bool stop_requested;

/* Disables the module's log of each page, which takes far longer than the walk. A kernel without dynamic debug has no such file. */
static void disable_log(void)
{
	static const char command[] = "module kelvin -p";
	int control = open("/proc/dynamic_debug/control", O_WRONLY | O_CLOEXEC);

	if (control < 0)
		return;
	require(write(control, command, sizeof(command) - 1), "/proc/dynamic_debug/control");
	close(control);
}

/* Maps memory at the address, touches it, and unmaps it. */
static void touch_mapping(size_t bytes, int advice)
{
	char *memory = mmap(LONE_ADDRESS, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	require(memory == MAP_FAILED ? -1 : 0, "mmap");
	if (advice)
		madvise(memory, bytes, advice);
	memory[0] = 1;
	/* mprotect() of a part splits a huge page. */
	if (advice)
		mprotect(memory, page_bytes, PROT_READ);
	munmap(memory, bytes);
}

static void *map_pages(void *mapping_count)
{
	for (; !stop_requested; ++*(unsigned long *)mapping_count)
		touch_mapping(page_bytes, 0);
	return NULL;
}

static void *map_huge_pages(void *mapping_count)
{
	for (; !stop_requested; ++*(unsigned long *)mapping_count)
		touch_mapping(HUGE_PAGE_BYTES, MADV_HUGEPAGE);
	return NULL;
}

/* Maps and unmaps the window of an end at the address. */
static void *map_windows(void *mapping_count)
{
	int end = open_receiver();

	require(set_window(end, page_bytes), "KELVIN_SET_WINDOW");
	for (; !stop_requested; ++*(unsigned long *)mapping_count) {
		char *window = mmap(LONE_ADDRESS, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, end, 0);

		require(window == MAP_FAILED ? -1 : 0, "mmap of a window");
		window[0] = 1;
		munmap(window, page_bytes);
	}
	close(end);
	return NULL;
}

/* Whether an entry above the last level is absent or permits user access. */
static bool is_plausible(struct kelvin_page page)
{
	return page.level == 1 || !(page.entry & PRESENT) || page.entry & USER;
}

static void race_lookups(void *(*mapper)(void *), const char *change)
{
	unsigned long mapping_count = 0, lookups = 0, failures = 0, implausible = 0, levels = 0;
	int end = open_sender();
	time_t deadline = time(NULL) + MAX_SECONDS;
	pthread_t thread;

	stop_requested = false;
	require(-pthread_create(&thread, NULL, mapper, &mapping_count), "pthread_create");
	/* Until lookups have ended at several levels, which a busy host may delay. */
	for (; (lookups < MAX_LOOKUPS || __builtin_popcountl(levels) < 2) && time(NULL) < deadline; lookups++) {
		struct kelvin_page page = { .address = (uintptr_t)LONE_ADDRESS };

		failures += ioctl(end, KELVIN_PTE, &page) != 0;
		implausible += !is_plausible(page);
		levels |= 1UL << page.level;
	}
	stop_requested = true;
	pthread_join(thread, NULL);
	printf("race: %s: %lu lookups during %lu mappings\n", change, lookups, mapping_count);
	check(mapping_count > 1 && !failures && !implausible, "%s during %s: each lookup succeeds, and none passes an entry without user access",
	      "KELVIN_PTE", change);
	check(__builtin_popcountl(levels) > 1, "and they end in several tables (of levels %#lx)", levels);
	close(end);
}

void check_races(void)
{
	disable_log();
	race_lookups(map_pages, "munmap of a page alone in its tables");
	race_lookups(map_huge_pages, "splits of a huge page");
	race_lookups(map_windows, "munmap of a window");
}
