const cells = row => texts($('table').querySelectorAll('tr')[row], 'td');
test('what was moved is the sum over all ways', () => { equal(moved(D.rows[1].result), 4 << 20); });
test('knobs of a sweep in their units', () => {
  equal([KNOBS.fast[1](1048576), KNOBS['ssd-bw'][1](3.2e9), KNOBS.interval[1](4)],
        ['1.00 MiB', '3.2 GB/s', '4']);
});
test('the table has a row a policy', () => {
  equal(texts($('table'), 'th'), ['policy', ...COLUMNS.map(([name]) => name)]);
  equal(cells(2), ['lru ', '2 ms', '0.500', '0.800', '0.625', '1 ms', '0 µs', '4.00 MiB', '1.00 MiB',
                   '20,000', '0 µs']);
  equal(cells(3)[0], 'sentinel no copies');
  equal(cells(1)[4], '–');
});
test('moved bytes tell of their ways', () => {
  equal($('table').querySelectorAll('tr')[2].children[7].title,
        'ssd to fast: 3.00 MiB\nfast to ssd: 1.00 MiB');
});
test('a reason is a text', () => {
  equal(cells(4), ['g10 ', 'not feasible: too few <b>bytes</b>']);
  equal($('table').querySelector('.why').colSpan, COLUMNS.length);
  equal($('table').querySelectorAll('b').length, 0);
});
test('a series a policy, by the knob, and the bound of what kept its budget', () => {
  const series = seriesOf(), at = [1048576, 2097152];
  equal([...series.keys()], ['lru', 'sentinel', 'bound']);
  equal(series.get('lru'), [[at[0], 0.5], [at[1], 0.8]]);
  equal(series.get('sentinel'), [[at[0], 1]]);
  equal(series.get('bound'), [[at[0], 0.8], [at[1], 1000 / 1100]]);
});
test('the curve has a line a series and a dot a point', () => {
  const svg = $('chart').querySelector('svg');
  equal([texts(svg, 'polyline'), svg.querySelectorAll('circle').length],
        [['lru', 'sentinel', 'bound'], 5]);
  const first = svg.querySelector('polyline').getAttribute('points').split(' ');
  equal(first, ['52.0,' + y(0.5), '964.0,' + y(0.8)]);
  equal(texts(svg, 'circle title')[1], 'lru, 2.00 MiB: 0.800');
  equal([$('curve-title').textContent, texts($('legend'), '.key')],
        ['Throughput over fast memory', ['lru', 'sentinel', 'bound']]);
  that(svg.getBoundingClientRect().width > 100, 'the curve has no size');
});
const y = v => (CHART.height - CHART.bottom - v * (CHART.height - CHART.top - CHART.bottom)).toFixed(1);
test('a shape is of SVG', () => {
  const line = shape('line', {x1: 3}, 'text');
  equal([line.namespaceURI, line.getAttribute('x1'), line.textContent], [SVG, '3', 'text']);
});
test('the grid has tenths and the ticks', () => {
  const svg = shape('svg', {});
  drawGrid(svg, v => v, v => v, 0, 2, [0, 1, 2], v => 'v' + v);
  equal(texts(svg, 'text'), ['0.0', '0.2', '0.4', '0.6', '0.8', '1.0', 'v0', 'v1', 'v2']);
  equal(svg.querySelectorAll('.grid').length, 6);
});
test('the header has the model, the machine and the facts', () => {
  equal([$('model').textContent, document.title], ['tiny, batch 4 on test', 'tiny on test – Sentinel']);
  equal(texts($('facts'), 'span'), ['budget1.00 MiB', 'unlimited peak4.00 MiB',
                                    'ideal step1 ms', 'ops6', 'tensors5']);
});
test('the time axis is chosen', () => {
  $('axis').value = 'own';
  $('axis').dispatchEvent(new Event('change'));
  equal(axis, 'own');
});
