// The userfaultfd ABI of newer kernels than the headers this is built with. Values are fixed by the
// kernel's ABI; everything is guarded, so that newer headers win.
#pragma once

#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>

#ifndef UFFD_USER_MODE_ONLY  // Linux 5.11
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW  // Linux 6.1: /dev/userfaultfd
#define USERFAULTFD_IOC 0xAA
#define USERFAULTFD_IOC_NEW _IO(USERFAULTFD_IOC, 0x00)
#endif
#ifndef UFFD_FEATURE_EXACT_ADDRESS  // Linux 5.18
#define UFFD_FEATURE_EXACT_ADDRESS (1 << 11)
#endif
#ifndef UFFD_FEATURE_MOVE  // Linux 6.8
#define UFFD_FEATURE_MOVE (1 << 16)
#endif
#ifndef UFFDIO_MOVE
#define _UFFDIO_MOVE (0x05)
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#define UFFDIO_MOVE_MODE_DONTWAKE ((__u64)1 << 0)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES ((__u64)1 << 1)
struct uffdio_move {
  __u64 dst;
  __u64 src;
  __u64 len;
  __u64 mode;
  __s64 move;  // bytes moved, or a negative errno
};
#endif

// Read-write protection: "userfaultfd: working set tracking for VM guest memory", version 10 of
// 8 July 2026, which went into mm-new. The numbers have been the same since the first version. The
// manual pages announce it for Linux 7.2, but that version came after 7.2's merge window. No header
// of a released kernel was at hand to confirm them: who uses them asks UFFDIO_API for the bit.
//
// What it promises, and is relied on here:
// - Only pages that are present are protected. One that is absent is made without a fault of this
//   kind, unless the range is registered for MISSING faults as well.
// - The marker stays with a page through migration, swap and mprotect, and goes with MADV_DONTNEED.
// - UFFDIO_MOVE into such a range leaves the page protected; out of it, without a marker.
// - A child without EVENT_FORK gets its copy without markers; so does unregistering.
// - Neither with MODE_WP on one range (EINVAL), nor is the mode taken away without unregistering
//   (EBUSY).
#ifndef UFFD_FEATURE_RWP
#define UFFD_FEATURE_RWP (1 << 17)
#endif
#ifndef UFFDIO_REGISTER_MODE_RWP
#define UFFDIO_REGISTER_MODE_RWP ((__u64)1 << 3)
#endif
#ifndef UFFD_PAGEFAULT_FLAG_RWP
#define UFFD_PAGEFAULT_FLAG_RWP (1 << 3)
#endif
#ifndef UFFDIO_RWPROTECT
#define _UFFDIO_RWPROTECT (0x09)
#define UFFDIO_RWPROTECT _IOWR(UFFDIO, _UFFDIO_RWPROTECT, struct uffdio_rwprotect)
#define UFFDIO_RWPROTECT_MODE_RWP ((__u64)1 << 0)  // else the protection ends
#define UFFDIO_RWPROTECT_MODE_DONTWAKE ((__u64)1 << 1)
struct uffdio_rwprotect {
  struct uffdio_range range;
  __u64 mode;
};
#endif
