// Expands ranges and lists into values, with their units.
#include "planning/sweep_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "cli/form.h"

namespace sentinel::cli {
namespace {

constexpr int kValues = 10;       // of a range that states no step
constexpr double kMost = 10'000;  // of one that does

struct Quantity {
  double number = 0;
  std::string unit;
};

Quantity quantity(const std::string& text) {
  Quantity q;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), q.number);
  if (ec != std::errc() || !std::isfinite(q.number))
    throw UsageError(fmt::format("--sweep: \"{}\" does not begin with a number", text));
  q.unit.assign(end, text.data() + text.size());
  return q;
}

// "0..128GiB": what has no unit has the other end's.
std::string common_unit(const std::string& range, std::initializer_list<Quantity> all) {
  std::string unit;
  for (const auto& q : all) {
    if (q.unit.empty()) continue;
    if (!unit.empty() && q.unit != unit)
      throw UsageError(fmt::format("--sweep: write {} in one unit", range));
    unit = q.unit;
  }
  return unit;
}

std::vector<double> evenly(double from, double to, double step) {
  std::vector<double> numbers;
  if (step == 0) {
    for (int i = 0; i < kValues; ++i)
      numbers.push_back(i + 1 == kValues ? to : from + (to - from) * i / (kValues - 1));
    return numbers;
  }
  constexpr double kRounding = 1e-9;
  for (int i = 0; from + step * i <= to + step * kRounding; ++i) numbers.push_back(from + step * i);
  return numbers;
}

void add_range(const std::string& range, std::size_t dots, bool whole,
               std::vector<std::string>& values) {
  const auto colon = std::min(range.find(':', dots), range.size());
  const auto from = quantity(range.substr(0, dots));
  const auto to = quantity(range.substr(dots + 2, colon - dots - 2));
  const auto step = colon < range.size() ? quantity(range.substr(colon + 1)) : Quantity{};
  const auto unit = common_unit(range, {from, to, step});
  if (from.number > to.number || step.number < 0 || (colon < range.size() && step.number == 0) ||
      (step.number > 0 && (to.number - from.number) / step.number > kMost))
    throw UsageError(
        fmt::format("--sweep: {} is not a range from less to more, as 10%..100%:5%", range));
  for (const double number : evenly(from.number, to.number, step.number)) {
    auto value = fmt::format("{:.12g}{}", whole ? std::round(number) : number, unit);
    if (values.empty() || values.back() != value) values.push_back(std::move(value));
  }
}

}  // namespace

std::vector<std::string> sweep_values(const std::string& list, bool whole) {
  std::vector<std::string> values;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty()) throw UsageError(fmt::format("--sweep: {} has an empty value", list));
    if (const auto dots = part.find(".."); dots != std::string::npos)
      add_range(part, dots, whole, values);
    else
      values.push_back(part);
  }
  return values;
}

}  // namespace sentinel::cli
