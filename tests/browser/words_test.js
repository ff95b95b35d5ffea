const pairs = dl => texts(dl, 'dt').map((key, i) => [key, texts(dl, 'dd')[i]]);
test('pairs become a list', () => {
  const dl = list([['a', '<b>'], ['c', 'd']]);
  equal([dl.tagName, pairs(dl)], ['DL', [['a', '<b>'], ['c', 'd']]]);
});
test('lifetimes in words', () => {
  equal([0, 1, 2].map(lifetimeWords), ['persistent', '3 layers, 0 to 2', 'short, layer 1']);
});
test('layers in words', () => { equal(layerWords(2), '2 fc, backward'); });
test('accesses in words', () => {
  equal(openingWords(0, 0), '100 accesses per page (200 reads, 0 writes)');
  equal([openingWords(0, 1), openingWords(2, 3)], ['alive, not accessed', 'absent']);
});
test('what is told of a tensor', () => {
  equal(tensorPairs(1), [['size', '1.00 MiB'], ['kind', 'intermediate'],
                         ['lives', '3 layers, 0 to 2'], ['hotness', '3 accesses per page'],
                         ['reads', '512'], ['writes', '256']]);
  equal(tensorPairs(4).slice(6), [['counted', 'one page in 8'], ['memory', 'foreign, never moved']]);
});
test('one is not many', () => {
  equal([plural(1, 'read'), plural(0, 'write'), plural(1234, 'read')], ['1 read', '0 writes', '1,234 reads']);
});
test('the selected tensor has a panel', () => {
  select(-1);
  equal(texts($('selected'), 'p'), ['Click a cell or a table row to keep a tensor here.']);
  cursor = {row: 0, layer: 2};
  select(0);
  equal(texts($('selected'), '.name'), ['weight']);
  equal(pairs($('selected')).slice(-2),
        [['in layer', '2 fc, backward'], ['there', '50 accesses per page (100 reads, 0 writes)']]);
  equal(texts(tensorTable.root, '.on .mono'), ['weight']);
  cursor = null;
  select(-1);
});
test('the tooltip stays inside of the plot', () => {
  const plot = $('plot').getBoundingClientRect();
  tip.replaceChildren(el('div', '', 'text'));
  place({x: 10, y: 10});
  equal([tip.style.left, tip.style.top, tip.style.display], ['28px', '26px', 'block']);
  place({x: plot.width - 1, y: plot.height - 1});
  const box = tip.getBoundingClientRect();
  that(box.right <= plot.right && box.bottom <= plot.bottom + 1, 'it is cut off');
  place({x: -100, y: -100});
  equal([tip.style.left, tip.style.top], ['0px', '0px']);
});
test('the tooltip of a cell', () => {
  filtered();
  tellTensor({x: 0, y: 0}, 1, {row: 0, more: 2});
  equal(texts(tip, '.name'), ['activation']);
  equal(pairs(tip)[0], ['size', '1.00 MiB, intermediate']);
  equal(texts(tip, '.more'), ['the hottest of 3 tensors here; zoom in for the rest']);
  tellTensor({x: 0, y: 0}, 1, {row: 0, more: 0});
  equal(texts(tip, '.more'), []);
});
test('the tooltip of an op', () => {
  layOut(false);
  tellOp({x: 0, y: 0}, 0.6);
  equal(texts(tip, '.name'), ['op 3 dmatmul']);
  equal(pairs(tip), [['layer', '2 fc, backward'], ['time', '30 µs'], ['live', '1.02 MiB'],
                     ['hot', '8.00 KiB'], ['needs', '1.02 MiB']]);
});
