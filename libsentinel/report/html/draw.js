// Drawing. The cells are painted into an image of their own, as pixels, so that moving the pointer
// only copies it and draws the marks anew.
const canvas = $('canvas'), ctx = canvas.getContext('2d');
const image = document.createElement('canvas');
const box = {};  // of the plot in CSS pixels: left, width, and the tops of its parts
let ratio = 1, stale = true, waiting = false;

function measure() {
  const w = canvas.clientWidth, h = canvas.clientHeight;
  ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    stale = true;
  }
  box.left = w < 720 ? 112 : 216;
  box.width = Math.max(10, w - box.left - 10);
  box.memoryTop = 12;
  box.memoryHeight = 88;
  box.phaseTop = 106;
  box.top = 130;
  box.height = Math.max(10, h - box.top - 24);
}
const xOf = x => box.left + (x - view.x0) / (view.x1 - view.x0) * box.width;
const yOf = y => box.top + (y - view.y0) / (view.y1 - view.y0) * box.height;
const fontOf = (size, mono) => size + 'px ' +
    (mono ? 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'
          : 'system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif');

// The brightest level of the rows and layers that fall on each pixel.
function levelsOf(w, h) {
  const out = new Uint8Array(w * h), line = new Uint8Array(w);
  const sx = w / (view.x1 - view.x0), sy = h / (view.y1 - view.y0);
  const least = Math.round(2 * ratio);  // an access stays visible however many layers there are
  const from = new Int32Array(layerCount), to = new Int32Array(layerCount);
  for (let l = 0; l < layerCount; l++) {
    const a = Math.round((edges[l] - view.x0) * sx), b = Math.round((edges[l + 1] - view.x0) * sx);
    from[l] = Math.min(w, Math.max(0, a));
    to[l] = Math.min(w, Math.max(0, Math.max(b, a + 1)));
  }
  const last = Math.min(rows.length, Math.ceil(view.y1));
  for (let r = Math.floor(view.y0); r < last; r++) {
    const t = rows[r], cells = T.cells[t];
    const begin = from[T.first[t]], end = to[T.last[t]];
    line.fill(1, begin, end);
    for (let c = 0; c < levels[t].length; c++) {
      const l = cells[3 * c], stop = Math.min(end, Math.max(to[l], from[l] + least));
      for (let x = from[l]; x < stop; x++)
        if (levels[t][c] > line[x]) line[x] = levels[t][c];
    }
    const top = Math.round((r - view.y0) * sy);
    let bottom = Math.max(top + 1, Math.round((r + 1 - view.y0) * sy));
    if (sy >= 7 * ratio) bottom -= Math.round(ratio);
    for (let y = Math.max(0, top); y < Math.min(h, bottom); y++)
      for (let x = begin, at = y * w + begin; x < end; x++, at++)
        if (line[x] > out[at]) out[at] = line[x];
    line.fill(0, begin, end);
  }
  return out;
}
function paintCells() {
  const w = Math.max(1, Math.round(box.width * ratio));
  const h = Math.max(1, Math.round(box.height * ratio));
  image.width = w;
  image.height = h;
  const pixels = image.getContext('2d').createImageData(w, h);
  const words = new Uint32Array(pixels.data.buffer), level = levelsOf(w, h);
  for (let i = 0; i < level.length; i++) words[i] = palette.packed[level[i]];
  image.getContext('2d').putImageData(pixels, 0, 0);
}

