// Assembles a page from its embedded scripts and styles, for each view of a profile.
#include <ostream>

#include "embedded/sentinel_report_html.h"
#include "report/html/parts.h"
#include "report/html/renderers.h"

namespace sentinel {
namespace {

constexpr std::string_view head_begin =
    R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; )"
    R"(script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="generator" content="sentinel report">
<title>)";

}  // namespace

void html_open(std::string_view title, std::ostream& out) {
  out << head_begin << title << "</title>\n<style>" << embedded::style_css << "</style>\n</head>\n";
}

// Names come from the profiled program and may hold anything. They reach the page only as JSON
// in a script element that is not executed, escaped so that nothing in it can end the element,
// and the script shows them as text nodes only.
void html_close(const Json& figures, std::initializer_list<std::string_view> scripts,
                std::ostream& out) {
  out << "<script type=\"application/json\" id=\"profile\">" << script_safe(figures)
      << "</script>\n<script>";
  for (const auto script : scripts) out << script;
  out << "</script>\n</body>\n</html>\n";
}

namespace {

void page(const Scene& scene, std::string_view section, std::ostream& out) {
  auto figures = html_figures(scene.step);
  figures["open"] = section;
  html_open("Sentinel profile", out);
  out << embedded::body_html;
  html_close(figures,
             {embedded::formats_js, embedded::base_js, embedded::chart_js, embedded::draw_js,
              embedded::memory_js, embedded::words_js, embedded::input_js, embedded::table_js,
              embedded::page_js},
             out);
}

}  // namespace

void summary_html(const Scene& scene, std::ostream& out) { page(scene, "top", out); }
void heatmap_html(const Scene& scene, std::ostream& out) { page(scene, "top", out); }
void tensors_html(const Scene& scene, std::ostream& out) { page(scene, "tensors", out); }
void layers_html(const Scene& scene, std::ostream& out) { page(scene, "layers", out); }

}  // namespace sentinel
