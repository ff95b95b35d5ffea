// The curve of a sweep: a line a policy, and the bound below them, drawn at the width that there is.
const percents = v => v === null || !isFinite(v) ? '–' : (100 * v).toFixed(1) + ' %';
const KNOBS = {
  'fast': ['fast memory', v => bytes(Math.round(v))],
  'host': ['host memory', v => bytes(Math.round(v))],
  'ssd-bw': ['SSD bandwidth', v => Number((v / 1e9).toPrecision(3)) + ' GB/s'],
  'interval': ['migration interval, layers at most', v => String(v)]};
// A value of the sweep as it was asked for, where that was a percentage.
function valueWords(at) {
  const row = D.rows.find(r => r.at === at), [, show] = KNOBS[D.swept];
  const asked = row && row.variant.match(/^[\w-]+=([\d.]+)%/);
  return asked ? asked[1] + ' % (' + show(at) + ')' : show(at);
}
const SVG = 'http://www.w3.org/2000/svg';
function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const CHART = {left: 56, right: 48, top: 34, bottom: 46};
const COLOURS = 8, DASHES = ['none', '9 4', '2 3', '9 3 2 3'];
// The bound, then the policies; the ideal is 1 by its definition.
function seriesOf() {
  const all = new Map(), bounds = new Map();
  for (const row of D.rows) {
    if (!row.result || row.result.throughput === null || row.policy === 'ideal') continue;
    if (!all.has(row.policy)) all.set(row.policy, []);
    all.get(row.policy).push([row.at, row.result.throughput]);
    const b = D.ideal_us / row.result.bound_us;
    if (row.result.peak <= row.fast_bytes && row.result.bound_us && isFinite(b))
      bounds.set(row.at, Math.max(b, bounds.get(row.at) || 0));
  }
  const series = new Map(bounds.size ? [['bound', [...bounds]], ...all] : all);
  for (const points of series.values()) points.sort((a, b) => a[0] - b[0]);
  return series;
}
// The nth policy's: eight colours, then the same ones dashed.
const styleOf = n => ({stroke: 'var(--s' + n % COLOURS + ')',
                       'stroke-dasharray': DASHES[Math.floor(n / COLOURS) % DASHES.length]});
const BOUND = {stroke: 'var(--ink)', 'stroke-dasharray': '5 4'};

function drawGrid(svg, x, y, width, ticks, show) {
  const floor = y(0);
  for (let v = 0; v <= 10; v += 2) {
    svg.append(shape('line', {class: 'grid', x1: CHART.left, x2: width - CHART.right, y1: y(v / 10),
                              y2: y(v / 10)}),
               shape('text', {x: CHART.left - 8, y: y(v / 10) + 4, 'text-anchor': 'end'}, 10 * v + ' %'));
  }
  svg.append(shape('text', {x: 0, y: 14}, 'share of full speed'));
  for (const at of ticks)
    svg.append(shape('text', {x: x(at), y: floor + 18, 'text-anchor': 'middle'}, show(at)));
}
// As many of the values as have room for their words.
function ticksOf(values, room) {
  const widest = Math.max(...values.map(v => valueWords(v).length)) * 7 + 14;
  const every = Math.ceil(values.length / Math.max(2, Math.floor(room / widest)));
  return values.filter((v, i) => i % every === 0);
}
function drawSeries(name, points, style, x, y) {
  const group = shape('g', {class: 'series'});
  const line = shape('polyline', {...style,
      points: points.map(([a, v]) => x(a).toFixed(1) + ',' + y(v).toFixed(1)).join(' ')});
  line.append(shape('title', {}, name));
  group.append(line);
  for (const [a, v] of name === 'bound' && points.length > 1 ? [] : points) {
    const dot = shape('circle', {cx: x(a), cy: y(v), r: 3, fill: style.stroke});
    dot.append(shape('title', {}, name + ', ' + valueWords(a) + ': ' + percents(v)));
    group.append(dot);
  }
  return group;
}
// Shows one series and dims the others, while the pointer or the focus is on its name.
function keyOf(name, style, group) {
  const key = el('span', 'key', name), mark = shape('svg', {width: 26, height: 4});
  mark.append(shape('line', {x1: 0, x2: 26, y1: 2, y2: 2, 'stroke-width': 3, ...style}));
  key.prepend(mark);
  key.tabIndex = 0;
  let next = null;  // where the series stands when it is not above all others
  const light = on => {
    const chart = group.parentNode;
    if (on === group.classList.contains('on')) return;
    if (on) next = group.nextSibling;
    chart.insertBefore(group, on ? null : next);
    chart.classList.toggle('one', on);
    group.classList.toggle('on', on);
  };
  for (const event of ['pointerenter', 'focus']) key.addEventListener(event, () => light(true));
  for (const event of ['pointerleave', 'blur']) key.addEventListener(event, () => light(false));
  return key;
}
function drawCurve() {
  const series = seriesOf(), values = [...new Set([...series.values()].flat().map(p => p[0]))];
  values.sort((a, b) => a - b);
  const c = CHART, low = values[0], high = values[values.length - 1];
  const width = Math.max(320, $('chart').clientWidth), height = Math.round(Math.min(420, 200 + width / 5));
  const room = width - c.left - c.right, title = KNOBS[D.swept][0];
  const x = v => c.left + (high > low ? (v - low) / (high - low) : 0.5) * room;
  const y = v => height - c.bottom - v * (height - c.top - c.bottom);
  const svg = shape('svg', {width, height, role: 'img', 'aria-label': 'Throughput over ' + title});
  drawGrid(svg, x, y, width, ticksOf(values, room), valueWords);
  svg.append(shape('text', {x: width / 2, y: height - 6, 'text-anchor': 'middle'}, title));
  $('legend').replaceChildren();
  let policies = 0;
  for (const [name, points] of series) {
    const style = name === 'bound' ? BOUND : styleOf(policies++);
    const group = drawSeries(name, points, style, x, y);
    svg.append(group);
    $('legend').append(keyOf(name, style, group));
  }
  $('chart').replaceChildren(svg);
}
function fillCurve() {
  if (!D.swept || !seriesOf().size) {
    $('curve').remove();
    $('to-curve').remove();
    return;
  }
  $('curve-title').textContent = 'Throughput over ' + KNOBS[D.swept][0];
  drawCurve();
  let drawn = $('chart').clientWidth;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (drawn === $('chart').clientWidth) return;
    drawn = $('chart').clientWidth;
    drawCurve();
  })).observe($('chart'));
}
