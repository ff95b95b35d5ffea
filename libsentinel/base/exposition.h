// A page in Prometheus's text format, as node_exporter's textfile collector reads it
// (https://prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace sentinel {

// A label: name="value", whatever the value is.
std::string label_of(std::string_view name, std::string_view value);

class Exposition {
 public:
  // `who`: labels that every sample has, so that the files of several can be read together.
  explicit Exposition(std::string who) : who_(std::move(who)) {}

  void family(const char* name, const char* type, const char* help);
  // Of the family before.
  template <class Value>
  void sample(Value value, const std::string& labels = "") {
    fmt::format_to(std::back_inserter(text_), "{}{{{}{}{}}} {}\n", name_, labels,
                   labels.empty() || who_.empty() ? "" : ",", who_, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string who_, name_, text_;
};

}  // namespace sentinel
