#include "report/html_parts.h"

namespace sentinel {

const std::string_view html_comparison_body = R"html(<body>
<style>
.cmp{overflow-x:auto}
.cmp table{width:100%;border-collapse:collapse;font-size:13px}
.cmp th{font-weight:600;font-size:12.5px;color:var(--muted);text-align:right;padding:0 0 6px 14px;
white-space:nowrap}
.cmp td{padding:5px 0 5px 14px;border-top:1px solid var(--line);text-align:right;
white-space:nowrap}
.cmp td.why{text-align:left;color:var(--muted);white-space:normal}
.cmp th:first-child,.cmp td:first-child{text-align:left;padding-left:0}
.cmp td:first-child{font-weight:600}
.cmp td span{font-weight:400;color:var(--muted)}
.strip{border-top:1px solid var(--line);padding:10px 0}
.strip h3 span{font-weight:400;color:var(--muted);margin-left:10px}
.strip .plot{height:auto}
.strip canvas{position:static;display:block;width:100%}
.strip .cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--focus);display:none;
pointer-events:none}
#curve svg{width:100%;height:auto;display:block}
#curve text{fill:var(--muted);font-size:12px}
#curve .grid{stroke:var(--line)}
#curve polyline{fill:none;stroke-width:2}
#legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;margin-top:8px}
</style>
<header class="bar" id="top">
<div class="brand"><svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
<rect x="1" y="2" width="12" height="4.6" rx="1.4" fill="var(--hot)"/>
<rect x="5" y="8.7" width="16" height="4.6" rx="1.4" fill="var(--accent)" opacity=".75"/>
<rect x="1" y="15.4" width="8" height="4.6" rx="1.4" fill="var(--live)"/></svg>Sentinel</div>
<nav aria-label="Sections"><a href="#policies">Policies</a><a href="#curve" id="to-curve">Curve</a>
<a href="#timelines" id="to-timelines">Timelines</a></nav>
<button id="theme" type="button">Dark</button>
</header>
<main>
<noscript><p class="partial">This page draws with JavaScript, which is switched off here.
<code>sentinel compare</code> prints the same figures as text.</p></noscript>
<div class="title"><h1 id="model"></h1><div class="facts" id="facts"></div></div>
<section class="card" id="curve"><header><h2 id="curve-title"></h2>
<span class="sub">Normalized throughput: the ideal step over the simulated one.</span></header>
<div id="chart"></div><div id="legend"></div></section>
<section class="card" id="policies"><header><h2>Policies</h2>
<span class="sub">The steady step. Bounds hold for any plan at the same budget: no step is shorter.
</span></header><div class="cmp" id="table"></div></section>
<section class="card" id="timelines"><header><h2>Memory over the step</h2>
<span class="sub">What was resident in fast memory, what moved on which link, where the step stalled.
</span></header>
<div class="tools"><label class="pick">Time axis <select id="axis">
<option value="one">one for all</option><option value="own">each its own step</option>
</select></label>
<span class="key"><i style="background:var(--live);opacity:.55"></i>resident</span>
<span class="key"><i class="line" style="background:var(--ink)"></i>budget</span>
<span class="key"><i style="background:var(--need)"></i>towards fast memory</span>
<span class="key"><i style="background:var(--bwd)"></i>away from it</span>
<span class="key"><i style="background:var(--hot)"></i>stalled</span></div>
<div id="strips"></div></section>
<footer>This page is complete in itself and loads nothing.</footer>
</main>
)html";

}  // namespace sentinel
