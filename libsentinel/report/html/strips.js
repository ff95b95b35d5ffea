// The memory timelines of policies, above one another on one time axis.
const RIGHT = 12, MEMORY = 76, GAP = 6, LANE = 17, MARKS = 9, AXIS = 20;
const named = row => row.variant ? row.policy + ' ' + row.variant : row.policy;
const strips = D.rows.filter(r => r.result && r.strip);
const longest = strips.reduce((most, r) => Math.max(most, r.result.step_us), 0);
// The scale of memory is the budget's: what ignores it, as the ideal does, is cut off there.
const highest = strips.reduce((most, r) => Math.max(most, r.fast_bytes), 0) || D.fast_bytes || 1;
const usedLanes = [...new Set(strips.flatMap(r => r.strip.moved.map(m => m.lane)))]
    .sort((a, b) => a - b);
const heightOf = MEMORY + GAP + MARKS + usedLanes.length * LANE + AXIS;
const laneWords = lane => D.lanes[lane].name +
    (D.lanes[lane].bps ? ', ' + Number((D.lanes[lane].bps / 1e9).toPrecision(3)) + ' GB/s' : '');
const FONT = '11px system-ui,sans-serif';
// The width of the longest label, and of the space around it.
const LEFT = (() => {
  const ctx = el('canvas').getContext('2d');
  ctx.font = FONT;
  const words = ['resident', 'stalled', bytes(highest), ...usedLanes.map(laneWords)];
  return 16 + Math.ceil(Math.max(...words.map(text => ctx.measureText(text).width)));
})();
let axis = 'one';
const span = row => axis === 'one' ? longest : row.result.step_us;

// A step of 1, 2 or 5 times a power of ten that cuts `whole` into at most `count` pieces.
function niceStep(whole, count) {
  const raw = whole / count, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(f => f * power >= raw * 0.999);
}
function surface(row) {
  const width = Math.max(320, row.canvas.parentNode.clientWidth), scale = devicePixelRatio || 1;
  row.canvas.width = Math.round(width * scale);
  row.canvas.height = Math.round(heightOf * scale);
  row.canvas.style.height = heightOf + 'px';
  const ctx = row.canvas.getContext('2d');
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.font = FONT;
  ctx.textBaseline = 'middle';
  return {ctx, width: width - LEFT - RIGHT};
}
// Bars from `floor` up, one a part; what falls on one pixel column shows its largest.
function bars(ctx, values, x0, width, floor, height) {
  const columns = Math.max(1, Math.round(width)), most = new Float64Array(columns);
  values.forEach((v, i) => {
    const a = Math.floor(i / values.length * columns);
    const b = Math.max(a + 1, Math.floor((i + 1) / values.length * columns));
    for (let x = a; x < Math.min(b, columns); x++) if (v > most[x]) most[x] = v;
  });
  most.forEach((v, x) => {
    if (v > 0) {
      const h = Math.max(1, v * height);
      ctx.fillRect(x0 + x, floor - h, 1, h);
    }
  });
}
function label(ctx, text, y, colour) {
  ctx.fillStyle = colour;
  ctx.textAlign = 'right';
  ctx.fillText(text, LEFT - 10, y, LEFT - 14);
}
function drawMemory(ctx, row, width, drawn, top) {
  const floor = top + MEMORY - 6, height = MEMORY - 12;
  label(ctx, bytes(Math.round(highest)), floor - height, css('--muted'));
  label(ctx, 'resident', floor - height / 2, css('--ink'));
  label(ctx, '0', floor, css('--muted'));
  ctx.fillStyle = css('--live');
  ctx.globalAlpha = 0.55;
  bars(ctx, row.strip.held.map(v => Math.min(1, v / D.full * row.strip.most / highest)), LEFT, drawn, floor,
       height);
  ctx.globalAlpha = 1;
  ctx.fillStyle = css('--line');
  ctx.fillRect(LEFT, floor, width, 1);
  ctx.fillStyle = css('--ink');
  ctx.fillRect(LEFT, floor - Math.min(1, row.fast_bytes / highest) * height, width, 1);
}
function drawLane(ctx, row, lane, width, drawn, floor) {
  label(ctx, laneWords(lane), floor - LANE / 2 + 2, css('--muted'));
  ctx.fillStyle = css('--line');
  ctx.fillRect(LEFT, floor, width, 1);
  const moved = row.strip.moved.find(m => m.lane === lane);
  if (!moved) return;
  ctx.fillStyle = css(D.lanes[lane].inward ? '--need' : '--bwd');
  bars(ctx, moved.use.map(v => v / D.full), LEFT, drawn, floor, LANE - 4);
}
function drawAxis(ctx, row, width, y) {
  const whole = span(row), each = niceStep(whole, Math.max(2, Math.floor(width / 110)));
  ctx.fillStyle = css('--muted');
  ctx.textAlign = 'center';
  for (let t = 0; t <= whole * 1.0001; t += each)
    ctx.fillText(micros(Math.round(t * 1e3) / 1e3), LEFT + t / whole * width, y, 100);
}
function drawStrip(row) {
  const {ctx, width} = surface(row);
  const drawn = width * row.result.step_us / span(row);
  drawMemory(ctx, row, width, drawn, 0);
  const marks = MEMORY + GAP + MARKS;
  label(ctx, 'stalled', marks - MARKS / 2, css('--muted'));
  ctx.fillStyle = css('--hot');
  bars(ctx, row.strip.stalled.map(v => v / D.full), LEFT, drawn, marks, MARKS);
  usedLanes.forEach((lane, i) => drawLane(ctx, row, lane, width, drawn, marks + (i + 1) * LANE));
  drawAxis(ctx, row, width, heightOf - AXIS / 2 + 2);
}
function drawStrips() { strips.forEach(drawStrip); }

