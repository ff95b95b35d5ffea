test('knobs of a sweep in their units', () => {
  equal([KNOBS.fast[1](1048576), KNOBS['ssd-bw'][1](3.2e9), KNOBS.interval[1](4)],
        ['1.00 MiB', '3.2 GB/s', '4']);
});
test('shares are percentages of one decimal', () => {
  equal([0.9996, 0.5, null, Infinity].map(percents), ['100.0 %', '50.0 %', '–', '–']);
});
test('a value as it was asked for', () => {
  equal([2097152, 1048576].map(valueWords), ['50 % (2.00 MiB)', '1.00 MiB']);
});
test('a series a policy, by the knob, after the bound of what kept its budget, without the ideal', () => {
  const series = seriesOf(), at = [1048576, 2097152];
  equal([...series.keys()], ['bound', 'lru', 'sentinel']);
  equal(series.get('lru'), [[at[0], 0.5], [at[1], 0.8]]);
  equal(series.get('sentinel'), [[at[0], 1]]);
  equal(series.get('bound'), [[at[0], 0.8], [at[1], 1000 / 1100]]);
});
test('the curve has a line a series, a dot a point of a policy, and none of the bound', () => {
  const svg = $('chart').querySelector('svg');
  equal([texts(svg, 'polyline'), svg.querySelectorAll('circle').length], [['bound', 'lru', 'sentinel'], 3]);
  const [bound, first] = svg.querySelectorAll('polyline');
  equal([bound.getAttribute('stroke-dasharray'), first.getAttribute('stroke-dasharray')], ['5 4', 'none']);
  const width = $('chart').clientWidth, height = +svg.getAttribute('height');
  const y = v => (height - CHART.bottom - v * (height - CHART.top - CHART.bottom)).toFixed(1);
  equal(first.getAttribute('points').split(' '),
        [CHART.left.toFixed(1) + ',' + y(0.5), (width - CHART.right).toFixed(1) + ',' + y(0.8)]);
  equal(texts(svg, 'circle title')[1], 'lru, 50 % (2.00 MiB): 80.0 %');
  equal([$('curve-title').textContent, texts($('legend'), '.key')],
        ['Throughput over fast memory', ['bound', 'lru', 'sentinel']]);
});
test('no two of 32 policies have one style', () => {
  const styles = Array.from({length: COLOURS * DASHES.length}, (_, n) => JSON.stringify(styleOf(n)));
  equal(new Set(styles).size, 32);
  for (let n = 0; n < COLOURS; n++) that(css('--s' + n).startsWith('#'), '--s' + n + ' is no colour');
  equal(styleOf(0)['stroke-dasharray'], 'none');
});
test('the name of a series shows it alone', () => {
  const svg = $('chart').querySelector('svg'), [, key] = $('legend').children;
  const [, group] = svg.querySelectorAll('.series');
  key.dispatchEvent(new Event('pointerenter'));
  equal([svg.classList.contains('one'), texts(svg, '.on title')[0]], [true, 'lru']);
  that(group.classList.contains('on'), 'another is shown');
  equal(svg.lastChild, group);  // above all others
  key.dispatchEvent(new Event('focus'));
  key.dispatchEvent(new Event('pointerleave'));
  equal([svg.classList.contains('one'), svg.querySelectorAll('.on').length], [false, 0]);
  equal(svg.querySelectorAll('.series')[1], group);
});
test('the curve is drawn anew for another width, with text of one size', async () => {
  const size = () => getComputedStyle($('chart').querySelector('text')).fontSize;
  const before = size();
  $('chart').style.width = '500px';
  await drawn();
  await drawn();
  equal([$('chart').querySelector('svg').getAttribute('width'), size()], ['500', before]);
  equal($('chart').querySelector('svg').getBoundingClientRect().width, 500);
  $('chart').style.width = '';
  await drawn();
});
test('as many ticks as have room', () => {
  const values = [1, 2, 3, 4, 5, 6];
  equal(ticksOf(values, 1000), values);
  equal(ticksOf(values, 100), [1, 4]);
});
test('a shape is of SVG', () => {
  const line = shape('line', {x1: 3}, 'text');
  equal([line.namespaceURI, line.getAttribute('x1'), line.textContent], [SVG, '3', 'text']);
});
test('the grid has fifths, what they are of, and the ticks', () => {
  const svg = shape('svg', {});
  drawGrid(svg, v => v, v => v, 600, [0, 1, 2], v => 'v' + v);
  equal(texts(svg, 'text'), ['0 %', '20 %', '40 %', '60 %', '80 %', '100 %', 'share of full speed', 'v0', 'v1', 'v2']);
  equal(svg.querySelectorAll('.grid').length, 6);
});
test('a series is a group of its line and its dots', () => {
  const one = name => drawSeries(name, [[2097152, 0.5], [3145728, 1]], BOUND, v => v, v => v);
  equal([one('lru').children.length, one('bound').children.length], [3, 1]);
});
