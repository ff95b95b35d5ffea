// Folders in which others may exchange files.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/descriptor.h"

namespace sentinel {

struct OtherHand {
  std::string folder;  // for people to read
  struct stat found;   // of it: its owner, or its mode, is what lets others in
};

// The first, of a folder and those above it, that is neither the user's nor root's, or to which
// `writers` (S_IWGRP, S_IWOTH) may write: they decide what a path through it leads to. In one with
// the sticky bit nobody exchanges another's files, and those above it are not looked at. Throws
// Error where the answer cannot be had.
std::optional<OtherHand> other_hand(const Descriptor& folder, mode_t writers);

// The same of the folder of `file`.
std::optional<OtherHand> other_hand_at(const std::string& file, mode_t writers);

// "it belongs to user 7", "others may write to it (mode 0777)".
std::string print_hand(const OtherHand&);

}  // namespace sentinel