function describe(row, share) {
  const parts = row.strip.held.length, i = Math.min(parts - 1, Math.floor(share * parts));
  const lines = [micros(share * row.result.step_us) + ' into the step',
                 bytes(Math.round(row.strip.held[i] / D.full * row.strip.most)) + ' resident'];
  if (row.strip.stalled[i]) lines.push('stalled ' + Math.round(row.strip.stalled[i] / D.full * 100) + ' %');
  for (const m of row.strip.moved)
    if (m.use[i]) lines.push(D.lanes[m.lane].name + ' ' +
                             bytes(Math.round(m.use[i] / D.full * m.full_bps)) + '/s');
  return lines;
}
function point(row, event) {
  const box = row.canvas.getBoundingClientRect();
  const x = event.clientX - box.left - LEFT, width = box.width - LEFT - RIGHT;
  const across = x / width, share = across * span(row) / row.result.step_us;
  const inside = across >= 0 && across <= 1, shown = inside && share <= 1;
  for (const other of strips) {
    other.cursor.style.display = inside ? 'block' : 'none';
    other.cursor.style.left = LEFT + x + 'px';
  }
  row.tip.replaceChildren();
  row.tip.style.display = shown ? 'block' : 'none';
  if (shown) {
    for (const line of describe(row, share)) row.tip.append(el('div', '', line));
    row.tip.style.left = Math.min(event.clientX - box.left + 14, box.width - 260) + 'px';
    row.tip.style.top = '6px';
  }
}
function leave(row) {
  row.tip.style.display = 'none';
  for (const other of strips) other.cursor.style.display = 'none';
}
function addStrip(row) {
  const block = el('div', 'strip'), title = el('h3', '', named(row)), plot = el('div', 'plot');
  const share = row.result.throughput;
  title.append(el('span', '', micros(row.result.step_us) + (share === null ? '' :
      ', ' + digits3(share * 100) + ' % of the ideal throughput')));
  if (row.strip.most > highest)
    title.append(el('span', '', 'up to ' + bytes(row.strip.most) + ' resident, cut off at ' + bytes(highest)));
  row.canvas = el('canvas');
  row.canvas.setAttribute('role', 'img');
  row.canvas.setAttribute('aria-label', 'Memory over the step of ' + named(row) + ': at most ' +
      bytes(row.strip.most) + ' resident, ' + micros(row.result.stall_us) + ' stalled');
  row.tip = el('div', 'tip');
  row.cursor = el('div', 'cursor');
  row.canvas.addEventListener('pointermove', e => point(row, e));
  row.canvas.addEventListener('pointerleave', () => leave(row));
  plot.append(row.canvas, row.cursor, row.tip);
  block.append(title, plot);
  $('strips').append(block);
}
