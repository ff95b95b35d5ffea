test('a part of a page is a page', () => { equal([0, 2, 3, 4].map(pages), [2, 1, 4, 1]); });
test('heat is accesses per page', () => {
  equal([heat(0, 200), heat(2, 20)], [100, 20]);
  equal(unit, 'accesses per page');
});
test('the range is that of the cells', () => {
  equal(range, {low: 1, high: 100});
  equal([0.1, 1, 1000].map(share), [0, 0, 1]);
  near(share(10), 0.5);
  equal([1, 1.0001, 2].map(unitOf), ['access per page', 'access per page', 'accesses per page']);
  equal(untouched, 'alive, not accessed');
});
test('levels go with the logarithm', () => {
  equal(levels.map(l => [...l]), [[255, 217, 2], [2, 2, 2], [167], [2, 2], []]);
});
test('a cell is found by its layer', () => {
  equal(cellAt(0, 2), {reads: 100, writes: 0, level: 217});
  equal([cellAt(0, 1), cellAt(4, 3)], [null, null]);
});
test('alive from the first layer to the last', () => {
  equal([0, 1, 2, 3].map(l => alive(3, l)), [false, false, true, true]);
});
test('the palette goes from the ramp\'s first colour to its last', () => {
  readPalette();
  const stops = css('--ramp').split(',').map(s => rgb(s.trim()));
  const parts = c => [c & 255, c >>> 8 & 255, c >>> 16 & 255, c >>> 24];
  equal(parts(palette.packed[2]), [...stops[0], 255]);
  equal(parts(palette.packed[255]), [...stops[stops.length - 1], 255]);
  equal(parts(palette.packed[1]), [...rgb(css('--alive')), 255]);
  equal(palette.packed[0], 0);
  equal([palette.ink, palette.accent], [css('--ink'), css('--accent')]);
});
