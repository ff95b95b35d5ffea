#include "report/html_parts.h"

namespace sentinel {

const std::string_view html_body = R"html(<body>
<header class="bar" id="top">
<div class="brand"><svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
<rect x="1" y="2" width="12" height="4.6" rx="1.4" fill="var(--hot)"/>
<rect x="5" y="8.7" width="16" height="4.6" rx="1.4" fill="var(--accent)" opacity=".75"/>
<rect x="1" y="15.4" width="8" height="4.6" rx="1.4" fill="var(--live)"/></svg>Sentinel</div>
<nav aria-label="Sections"><a href="#heatmap">Heatmap</a><a href="#observations">Observations</a>
<a href="#tensors">Tensors</a><a href="#layers">Layers</a></nav>
<button id="theme" type="button">Dark</button>
</header>
<main>
<noscript><p class="partial">This page draws with JavaScript, which is switched off here.
<code>sentinel report FILE</code> prints the same figures as text.</p></noscript>
<div class="title"><h1 id="model"></h1><div class="facts" id="facts"></div></div>
<p class="partial" id="partial" role="status" hidden></p>
<section class="tiles" id="tiles" aria-label="Key figures"></section>
<section class="card" id="heatmap" aria-labelledby="heatmap-title">
<header><h2 id="heatmap-title">Tensors over layers</h2>
<span class="sub">How often each page of a tensor is accessed, layer by layer; memory above.</span>
</header>
<div class="tools">
<input type="search" id="text" placeholder="Filter by name" aria-label="Filter tensors by name">
<span class="group" role="group" aria-label="Kinds of tensors" id="kinds"></span>
<span class="group" role="group" aria-label="Lifetimes" id="lives"></span>
<label class="pick">Size <select id="size"><option value="0">any</option>
<option value="4096">4 KiB up</option><option value="65536">64 KiB up</option>
<option value="1048576">1 MiB up</option><option value="16777216">16 MiB up</option>
<option value="268435456">256 MiB up</option></select></label>
<label class="pick">Order <select id="order"><option value="first">first use</option>
<option value="hotness">hotness</option><option value="bytes">bytes</option>
<option value="life">lifetime</option></select></label>
<label class="pick">Columns <select id="widths"><option value="equal">equal</option>
<option value="time">by time</option></select></label>
<span class="group push" role="group" aria-label="Zoom">
<button type="button" id="out" aria-label="Zoom out">&minus;</button>
<button type="button" id="in" aria-label="Zoom in">+</button>
<button type="button" id="reset">Reset</button></span>
</div>
<div class="chart">
<div><div class="plot" id="plot"><canvas id="canvas" tabindex="0" role="application"
aria-label="Heatmap of tensors over layers. Arrow keys move, plus and minus zoom, 0 resets, Enter selects."
aria-describedby="spoken"></canvas><div class="tip" id="tip"></div></div>
<p class="hint">Drag to zoom in, double-click to zoom out; <kbd>Ctrl</kbd>+wheel zooms, the wheel
scrolls what is zoomed. Keys: <kbd>&larr;</kbd><kbd>&uarr;</kbd><kbd>&darr;</kbd><kbd>&rarr;</kbd>
move (with <kbd>Shift</kbd> by ten), <kbd>+</kbd><kbd>&minus;</kbd><kbd>0</kbd> zoom,
<kbd>Enter</kbd> selects.</p></div>
<aside>
<div><h3 id="scale">Accesses per page</h3><div class="rampbar"></div>
<div class="ticks" id="ticks"></div>
<div class="key"><i style="background:var(--alive)"></i>alive, not accessed</div>
<div class="key"><i class="none"></i>absent</div></div>
<div><h3>Memory</h3>
<div class="key"><i style="background:var(--live);opacity:.55"></i>live tensors</div>
<div class="key"><i class="line" style="background:var(--need)"></i>what the op itself needs</div>
<div class="key"><i style="background:var(--hot)"></i>hot tensors (over 100)</div></div>
<div><h3>Selected</h3><div id="selected"></div></div>
</aside>
</div>
<div class="sr" id="spoken" aria-live="polite"></div>
</section>
<section class="obs" id="observations" aria-label="The paper's observations on this model"></section>
<section class="card" id="tensors"><header><h2>Tensors</h2><span class="sub" id="shown"></span>
</header><div id="tensor-table"></div></section>
<section class="card" id="layers"><header><h2>Layers</h2>
<span class="sub">In order of execution; select one to zoom to it.</span></header>
<div id="layer-table"></div></section>
<footer>Reference figures: ResNet-32 as characterized by the Sentinel paper, HPCA 2021, section
III-B. This page is complete in itself and loads nothing.</footer>
</main>
)html";

}  // namespace sentinel
