/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Counting how often a process opens the pages of its own memory.
 *
 * An armed page faults when it is touched. The fault opens the page, counts
 * one opening and puts the page into the window of the thread that touched it,
 * a FIFO of the W pages opened last. The page is armed again when W others
 * have been opened by that thread.
 *
 *	fd = open("/dev/sentinel", O_RDWR | O_CLOEXEC);
 *	ioctl(fd, SENTINEL_IOC_CREATE, &create);
 *	status = mmap(NULL, create.map_bytes, PROT_READ, MAP_SHARED, fd, 0);
 *	ioctl(fd, SENTINEL_IOC_TRACK, &ranges);
 *	ioctl(fd, SENTINEL_IOC_ARM);
 *	... the program runs; counters are read from the mapping ...
 *	ioctl(fd, SENTINEL_IOC_STOP);
 *
 * A session belongs to the process that created it and ends with its exit or
 * exec, or when the last descriptor of the file is closed. A process has one
 * session at a time. After fork() the child is not tracked, and gets ESRCH.
 *
 * See Documentation/admin-guide/mm/sentinel.rst.
 */
#ifndef _UAPI_LINUX_SENTINEL_H
#define _UAPI_LINUX_SENTINEL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SENTINEL_ABI_VERSION	1

/* struct sentinel_create.features */
#define SENTINEL_FEATURE_WRITES	(1ULL << 0)	/* reads and writes are told apart */
#define SENTINEL_FEATURE_NODES	(1ULL << 1)	/* openings by the page's NUMA node */
/*
 * Windows under SENTINEL_STEP_WINDOW pages are exact: no page is armed again
 * before the instruction that opened others has retired. Without it, such a
 * window holds up to SENTINEL_INSTRUCTION pages.
 */
#define SENTINEL_FEATURE_STEP	(1ULL << 2)

#define SENTINEL_MAX_WINDOW	(1U << 20)	/* pages */
#define SENTINEL_MAX_COUNTERS	(1U << 22)
#define SENTINEL_MAX_RANGES	(1U << 16)	/* in one call */
#define SENTINEL_MAX_WEIGHT	(1U << 20)

#define SENTINEL_STEP_WINDOW	64
#define SENTINEL_INSTRUCTION	32	/* pages that one instruction may need */
#define SENTINEL_SYSTEM_CALL	4	/* pages the kernel touches without a retry */

/* struct sentinel_create.flags */
/*
 * Pages that left a window are armed again together, when 64 have gathered or
 * a sixteenth of the window, because each time every other processor that runs
 * the process is interrupted. Openings with a weight above 1 always are.
 */
#define SENTINEL_IN_COMPANY	(1U << 0)

/**
 * struct sentinel_create - SENTINEL_IOC_CREATE
 * @version: in: SENTINEL_ABI_VERSION of the caller; out: of the kernel. Where
 *	they differ the call fails with EPROTO.
 * @flags: in: SENTINEL_IN_COMPANY or 0
 * @features: in: features the caller cannot do without (EOPNOTSUPP if one of
 *	them is missing); out: those the kernel has
 * @window: in: W in pages, 1 to SENTINEL_MAX_WINDOW
 * @counters: in: counters wanted, 1 to SENTINEL_MAX_COUNTERS
 * @map_bytes: out: length of the mapping, which begins with
 *	struct sentinel_status
 * @groups_offset: out: where in it the array of __u64 group totals begins
 * @counters_offset: out: where in it struct sentinel_counter begins
 * @group_counters: out: counters in a group
 * @reserved: in: 0
 */
struct sentinel_create {
	__u32 version;
	__u32 flags;
	__u64 features;
	__u32 window;
	__u32 counters;
	__u64 map_bytes;
	__u64 groups_offset;
	__u64 counters_offset;
	__u32 group_counters;
	__u32 reserved;
};

/* struct sentinel_range.flags: openings also count in sentinel_counter.even. */
#define SENTINEL_RANGE_EVEN	(1U << 0)

/**
 * struct sentinel_range - whole pages of private anonymous memory
 * @start: address, page aligned
 * @length: bytes, page aligned
 * @counter: where openings are counted; ignored by SENTINEL_IOC_UNTRACK
 * @weight: what one opening counts, and how much of a window it takes; 1 to
 *	SENTINEL_MAX_WEIGHT; ignored by SENTINEL_IOC_UNTRACK
 * @flags: SENTINEL_RANGE_EVEN or 0
 * @reserved: 0
 */
struct sentinel_range {
	__u64 start;
	__u64 length;
	__u32 counter;
	__u32 weight;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct sentinel_ranges - SENTINEL_IOC_TRACK, SENTINEL_IOC_UNTRACK
 * @ranges: address of an array of struct sentinel_range
 * @count: its length, up to SENTINEL_MAX_RANGES
 * @done: out: how many were handled before the call failed
 */
struct sentinel_ranges {
	__u64 ranges;
	__u32 count;
	__u32 done;
};

/**
 * struct sentinel_counter - openings since the session began
 * @reads: of which the access that opened the page was a read
 * @writes: of which it was a write
 * @even: of both, in ranges with SENTINEL_RANGE_EVEN
 * @reserved: 0
 *
 * Only grows. The total of a group is written after its counters, so that a
 * reader that has seen the total finds the counters at least as new.
 */
struct sentinel_counter {
	__u64 reads;
	__u64 writes;
	__u64 even;
	__u64 reserved;
};

#define SENTINEL_NODES	64

/**
 * struct sentinel_status - the beginning of the mapping
 * @armed: 1 between SENTINEL_IOC_ARM and SENTINEL_IOC_STOP
 * @window: W in pages
 * @openings: counted, without their weights
 * @rearmed: pages armed again because they left a window
 * @forgotten: pages that were unmapped while tracked
 * @steps: instructions that were single-stepped
 * @threads: threads that opened a page
 * @unplaced: openings of pages that had no memory yet, or whose memory was in
 *	swap, on its way, or the zero page
 * @node: openings by the NUMA node in which the page lay
 *
 * openings = unplaced + the sum over node, save for nodes from SENTINEL_NODES
 * on, which count as unplaced.
 */
struct sentinel_status {
	__u32 armed;
	__u32 window;
	__u64 openings;
	__u64 rearmed;
	__u64 forgotten;
	__u64 steps;
	__u64 threads;
	__u64 unplaced;
	__u64 reserved[9];
	__u64 node[SENTINEL_NODES];
};

#define SENTINEL_IOC_MAGIC	0xBB
#define SENTINEL_IOC_CREATE	_IOWR(SENTINEL_IOC_MAGIC, 0, struct sentinel_create)
/* Openings of the ranges are counted from now on, or from the next ARM. */
#define SENTINEL_IOC_TRACK	_IOWR(SENTINEL_IOC_MAGIC, 1, struct sentinel_ranges)
#define SENTINEL_IOC_UNTRACK	_IOWR(SENTINEL_IOC_MAGIC, 2, struct sentinel_ranges)
/* W in pages; a window that is larger shrinks with its thread's next opening. */
#define SENTINEL_IOC_WINDOW	_IOW(SENTINEL_IOC_MAGIC, 3, __u32)
/* Every tracked page is armed, every window is empty. */
#define SENTINEL_IOC_ARM	_IO(SENTINEL_IOC_MAGIC, 4)
/* No page is armed; what is tracked stays so. */
#define SENTINEL_IOC_STOP	_IO(SENTINEL_IOC_MAGIC, 5)

#endif /* _UAPI_LINUX_SENTINEL_H */
