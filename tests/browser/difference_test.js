const cells = (id, row) => texts($(id).querySelectorAll('tr')[row], 'td');
test('changes in words, with their direction', () => {
  equal([changeOf(null, 1), changeOf(1, null), changeOf(2, 2)], [['new', ''], ['gone', ''], ['', '']]);
  equal([changeOf(100, 150), changeOf(200, 100), changeOf(0, 5)],
        [['+50.0 %', 'up'], ['−50.0 %', 'down'], ['from 0', 'up']]);
  equal([changeOf(100, 101.9), changeOf(100, 97)], [['+1.9 %', 'muted'], ['−3.0 %', 'down']]);
});
test('the header has the verdict and both files as texts', () => {
  equal($('verdict').textContent, 'The steps differ: <b>much</b>.');
  equal(texts($('files'), 'span'), ['beforea.sentinel', 'afterb <i>.sentinel']);
  equal($('verdict').querySelectorAll('b').length, 0);
});
test('a tile a figure', () => {
  equal(texts($('tiles'), '.v'), ['1.50 ms', '6']);
  equal(texts($('tiles'), '.n'), ['+50.0 %, was 1.00 ms', 'as before']);
});
test('facts beside one another', () => {
  equal([cells('facts', 1), cells('facts', 2)], [['batch', '32', '64'], ['command', '–', 'train.py <b>']]);
});
test('tensors: sizes, change, accesses', () => {
  equal(cells('tensors', 1),
        ['conv <b>:0', 'intermediate', '', '1.00 MiB', '2.00 MiB', '+100.0 %', '10 → 20']);
  equal(cells('tensors', 2).slice(3), ['–', '4.00 KiB', 'new', '– → 0']);
  equal(cells('tensors', 3).slice(3), ['4.00 KiB', '–', 'gone', '3 → –']);
});
test('where accesses are not comparable there is no column of them', () => {
  equal(texts(rowOf(['a', 'forward', 1, 2, 3, 4], micros, null, 2), 'td').length, 6);
  equal($('note').hidden, true);
});
test('bars are shares of the largest value', () => {
  const widths = [...$('tensors').querySelectorAll('tr')[1].querySelectorAll('.bars i')].map(i => i.style.width);
  equal(widths, ['50%', '100%']);
  equal([...barsOf(['x', '', 0, 0], 0).children].map(i => i.style.width), ['0%', '0%']);
});
test('a table without rows is not shown', () => {
  equal([$('layers'), document.querySelectorAll('nav a').length], [null, 2]);
});
test('long tables show their first rows until all are asked for', () => {
  const host = el('section'), box = el('div', 'diff');
  host.id = 'ops2';
  host.append(box);
  document.body.append(host);
  const many = Array.from({length: FIRST + 5}, (_, i) => ['op' + i, 'forward', i, i + 1, 1, 1]);
  fillTable('ops2', many, ['op'], micros, number);
  equal(box.querySelectorAll('tr').length, FIRST + 1);
  box.querySelector('button').click();
  equal([box.querySelectorAll('tr').length, box.querySelector('button')], [FIRST + 6, null]);
  host.remove();
});
test('a row of the table', () => {
  const row = rowOf(['a', 'forward', 1, 1, 2, 2], micros, number, 1);
  equal(texts(row, 'td'), ['a', 'forward', '', '1 µs', '1 µs', '', '2']);
});
