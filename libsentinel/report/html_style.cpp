#include "report/html_parts.h"

namespace sentinel {

// Colours are custom properties, so that the canvas reads the same ones as the style sheet.
const std::string_view html_style = R"css(
:root{--bg:#f4f5f8;--card:#fff;--ink:#151a23;--muted:#5a6475;--faint:#8b94a3;--line:#e2e6ed;
--soft:#eef1f5;--accent:#b83b12;--focus:#1d5fd0;--alive:#d9e0ea;--live:#5b78a8;--need:#0c857a;
--hot:#c4271f;--fwd:#3c6fd1;--bwd:#9a4fc4;--opt:#a87408;
--ramp:#fbd98a,#f79d4c,#e5562f,#b21a4b,#560b4e;--shadow:0 1px 2px #1018280d,0 4px 16px #1018280a;
color-scheme:light}
:root[data-theme=dark]{--bg:#0c0f15;--card:#131822;--ink:#e7ebf2;--muted:#9aa5b7;--faint:#6c778a;
--line:#252d3b;--soft:#1a2130;--accent:#ff8b52;--focus:#7db0ff;--alive:#273143;--live:#7f9ed0;
--need:#39c3b3;--hot:#ff6a4d;--fwd:#6f9df5;--bwd:#c08af0;--opt:#dfae3f;
--ramp:#672657,#a82b57,#e4533a,#f9a33c,#fff1b5;--shadow:0 1px 2px #0006,0 6px 20px #0004;
color-scheme:dark}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:64px}
body{margin:0;background:var(--bg);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
h1,h2,h3,p{margin:0}
h2{font-size:16px;font-weight:650;letter-spacing:-.01em}
h3{font-size:13px;font-weight:650}
.sub{color:var(--muted);font-size:13px}
:focus-visible{outline:2px solid var(--focus);outline-offset:2px}
.bar{position:sticky;top:0;z-index:5;display:flex;align-items:center;gap:20px;padding:0 28px;
height:52px;background:color-mix(in srgb,var(--card) 88%,transparent);backdrop-filter:blur(10px);
border-bottom:1px solid var(--line)}
.brand{display:flex;align-items:center;gap:9px;font-weight:700;letter-spacing:-.01em}
.brand svg{display:block}
.bar nav{display:flex;gap:4px;flex:1}
.bar nav a{color:var(--muted);text-decoration:none;padding:5px 10px;border-radius:7px;
font-weight:550}
.bar nav a:hover{color:var(--ink);background:var(--soft)}
main{max-width:1680px;margin:0 auto;padding:26px 28px 60px;display:grid;gap:20px;
grid-template-columns:minmax(0,1fr)}
.title{display:grid;gap:6px}
.title h1{font-size:26px;font-weight:700;letter-spacing:-.02em;line-height:1.2;
overflow-wrap:anywhere}
.facts{display:flex;flex-wrap:wrap;gap:4px 22px;color:var(--muted);font-size:13px}
.facts b{font-weight:550;color:var(--faint);margin-right:6px}
.facts span{max-width:100%;overflow-wrap:anywhere}
.partial{background:color-mix(in srgb,var(--opt) 14%,var(--card));
border:1px solid color-mix(in srgb,var(--opt) 50%,transparent);border-radius:10px;
padding:10px 16px;font-weight:550}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:12px;
box-shadow:var(--shadow)}
.tile{padding:14px 18px}
.tile .v{font-size:24px;font-weight:650;letter-spacing:-.02em;line-height:1.3}
.tile .l{color:var(--muted);font-weight:550;font-size:13px}
.tile .n{color:var(--faint);font-size:12.5px}
.card{padding:18px 20px}
.card>header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin-bottom:14px}
.tools{font-size:13px;display:flex;flex-wrap:wrap;gap:8px 10px;align-items:center;margin-bottom:12px}
input,select,button{font:inherit;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:5px 10px;min-height:34px}
input[type=search]{width:200px}
button{cursor:pointer;font-weight:550}
button:hover,select:hover,input:hover{border-color:var(--faint)}
.group{display:inline-flex;border:1px solid var(--line);border-radius:8px;overflow:hidden}
.group label{padding:5px 9px;cursor:pointer;user-select:none;color:var(--muted);
border-right:1px solid var(--line);min-height:32px}
.group label:last-child{border:0}
.group label:has(:checked){background:var(--soft);color:var(--ink)}
.group label:has(:focus-visible){outline:2px solid var(--focus);outline-offset:-2px}
.group input{position:absolute;opacity:0;pointer-events:none;width:0}
.group button{border:0;border-right:1px solid var(--line);border-radius:0;min-width:36px}
.group button:last-child{border:0}
.pick{display:inline-flex;align-items:center;gap:6px;color:var(--muted);font-size:13px}
.pick select{color:var(--ink)}
.push{margin-left:auto}
.chart{display:grid;grid-template-columns:minmax(0,1fr) 268px;gap:20px}
.plot{position:relative;height:clamp(460px,76vh,900px)}
.plot canvas{position:absolute;inset:0;width:100%;height:100%;border-radius:6px;cursor:crosshair}
aside{display:grid;gap:18px;align-content:start;font-size:13px}
aside h3{margin-bottom:8px}
.rampbar{height:12px;border-radius:4px;background:linear-gradient(90deg,var(--ramp))}
.ticks{position:relative;height:18px;color:var(--muted);font-size:11.5px;margin-top:3px}
.ticks span{position:absolute;transform:translateX(-50%)}
.ticks span:first-child{transform:none}.ticks span:last-child{transform:translateX(-100%)}
.key{display:flex;align-items:center;gap:8px;color:var(--muted);margin-top:5px}
.key i{width:22px;height:12px;border-radius:3px;flex:none}
.key i.none{border:1px dashed var(--faint);background:none}
.key i.line{height:3px}
dl{display:grid;grid-template-columns:auto 1fr;gap:3px 12px;margin:0}
dt{color:var(--muted)}
dd{margin:0;text-align:right;overflow-wrap:anywhere}
.name{font-size:12.5px;overflow-wrap:anywhere;font-weight:600;margin-bottom:6px}
.tip{position:absolute;z-index:4;pointer-events:none;max-width:380px;background:var(--card);
border:1px solid var(--line);border-radius:9px;padding:9px 12px;font-size:12.5px;
box-shadow:0 6px 24px #0003;display:none}
.tip .more{color:var(--muted);margin-top:5px}
.hint{color:var(--faint);font-size:12.5px;margin-top:10px}
kbd{font:inherit;font-size:11.5px;border:1px solid var(--line);border-bottom-width:2px;
border-radius:5px;padding:0 5px;background:var(--soft);color:var(--muted)}
.obs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(380px,100%),1fr));gap:20px}
.obs table{width:100%;border-collapse:collapse;font-size:13px;margin-top:10px}
.obs th{font-weight:550;color:var(--faint);text-align:right;font-size:12px;padding:0 0 5px 10px}
.obs th{white-space:nowrap}
.obs th:first-child{text-align:left;padding-left:0;width:56%}
.obs td{padding:6px 0 6px 10px;border-top:1px solid var(--line);text-align:right;
vertical-align:top}
.obs td:first-child{text-align:left;color:var(--muted);padding-left:0}
.obs td:nth-child(2){font-weight:600}
.obs td:nth-child(3){color:var(--muted)}
.obs .n{font-weight:400;color:var(--faint);font-size:12px}
.obs td:nth-child(2){white-space:nowrap}
.obs td:first-child .n{margin-top:1px}
.obs .note{color:var(--muted);font-size:13px;margin-top:10px}
.vt{border:1px solid var(--line);border-radius:9px;overflow:auto;position:relative;
max-height:520px}
.vt .row{display:grid;grid-template-columns:var(--cols);align-items:center;height:30px;
padding:0 12px;gap:14px;min-width:var(--min)}
.vt .head{position:sticky;top:0;z-index:2;background:var(--soft);
border-bottom:1px solid var(--line);height:36px}
.vt .head button{all:unset;cursor:pointer;font-weight:600;font-size:12.5px;color:var(--muted);
white-space:nowrap}
.vt .head button:focus-visible{outline:2px solid var(--focus)}
.vt .head [aria-sort]:not([aria-sort=none]) button{color:var(--ink)}
.vt .num{text-align:right}
.vt .body{position:relative;min-width:var(--min)}
.vt .body .row{position:absolute;left:0;right:0;font-size:13px;cursor:pointer}
.vt .body .row:hover{background:var(--soft)}
.vt .body .row.on{background:color-mix(in srgb,var(--accent) 13%,transparent)}
.vt .cell{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.life{position:relative;height:8px;border-radius:4px;background:var(--soft)}
.life i{position:absolute;top:0;bottom:0;border-radius:4px;background:var(--live);min-width:3px}
.chip{font-size:11.5px;padding:1px 8px;border-radius:20px;background:var(--soft);
color:var(--muted)}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
footer{color:var(--faint);font-size:12.5px}
@media(max-width:1080px){.chart{grid-template-columns:1fr}main,.bar{padding-left:16px;
padding-right:16px}.bar nav a{padding:5px 6px}}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
@media print{.bar,.tools,.hint{display:none}}
)css";

}  // namespace sentinel
