test('the header has the facts', () => {
  equal([$('model').textContent, document.title], ['tiny', 'tiny – Sentinel']);
  equal(texts($('facts'), 'span'), ['batch4', 'commandpython train.py']);
  equal([...$('facts').children].map(n => n.className), ['', 'mono']);
  equal($('partial').hidden, true);
});
test('tiles', () => {
  equal(texts($('tiles'), '.tile > div'), ['Step', '100 µs', 'a normal step']);
});
test('observations are tables', () => {
  const card = $('observations');
  equal([texts(card, '.sub'), texts(card, 'h2')], [['Observation 1'], ['Few pages are hot']]);
  equal(texts(card, 'td'), ['hot bytesof all', '1 %', '2 %']);
  equal(texts(card, '.note'), ['A note.']);
});
test('marks of the scale: its ends, and between them what has room', () => {
  equal(marksOf(1, 1000), [1, 10, 100, 1000]);
  equal(marksOf(0.9, 2.4), [0.9, 2, 2.4]);
  equal(marksOf(0.9, 2.1), [0.9, 2.1]);
  equal(marksOf(1, 8), [1, 2, 5, 8]);
});
test('the scale has its ends and the decades between', () => {
  equal([$('scale').textContent, texts($('ticks'), 'span')], ['Accesses per page', ['1', '10', '100']]);
  equal([...$('ticks').children].map(n => n.style.left), ['0%', '50%', '100%']);
});
test('a box less is a kind less, in the heatmap and the table', () => {
  equal(texts($('kinds'), 'label'), KINDS);
  $('kinds').querySelectorAll('input')[2].click();
  equal(rows, [1, 0, 3]);
  equal(tensorTable.items, [1, 3, 0]);  // by bytes
  that($('shown').textContent.startsWith('3 of 5 tensors'), $('shown').textContent);
  $('kinds').querySelectorAll('input')[2].click();
  that($('shown').textContent.startsWith('All 5 tensors'), $('shown').textContent);
});
test('a name filters as it is typed', () => {
  const type = text => { $('text').value = text; $('text').dispatchEvent(new Event('input')); };
  type('grad');
  equal(rows, [3]);
  type('');
  equal(rows.length, 5);
});
test('size, order and widths are chosen', () => {
  const choose = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event('change')); };
  choose('size', '65536');
  equal(rows, [1]);
  choose('size', '0');
  choose('order', 'hotness');
  equal(rows[0], 0);
  choose('order', 'first');
  choose('widths', 'time');
  near(edges[1], 0.3);
  choose('widths', 'equal');
  near(edges[1], 0.25);
});
test('buttons zoom', () => {
  resetView();
  $('in').click();
  that(view.x1 - view.x0 < 1, 'in does nothing');
  $('out').click();
  near(view.x1 - view.x0, 1);
  $('in').click();
  $('reset').click();
  equal(view, {x0: 0, x1: 1, y0: 0, y1: 5});
});
test('what the page says of counts goes with how they were made', () => {
  that($('subtitle').textContent.startsWith('How often each page'), $('subtitle').textContent);
  equal([$('untouched').textContent, $('hot').textContent],
        ['alive, not accessed', 'hot tensors (over 100 accesses per page)']);
});
