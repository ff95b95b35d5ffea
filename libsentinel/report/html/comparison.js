// The table of policies, the curve of a sweep, and the page around them.
const KNOBS = {
  'fast': ['fast memory', v => bytes(Math.round(v))],
  'host': ['host memory', v => bytes(Math.round(v))],
  'ssd-bw': ['SSD bandwidth', v => Number((v / 1e9).toPrecision(3)) + ' GB/s'],
  'interval': ['migration interval, layers at most', v => String(v)]};
const moved = r => r.moved.reduce((sum, m) => sum + m.bytes, 0);
const COLUMNS = [
  ['step', r => micros(r.step_us)],
  ['throughput', r => r.throughput === null ? '–' : r.throughput.toFixed(3)],
  ['bound', r => D.ideal_us && r.bound_us ? (D.ideal_us / r.bound_us).toFixed(3) : '–'],
  ['bound, swapping', r => D.ideal_us && r.swap_bound_us ? (D.ideal_us / r.swap_bound_us).toFixed(3) : '–'],
  ['stalled', r => micros(r.stall_us)],
  ['recomputed', r => micros(r.recompute_us)],
  ['moved', r => bytes(moved(r))],
  ['peak fast', r => bytes(r.peak)],
  ['faults', r => number(r.faults)],
  ['planning', r => micros(r.plan_us)]];

function fillTable() {
  const table = el('table'), head = el('tr');
  head.append(el('th', '', 'policy'), ...COLUMNS.map(([name]) => el('th', '', name)));
  table.append(head);
  for (const row of D.rows) {
    const line = el('tr'), name = el('td', '', row.policy + ' ');
    name.append(el('span', '', row.variant));
    line.append(name);
    if (row.result) {
      for (const [, show] of COLUMNS) line.append(el('td', '', show(row.result)));
      line.children[7].title = row.result.moved
          .map(m => m.from + ' to ' + m.to + ': ' + bytes(m.bytes)).join('\n');
    } else {
      const why = el('td', 'why', 'not feasible: ' + row.reason);
      why.colSpan = COLUMNS.length;
      line.append(why);
    }
    table.append(line);
  }
  $('table').append(table);
}

const SVG = 'http://www.w3.org/2000/svg';
function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const CHART = {width: 1000, height: 420, left: 52, right: 36, top: 12, bottom: 46};
function seriesOf() {
  const all = new Map();
  const add = (name, at, y) => {
    if (!all.has(name)) all.set(name, []);
    all.get(name).push([at, y]);
  };
  const bounds = new Map();
  for (const row of D.rows) {
    if (!row.result || row.result.throughput === null) continue;
    const variant = row.policy;
    add(variant, row.at, row.result.throughput);
    const b = D.ideal_us / row.result.bound_us;
    if (row.result.peak <= row.fast_bytes && row.result.bound_us && isFinite(b))
      bounds.set(row.at, Math.max(b, bounds.get(row.at) || 0));
  }
  for (const [at, b] of bounds) add('bound', at, b);
  for (const points of all.values()) points.sort((a, b) => a[0] - b[0]);
  return all;
}
function drawGrid(svg, x, y, low, high, ticks, show) {
  const c = CHART;
  for (let v = 0; v <= 10; v += 2) {
    svg.append(shape('line', {class: 'grid', x1: c.left, x2: c.width - c.right, y1: y(v / 10),
                              y2: y(v / 10)}),
               shape('text', {x: c.left - 8, y: y(v / 10) + 4, 'text-anchor': 'end'},
                     (v / 10).toFixed(1)));
  }
  for (const at of ticks)
    svg.append(shape('text', {x: x(at), y: c.height - c.bottom + 18, 'text-anchor': 'middle'},
                     show(at)));
}
function fillCurve() {
  const series = seriesOf(), values = [...new Set([...series.values()].flat().map(p => p[0]))];
  if (!D.swept || !values.length) {
    $('curve').remove();
    $('to-curve').remove();
    return;
  }
  values.sort((a, b) => a - b);
  const c = CHART, low = values[0], high = values[values.length - 1];
  const [title, show] = KNOBS[D.swept];
  const x = v => c.left + (high > low ? (v - low) / (high - low) : 0.5) * (c.width - c.left - c.right);
  const y = v => c.height - c.bottom - v * (c.height - c.top - c.bottom);
  const svg = shape('svg', {viewBox: '0 0 ' + c.width + ' ' + c.height, role: 'img',
                            'aria-label': 'Throughput over ' + title});
  const every = Math.ceil(values.length / 10);
  drawGrid(svg, x, y, low, high, values.filter((v, i) => i % every === 0), show);
  svg.append(shape('text', {x: c.width / 2, y: c.height - 6, 'text-anchor': 'middle'}, title));
  $('curve-title').textContent = 'Throughput over ' + title;
  let index = 0;
  for (const [name, points] of series) {
    const bound = name === 'bound', hue = index++ * 137.5 % 360;
    const colour = bound ? 'var(--ink)' : 'hsl(' + hue + ' 62% 50%)';
    const line = shape('polyline', {stroke: colour, 'stroke-dasharray': bound ? '5 4' : 'none',
        points: points.map(([a, v]) => x(a).toFixed(1) + ',' + y(v).toFixed(1)).join(' ')});
    line.append(shape('title', {}, name));
    svg.append(line);
    for (const [a, v] of points) {
      const dot = shape('circle', {cx: x(a), cy: y(v), r: 3, fill: colour});
      dot.append(shape('title', {}, name + ', ' + show(a) + ': ' + v.toFixed(3)));
      svg.append(dot);
    }
    const key = el('span', 'key', name), mark = el('i', 'line');
    mark.style.background = colour;
    key.prepend(mark);
    $('legend').append(key);
  }
  $('chart').append(svg);
}
function fillHeader() {
  $('model').textContent = D.model + (D.batch ? ', batch ' + D.batch : '') + ' on ' + D.machine;
  document.title = D.model + ' on ' + D.machine + ' – Sentinel';
  const facts = [['budget', bytes(D.fast_bytes)], ['unlimited peak', bytes(D.peak_bytes)],
                 ['ideal step', micros(D.ideal_us)], ['ops', number(D.ops)],
                 ['tensors', number(D.tensors)], ['machine', D.source]];
  for (const [label, value] of facts) {
    if (!value) continue;
    const span = el('span', '', value);
    span.prepend(el('b', '', label));
    span.title = value;
    $('facts').append(span);
  }
}
fillHeader();
fillTable();
fillCurve();
if (strips.length) {
  strips.forEach(addStrip);
  $('axis').addEventListener('change', e => { axis = e.target.value; drawStrips(); });
  new ResizeObserver(drawStrips).observe($('strips'));
} else {
  $('timelines').remove();
  $('to-timelines').remove();
}
onTheme(drawStrips);
})();
