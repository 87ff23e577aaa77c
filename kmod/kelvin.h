/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What /dev/kelvin_sender and /dev/kelvin_receiver are told by ioctl.
 *
 * Every structure has the same layout for 32-bit and 64-bit programs. What is
 * reserved must be zero.
 */
#ifndef KELVIN_H
#define KELVIN_H

#include <linux/ioctl.h>
#include <linux/socket.h>
#include <linux/types.h>

/* Raised when an ioctl changes its meaning. */
#define KELVIN_VERSION 1

/**
 * struct kelvin_about - what the module offers
 * @version: KELVIN_VERSION of the module
 * @page_bytes: a window is a multiple of these
 * @window_bytes: the largest window
 */
struct kelvin_about {
	__u32 version;
	__u32 page_bytes;
	__u64 window_bytes;
};

/**
 * struct kelvin_span - a part of the window
 * @offset: of its first byte
 * @length: in bytes
 * @flags: KELVIN_ALL or nothing
 * @reserved: zero
 */
struct kelvin_span {
	__u64 offset;
	__u64 length;
	__u32 flags;
	__u32 reserved;
};

/* Receive until the span is full, as MSG_WAITALL. */
#define KELVIN_ALL 1

/**
 * struct kelvin_page - the page-table entry of an address of the caller
 * @address: in: any address of the caller
 * @entry: as the processor reads it, or 0 where a table above it is absent.
 *	Without CAP_SYS_ADMIN there is no frame number in it, and an entry that
 *	is not present reads 0, as in /proc/self/pagemap.
 * @level: of the table with the entry: 1 is the last, with the smallest pages
 * @shift: the entry covers 1 << shift bytes
 * @found: KELVIN_PAGE_ flags
 * @reserved: zero
 */
struct kelvin_page {
	__u64 address;
	__u64 entry;
	__u32 level;
	__u32 shift;
	__u32 found;
	__u32 reserved;
};

/* The address lies in a mapping. */
#define KELVIN_PAGE_MAPPED 1
/* The entry maps memory now. */
#define KELVIN_PAGE_PRESENT 2
/* The entry is as it is in the table, with its frame number. */
#define KELVIN_PAGE_FRAME 4

/* Chosen among what Documentation/userspace-api/ioctl/ioctl-number.rst lists as free. */
#define KELVIN_MAGIC 0xE7

#define KELVIN_ABOUT _IOR(KELVIN_MAGIC, 0, struct kelvin_about)
/*
 * To a struct sockaddr_in or sockaddr_in6, in as many bytes as any address may
 * have. After EINTR or EINPROGRESS the attempt goes on: the same call again
 * says how far it is, KELVIN_CLOSE gives it up.
 */
#define KELVIN_CONNECT _IOW(KELVIN_MAGIC, 1, struct __kernel_sockaddr_storage)
/* At an address of this host; of port 0, KELVIN_GETNAME says which one was free. */
#define KELVIN_LISTEN _IOW(KELVIN_MAGIC, 2, struct __kernel_sockaddr_storage)
/* The address where this end listens, or else that of its end of the connection. */
#define KELVIN_GETNAME _IOR(KELVIN_MAGIC, 3, struct __kernel_sockaddr_storage)
/* Waits for a connection, and says whose. */
#define KELVIN_ACCEPT _IOR(KELVIN_MAGIC, 4, struct __kernel_sockaddr_storage)
/* Ends the connection; whoever waits for it gets ESHUTDOWN. */
#define KELVIN_CLOSE _IO(KELVIN_MAGIC, 5)
/* Ends listening; an established connection stays. */
#define KELVIN_UNLISTEN _IO(KELVIN_MAGIC, 6)
/* Bytes of the window, a multiple of the page size; 0 for none. */
#define KELVIN_SET_WINDOW _IOW(KELVIN_MAGIC, 7, __u64)
/* The sender's: the span's bytes; returns how many were sent. */
#define KELVIN_SEND _IOW(KELVIN_MAGIC, 8, struct kelvin_span)
/* The receiver's: returns how many bytes came into the span, 0 at the end of the stream. */
#define KELVIN_RECEIVE _IOW(KELVIN_MAGIC, 9, struct kelvin_span)
#define KELVIN_PTE _IOWR(KELVIN_MAGIC, 10, struct kelvin_page)

#endif
