// Reads the fault to inject.
#include "runtime/replay/spoiling.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "sentinel/error.h"

namespace sentinel {

bool Spoiling::is_of_replays(const std::string& inject) {
  return inject.starts_with("remake:") || inject.starts_with("trial:") ||
         inject.starts_with("note:");
}

Spoiling::Spoiling(const std::string& inject) {
  if (!is_of_replays(inject)) return;
  const std::string_view text = inject;
  const auto first = text.find(':'), last = text.rfind(':');
  const auto what = text.substr(0, first), how = text.substr(last + 1);
  std::from_chars(text.data() + first + 1, text.data() + last, at_);
  if (what == "remake" && how == "FLIP") kind_ = Kind::flip;
  if (what == "trial" && how == "FLIP") kind_ = Kind::flip_trial;
  if (what == "remake" && how == "DROP") kind_ = Kind::drop;
  if (what == "remake" && how == "EIO") kind_ = Kind::fail;
  if (what == "note" && how == "DROP") kind_ = Kind::lose;
  if (kind_ == Kind::none || at_ == 0)
    throw Error(fmt::format(
        "\"{}\" is no fault to inject; write remake:3:FLIP, remake:3:DROP, remake:3:EIO, "
        "trial:3:FLIP or note:3:DROP",
        text));
}

}  // namespace sentinel
