// The heatmap for a terminal: one character a cell; blocks of 256 colours where wanted.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

#include "base/units.h"
#include "report/text/renderers.h"
#include "report/text/text.h"
#include "report/view/heatmap.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

// Level 1 is alive but not accessed; each later one holds the hotness up to its bound.
constexpr std::string_view glyphs = " .:-=+*#%@";
constexpr std::array<double, 7> bounds{1, 3, 10, 30, 100, 300, 1000};
constexpr std::array<int, 10> colours{0, 0, 54, 90, 126, 162, 197, 203, 215, 228};  // of 256

constexpr std::size_t label_columns = 24, bytes_columns = 9;
constexpr std::size_t gutter = label_columns + bytes_columns + 3;

std::size_t level_of(double cell) {
  if (cell <= 0) return cell < 0 ? 0 : 1;
  const auto at = std::ranges::lower_bound(bounds, cell);
  return 2 + static_cast<std::size_t>(at - bounds.begin());
}

std::string blocks(std::size_t level, std::size_t count, bool colour) {
  if (!colour || level == 0) return std::string(count, glyphs[level]);
  if (level == 1) return fmt::format("\x1b[38;5;245m{}\x1b[0m", std::string(count, '.'));
  return fmt::format("\x1b[48;5;{}m{}\x1b[0m", colours[level], std::string(count, ' '));
}

// Equal neighbours are painted at once, which keeps coloured lines short.
std::string painted(const std::vector<std::size_t>& levels, std::size_t cell_width, bool colour) {
  std::string line;
  for (std::size_t i = 0; i < levels.size();) {
    auto end = i;
    while (end < levels.size() && levels[end] == levels[i]) ++end;
    line += blocks(levels[i], (end - i) * cell_width, colour);
    i = end;
  }
  return line;
}

std::string phase_axis(const Heatmap& map, std::size_t cell_width) {
  std::string line;
  for (std::size_t i = 0; i < map.phases.size();) {
    auto end = i;
    while (end < map.phases.size() && map.phases[end] == map.phases[i]) ++end;
    const auto width = (end - i) * cell_width;
    const std::string name(name_of(map.phases[i]));
    if (width < name.size() + 2)
      line += name[0] + std::string(width - 1, '-');
    else
      line += "|" + name + std::string(width - name.size() - 1, '-');
    i = end;
  }
  return line;
}

std::vector<std::size_t> live_levels(const Heatmap& map) {
  const auto peak = std::max<std::uint64_t>(1, *std::ranges::max_element(map.live));
  std::vector<std::size_t> levels;
  for (const auto bytes : map.live)
    levels.push_back(bytes == 0 ? 0 : 1 + (bytes * 8 + peak / 2) / peak);
  return levels;
}

// Entries of the legend, in as many lines as the terminal's width asks for.
void print_legend(const Scene& scene, std::ostream& out) {
  const std::string title = scene.step.counted ? "accesses per page:" : "ops that name it:";
  const auto width = static_cast<std::size_t>(std::max(scene.style.width, 60));
  std::size_t used = title.size();
  out << title;
  const auto add = [&](std::size_t level, const std::string& meaning) {
    const auto size = meaning.size() + 4;
    const bool next = used + size > width;
    out << (next ? "\n" + std::string(title.size(), ' ') : "") << "  "
        << blocks(level, 1, scene.style.colour) << ' ' << meaning;
    used = size + (next ? title.size() : used);
  };
  add(0, "(blank) absent");
  add(1, "alive, not accessed");
  for (std::size_t i = 0; i < bounds.size(); ++i) add(i + 2, fmt::format("to {:g}", bounds[i]));
  add(glyphs.size() - 1, "more");
  out << '\n';
}

std::string gutter_of(std::string_view label, std::string_view bytes) {
  return fmt::format("{} {}{}  ", pad(clip(label, label_columns), label_columns),
                     std::string(bytes_columns - std::min(bytes_columns, columns_of(bytes)), ' '),
                     bytes);
}

void line(std::ostream& out, const std::string& text) {
  out << text.substr(0, text.find_last_not_of(' ') + 1) << '\n';
}

void print_rows(const Scene& scene, const Heatmap& map, std::size_t cell_width, std::ostream& out) {
  for (const auto& row : map.rows) {
    std::vector<std::size_t> levels;
    for (const auto cell : row.cells) levels.push_back(level_of(cell));
    line(out, gutter_of(row_label(scene.step, row), print_bytes(row.bytes)) +
                  painted(levels, cell_width, scene.style.colour));
  }
}

}  // namespace

void heatmap_text(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  if (const auto notice = partial_notice(step); !notice.empty())
    out << bold(printable(notice), scene.style.colour) << '\n';
  const auto width = static_cast<std::size_t>(std::max(scene.style.width, 60)) - gutter;
  const auto map = heatmap_of(step, scene.options.heatmap_rows, width);
  if (map.phases.empty() || map.rows.empty()) {
    out << "No tensors over layers: the profile holds " << step.profile.tensors.size()
        << " tensors and " << step.profile.ops.size() << " ops.\n";
    return;
  }
  const auto cell = std::clamp<std::size_t>(width / map.phases.size(), 1, 4);
  line(out, gutter_of("tensor", "bytes") + bold(phase_axis(map, cell), scene.style.colour));
  line(out, gutter_of("live bytes", print_bytes(step.peak_live())) +
                painted(live_levels(map), cell, scene.style.colour));
  print_rows(scene, map, cell, out);
  out << '\n';
  print_legend(scene, out);
  out << fmt::format("columns: {} layers in order of execution", step.layers.size());
  if (map.layers_per_column > 1)
    out << fmt::format(", {} a column, the hottest is shown", map.layers_per_column);
  out << fmt::format("\nrows: {} tensors", step.profile.tensors.size());
  if (map.rows.size() < step.profile.tensors.size())
    out << fmt::format(" in {} rows (like lifetimes merged, the biggest alone)", map.rows.size());
  out << "\ncounts: " << printable(fidelity(step)) << '\n';
}

}  // namespace sentinel
