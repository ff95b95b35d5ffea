#include <ostream>

#include "report/html_parts.h"
#include "report/renderers.h"

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
  out << head_begin << title << "</title>\n<style>" << html_style << "</style>\n</head>\n";
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
  out << html_body;
  html_close(figures,
             {html_script_formats, html_script_base, html_script_chart, html_script_draw,
              html_script_memory, html_script_words, html_script_input, html_script_table,
              html_script_page},
             out);
}

}  // namespace

void summary_html(const Scene& scene, std::ostream& out) { page(scene, "top", out); }
void heatmap_html(const Scene& scene, std::ostream& out) { page(scene, "top", out); }
void tensors_html(const Scene& scene, std::ostream& out) { page(scene, "tensors", out); }
void layers_html(const Scene& scene, std::ostream& out) { page(scene, "layers", out); }

}  // namespace sentinel
