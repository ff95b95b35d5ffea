// Which tensors are rows, and which part of rows and columns is visible.
const filter = {text: '', kinds: new Set([0, 1, 2]), lives: new Set([0, 1, 2]), size: 0, order: 'first'};
let rows = [];                       // tensors that pass the filter, in order
let view = {x0: 0, x1: 1, y0: 0, y1: 1};  // x: share of all columns; y: rows
let cursor = null;                   // {row, layer}: where the pointer or the keys are
let selected = -1;                   // a tensor
let edges = new Float64Array(layerCount + 1);  // of the columns, 0 to 1
let opEdges = new Float64Array(opCount + 1);

const lifeOf = t => T.last[t] - T.first[t] + 1;
const lifeKind = t => (T.flags[t] & 1) ? 2 : lifeOf(t) > 1 ? 1 : 0;
function passes(t, text) {
  return filter.kinds.has(T.kind[t]) && filter.lives.has(lifeKind(t)) && T.bytes[t] >= filter.size &&
         (!text || T.name[t].toLowerCase().includes(text));
}
const ORDERS = {
  first: (a, b) => T.first[a] - T.first[b] || T.last[a] - T.last[b] || T.bytes[b] - T.bytes[a],
  hotness: (a, b) => T.hotness[b] - T.hotness[a] || ORDERS.first(a, b),
  bytes: (a, b) => T.bytes[b] - T.bytes[a] || ORDERS.first(a, b),
  life: (a, b) => lifeOf(b) - lifeOf(a) || ORDERS.first(a, b),
};
function applyFilter() {
  const text = filter.text.trim().toLowerCase();
  rows = [];
  for (let t = 0; t < tensorCount; t++) if (passes(t, text)) rows.push(t);
  rows.sort(ORDERS[filter.order]);
  view.y0 = 0;
  view.y1 = Math.max(1, rows.length);
  cursor = null;
}

// Equal columns, or columns as wide as their time; then none is thinner than a sixth of the mean.
function layOut(byTime) {
  const total = L.us.reduce((a, b) => a + b, 0);
  let sum = 0;
  const widths = Array.from({length: layerCount}, (_, l) =>
      byTime && total > 0 ? Math.max(L.us[l] / total, 1 / (6 * layerCount)) : 1);
  const whole = widths.reduce((a, b) => a + b, 0);
  widths.forEach((w, l) => { edges[l] = sum / whole; sum += w; });
  edges[layerCount] = 1;
  for (let i = 0; i < opCount;) {
    const layer = O.layer[i];
    let end = i, us = 0;
    while (end < opCount && O.layer[end] === layer) us += O.us[end++];
    let at = edges[layer];
    for (let k = i; k < end; k++) {
      opEdges[k] = at;
      at += (edges[layer + 1] - edges[layer]) * (byTime && us > 0 ? O.us[k] / us : 1 / (end - i));
    }
    i = end;
  }
  opEdges[opCount] = 1;
}
// The last index whose edge is not beyond x.
function indexAt(list, count, x) {
  let low = 0, high = count - 1;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (list[mid] <= x) low = mid; else high = mid - 1;
  }
  return low;
}

function clampView() {
  const most = Math.max(1, rows.length);
  const height = Math.min(most, Math.max(Math.min(4, most), view.y1 - view.y0));
  const width = Math.min(1, Math.max(Math.min(1, 3 / Math.max(1, layerCount)), view.x1 - view.x0));
  view.y0 = Math.min(Math.max(0, view.y0), most - height);
  view.y1 = view.y0 + height;
  view.x0 = Math.min(Math.max(0, view.x0), 1 - width);
  view.x1 = view.x0 + width;
}
// Around a point given as shares of the plot; factors below one show less.
function zoom(fx, fy, byX, byY) {
  const cx = view.x0 + fx * (view.x1 - view.x0), cy = view.y0 + fy * (view.y1 - view.y0);
  view = {x0: cx - (cx - view.x0) * byX, x1: cx + (view.x1 - cx) * byX,
          y0: cy - (cy - view.y0) * byY, y1: cy + (view.y1 - cy) * byY};
  clampView();
  redraw();
}
function resetView() {
  view = {x0: 0, x1: 1, y0: 0, y1: Math.max(1, rows.length)};
  redraw();
}
function reveal(row, layer) {
  const h = view.y1 - view.y0, w = view.x1 - view.x0, x = edges[layer];
  if (row < view.y0 || row + 1 > view.y1) { view.y0 = row + 0.5 - h / 2; view.y1 = view.y0 + h; }
  if (x < view.x0 || edges[layer + 1] > view.x1) { view.x0 = x - w / 2; view.x1 = view.x0 + w; }
  clampView();
}
