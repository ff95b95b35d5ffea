// Pointer, wheel and keys over the heatmap.
let drag = null;
const inside = e => e.y >= box.top && e.y < box.top + box.height;
function point(event) {
  const r = canvas.getBoundingClientRect();
  return {x: event.clientX - r.left, y: event.clientY - r.top};
}
// Of the rows on one pixel the one that is hottest in the layer.
function rowAt(y, layer) {
  const per = (view.y1 - view.y0) / box.height;
  const first = Math.floor(view.y0 + (y - box.top) * per);
  const end = Math.min(rows.length, Math.max(first + 1, Math.floor(view.y0 + (y + 1 - box.top) * per)));
  let best = Math.min(first, rows.length - 1), level = -1;
  for (let r = first; r < end; r++) {
    const cell = cellAt(rows[r], layer);
    const here = cell ? cell.level : alive(rows[r], layer) ? 1 : 0;
    if (here > level) { level = here; best = r; }
  }
  return {row: best, more: end - first - 1};
}
function hover(p) {
  if (!layerCount || p.x < box.left || p.x >= box.left + box.width) return leave();
  const x = view.x0 + (p.x - box.left) / box.width * (view.x1 - view.x0);
  const layer = indexAt(edges, layerCount, x);
  if (inside(p) && rows.length) {
    const at = rowAt(p.y, layer);
    cursor = {row: at.row, layer};
    tellTensor(p, layer, at);
  } else if (p.y < box.top && p.y >= box.memoryTop) {
    cursor = {row: -1, layer: O.layer[indexAt(opEdges, opCount, x)]};
    tellOp(p, x);
  } else return leave();
  refresh();
}
function leave() {
  tip.style.display = 'none';
  cursor = null;
  refresh();
}
function endDrag() {
  const d = drag;
  drag = null;
  if (!d.moved) {
    if (cursor && cursor.row >= 0) select(rows[cursor.row]);
    return refresh();
  }
  const share = (v, from, size) => Math.min(1, Math.max(0, (v - from) / size));
  const xs = [d.x, d.toX].map(v => share(v, box.left, box.width)).sort((a, b) => a - b);
  const ys = [d.y, d.toY].map(v => share(v, box.top, box.height)).sort((a, b) => a - b);
  const w = view.x1 - view.x0, h = view.y1 - view.y0;
  // A drag over the memory curve alone chooses layers and leaves the rows as they are.
  const rowsToo = d.y >= box.top && ys[1] > ys[0];
  view = {x0: view.x0 + xs[0] * w, x1: view.x0 + xs[1] * w,
          y0: rowsToo ? view.y0 + ys[0] * h : view.y0, y1: rowsToo ? view.y0 + ys[1] * h : view.y1};
  clampView();
  redraw();
}
canvas.addEventListener('pointerdown', event => {
  if (event.button !== 0) return;
  const p = point(event);
  drag = {x: p.x, y: p.y, toX: p.x, toY: p.y, moved: false};
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener('pointermove', event => {
  const p = point(event);
  if (!drag) return hover(p);
  drag.toX = p.x;
  drag.toY = p.y;
  drag.moved = drag.moved || Math.abs(p.x - drag.x) + Math.abs(p.y - drag.y) > 6;
  if (drag.moved) tip.style.display = 'none';
  refresh();
});
canvas.addEventListener('pointerup', () => { if (drag) endDrag(); });
canvas.addEventListener('pointercancel', () => { drag = null; refresh(); });
canvas.addEventListener('pointerleave', () => { if (!drag) leave(); });
canvas.addEventListener('dblclick', resetView);
canvas.addEventListener('wheel', event => {
  const p = point(event), fx = (p.x - box.left) / box.width, fy = (p.y - box.top) / box.height;
  const clamp = v => Math.min(1, Math.max(0, v));
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    const by = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.005);
    return zoom(clamp(fx), clamp(fy), by, p.y < box.top ? 1 : by);
  }
  const before = {...view};
  const dx = (event.shiftKey ? event.deltaY : event.deltaX) / box.width * (view.x1 - view.x0);
  const dy = event.shiftKey ? 0 : event.deltaY / box.height * (view.y1 - view.y0);
  view.x0 += dx; view.x1 += dx; view.y0 += dy; view.y1 += dy;
  clampView();
  // What cannot scroll any further scrolls the page.
  if (Math.abs(view.y0 - before.y0) + Math.abs(view.x0 - before.x0) < 1e-9) return;
  event.preventDefault();
  redraw();
}, {passive: false});

function speak() {
  const t = rows[cursor.row];
  $('spoken').textContent = T.name[t] + ', ' + bytes(T.bytes[t]) + ', layer ' +
      layerWords(cursor.layer) + ': ' + openingWords(t, cursor.layer);
}
function moveCursor(dx, dy) {
  if (!rows.length || !layerCount) return;
  const from = cursor && cursor.row >= 0 ? cursor
      : {row: Math.floor(view.y0), layer: indexAt(edges, layerCount, view.x0)};
  cursor = {row: Math.min(rows.length - 1, Math.max(0, from.row + dy)),
            layer: Math.min(layerCount - 1, Math.max(0, from.layer + dx))};
  reveal(cursor.row, cursor.layer);
  redraw();
  const x = (xOf(edges[cursor.layer]) + xOf(edges[cursor.layer + 1])) / 2;
  tellTensor({x, y: yOf(cursor.row + 1)}, cursor.layer, {row: cursor.row, more: 0});
  speak();
}
const KEYS = {
  ArrowLeft: s => moveCursor(-s, 0), ArrowRight: s => moveCursor(s, 0),
  ArrowUp: s => moveCursor(0, -s), ArrowDown: s => moveCursor(0, s),
  '+': () => zoomCursor(0.6), '=': () => zoomCursor(0.6), '-': () => zoomCursor(1 / 0.6),
  '0': resetView, Home: resetView, Escape: () => { select(-1); leave(); },
  Enter: () => { if (cursor && cursor.row >= 0) select(rows[cursor.row]); },
};
function zoomCursor(by) {
  const has = cursor && cursor.row >= 0;
  zoom(has ? (edges[cursor.layer] - view.x0) / (view.x1 - view.x0) : 0.5,
       has ? (cursor.row + 0.5 - view.y0) / (view.y1 - view.y0) : 0.5, by, by);
}
canvas.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key](event.shiftKey ? 10 : 1);
});