// Without its middle, where that has no room: both ends of a name tell it from its neighbours.
function cut(text, width) {
  if (ctx.measureText(text).width <= width) return text;
  const kept = n => text.slice(0, n >> 1) + '…' + text.slice(text.length - (n + 1 >> 1));
  let low = 0, high = text.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (ctx.measureText(kept(mid)).width <= width) low = mid; else high = mid - 1;
  }
  return kept(low);
}
// Names where a row is tall enough; else every sixteen pixels the biggest tensor that lies there.
function drawNames() {
  if (!rows.length) return;
  const rowHeight = box.height / (view.y1 - view.y0);
  ctx.font = fontOf(11, true);
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  const step = rowHeight >= 12 ? 1 : Math.ceil(16 / rowHeight);
  const first = Math.floor(view.y0 / step) * step;
  for (let r = first; r < Math.min(rows.length, view.y1); r += step) {
    const end = Math.min(rows.length, r + step), y = (yOf(r) + yOf(end)) / 2;
    if (y < box.top + 4 || y > box.top + box.height - 4) continue;
    let big = r;
    for (let k = r; k < end; k++) if (T.bytes[rows[k]] > T.bytes[rows[big]]) big = k;
    const chosen = selected >= 0 && rows.slice(r, end).includes(selected);
    const more = end - r - 1 ? ' +' + (end - r - 1) : '';
    ctx.fillStyle = chosen ? palette.accent : step === 1 ? palette.ink : palette.muted;
    const name = T.name[chosen ? selected : rows[big]].replaceAll('aten::', '');
    ctx.fillText(cut(name, box.left - 18 - ctx.measureText(more).width) + more, box.left - 10, y);
  }
}
function drawLayerAxis() {
  ctx.font = fontOf(11);
  ctx.textBaseline = 'top';
  ctx.textAlign = 'right';
  ctx.fillStyle = palette.muted;
  ctx.fillText('layer', box.left - 10, box.top + box.height + 6);
  ctx.textAlign = 'left';
  let free = -Infinity;
  for (let l = indexAt(edges, layerCount, view.x0); l < layerCount; l++) {
    const x = Math.max(box.left, xOf(edges[l]));
    if (x < free) continue;
    const room = Math.min(140, box.left + box.width - x);
    if (room < 60) break;
    const text = l + ' ' + cut(L.name[l], room - 8 - ctx.measureText(l + ' ').width);
    ctx.fillStyle = palette.faint;
    ctx.fillRect(x, box.top + box.height, 1, 5);
    ctx.fillStyle = palette.muted;
    ctx.fillText(text, x + 3, box.top + box.height + 6);
    free = x + Math.max(46, ctx.measureText(text).width + 16);
  }
}
// The ops' own phases, from pixel a to b: a layer may have ops of several.
function phaseRuns() {
  const runs = [];
  for (let i = 0; i < opCount;) {
    let end = i;
    while (end < opCount && O.phase[end] === O.phase[i]) end++;
    const a = Math.max(box.left, xOf(opEdges[i]));
    const b = Math.min(box.left + box.width, xOf(opEdges[end]));
    if (b > a) runs.push({phase: O.phase[i], a, b});
    i = end;
  }
  return runs;
}
// Without those of a few pixels, which would part one that has a name into several without.
function longRuns(runs) {
  const long = [];
  for (const run of runs) {
    const before = long[long.length - 1];
    if (run.b - run.a < 4) continue;
    if (before && before.phase === run.phase) before.b = run.b; else long.push({...run});
  }
  return long;
}
function drawPhases() {
  const colours = [palette.fwd, palette.bwd, palette.opt], runs = phaseRuns();
  ctx.font = '600 ' + fontOf(11.5);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  for (const {phase, a, b} of runs) {
    ctx.fillStyle = colours[phase];
    ctx.globalAlpha = 0.16;
    ctx.fillRect(a, box.phaseTop, Math.max(1, b - a - 1), 18);
    ctx.globalAlpha = 1;
    ctx.fillRect(a, box.phaseTop + 16, Math.max(1, b - a - 1), 2);
  }
  for (const {phase, a, b} of longRuns(runs)) {
    ctx.fillStyle = colours[phase];
    if (ctx.measureText(PHASES[phase]).width + 8 < b - a)
      ctx.fillText(PHASES[phase], (a + b) / 2, box.phaseTop + 8);
    if (a <= box.left) continue;
    ctx.fillStyle = palette.faint;
    ctx.globalAlpha = 0.5;
    ctx.fillRect(a - 1, box.memoryTop, 1, box.top + box.height - box.memoryTop);
    ctx.globalAlpha = 1;
  }
}

function drawMarks() {
  const row = selected < 0 ? -1 : rows.indexOf(selected);
  if (row >= 0 && yOf(row + 1) > box.top && yOf(row) < box.top + box.height) {
    ctx.strokeStyle = palette.accent;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(box.left - 1, yOf(row) - 1, box.width + 2, Math.max(3, yOf(row + 1) - yOf(row) + 1));
  }
  if (cursor) {
    const x = xOf(edges[cursor.layer]), w = Math.max(1, xOf(edges[cursor.layer + 1]) - x);
    ctx.fillStyle = palette.ink;
    ctx.globalAlpha = 0.09;
    ctx.fillRect(x, box.memoryTop, w, box.top + box.height - box.memoryTop);
    ctx.globalAlpha = 1;
    if (cursor.row >= 0) {
      ctx.strokeStyle = palette.ink;
      ctx.lineWidth = 1;
      const y = yOf(cursor.row), h = Math.max(2, yOf(cursor.row + 1) - y);
      ctx.strokeRect(x - 0.5, y - 0.5, w + 1, h);
    }
  }
  if (drag && drag.moved) {
    ctx.fillStyle = palette.focus;
    ctx.globalAlpha = 0.16;
    ctx.fillRect(drag.x, drag.y, drag.toX - drag.x, drag.toY - drag.y);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = palette.focus;
    ctx.strokeRect(drag.x, drag.y, drag.toX - drag.x, drag.toY - drag.y);
  }
}
// What part of the rows and columns is in sight, along the edges, once it is not all of them.
function drawExtent() {
  ctx.fillStyle = palette.faint;
  const n = Math.max(1, rows.length);
  if (view.y1 - view.y0 < n - 0.01)
    ctx.fillRect(box.left + box.width + 4, box.top + view.y0 / n * box.height, 4,
                 Math.max(8, (view.y1 - view.y0) / n * box.height));
  if (view.x1 - view.x0 < 0.999)
    ctx.fillRect(box.left + view.x0 * box.width, 2,
                 Math.max(8, (view.x1 - view.x0) * box.width), 4);
}
function draw() {
  waiting = false;
  measure();
  if (stale) { paintCells(); stale = false; }
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  if (!layerCount || !tensorCount || !rows.length) {
    ctx.font = fontOf(14);
    ctx.fillStyle = palette.muted;
    ctx.textAlign = 'center';
    ctx.fillText(layerCount && tensorCount ? 'No tensor passes the filters.'
                                           : 'The profile holds nothing to draw.',
                 canvas.clientWidth / 2, canvas.clientHeight / 2);
    if (!layerCount) return;
  }
  drawMemory();
  drawPhases();
  ctx.drawImage(image, box.left, box.top, box.width, box.height);
  ctx.strokeStyle = palette.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  drawNames();
  drawLayerAxis();
  drawMarks();
  drawExtent();
}
function refresh() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
function redraw() { stale = true; refresh(); }
