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
