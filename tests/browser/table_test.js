const numbers = (count, more = {}) => {
  const table = new VirtualTable(document.body, 'Numbers', [
    {label: 'name', width: '1fr', text: i => 'n' + i, key: i => 'n' + i},
    {label: 'square', width: '1fr', num: true, mono: true, text: i => String(i * i), key: i => i * i},
  ], more.onPick || (() => {}), more.isOn || (() => false));
  table.show(Array.from({length: count}, (_, i) => i));
  return table;
};
const names = table => texts(table.body, '.row').map(text => text);
test('items are rows with their cells', () => {
  const table = numbers(3);
  equal(names(table), ['n00', 'n11', 'n24']);
  const row = table.body.children[2];
  equal([row.style.top, row.getAttribute('aria-rowindex')], [2 * ROW + 'px', '4']);
  equal([...row.children].map(c => c.className), ['cell', 'cell num mono']);
  equal([table.root.getAttribute('aria-label'), table.root.getAttribute('aria-rowcount')],
        ['Numbers', '4']);
  table.root.remove();
});
test('only the rows in sight are in the document', () => {
  const table = numbers(10000);
  that(table.body.children.length < 40, table.body.children.length + ' rows');
  equal([table.body.style.height, table.root.style.height], [10000 * ROW + 'px', '520px']);
  table.root.scrollTop = 5000 * ROW;
  table.paint();
  that(names(table).includes('n5000' + 5000 ** 2), 'the scrolled row is not there');
  that(!names(table).includes('n00'), 'the first row still is');
  table.root.remove();
});
test('a column sorts up and down, numbers first down', () => {
  const table = numbers(3), [name, square] = table.heads;
  square.firstChild.click();
  equal([names(table), square.getAttribute('aria-sort')], [['n24', 'n11', 'n00'], 'descending']);
  square.firstChild.click();
  equal([names(table)[0], square.textContent], ['n00', 'square ↑']);
  name.firstChild.click();
  equal([names(table)[0], name.textContent, square.textContent], ['n00', 'name ↑', 'square']);
  equal(square.getAttribute('aria-sort'), 'none');
  table.root.remove();
});
test('a click picks, and a row may be on', () => {
  const picked = [];
  const table = numbers(3, {onPick: i => picked.push(i), isOn: i => i === 1});
  table.body.children[2].click();
  equal([picked, texts(table.root, '.on')], [[2], ['n11']]);
  table.root.remove();
});
test('what is shown is not the caller\'s list', () => {
  const table = numbers(0), items = [3, 1, 2];
  table.sortBy(1);
  table.show(items);
  equal([items, names(table)], [[3, 1, 2], ['n39', 'n24', 'n11']]);
  table.root.remove();
});
test('a table is as wide as its columns at least', () => {
  const row = tensorTable.root.querySelector('.head'), last = row.lastChild.getBoundingClientRect();
  tensorTable.root.style.width = '300px';
  that(row.lastChild.getBoundingClientRect().right <= row.getBoundingClientRect().right, 'the last column is cut');
  that(row.getBoundingClientRect().width > 900, row.getBoundingClientRect().width + ' px');
  tensorTable.root.style.width = '';
  equal(row.lastChild.getBoundingClientRect().width, last.width);
});
test('a column may say what it is', () => {
  const head = label => tensorTable.heads.find(h => h.textContent.startsWith(label)).firstChild;
  that(head('Accesses per page').title.includes('pages of the tensor'), head('Accesses per page').title);
  equal(head('Kind').title, '');
});
test('a lifetime is a bar over the layers', () => {
  const bar = lifeBar(3);
  equal([bar.firstChild.style.left, bar.firstChild.style.width, bar.title],
        ['50%', '50%', '2 layers, 2 to 3']);
});
test('tensors and layers have tables', () => {
  filtered();
  equal(texts(tensorTable.body, '.row')[2],  // by bytes
       
        'weight' + 'global' + '8.00 KiB' + '4' + '300' + '2' + '151');
  equal(texts(layerTable.body, '.row')[2],
        '2' + 'fc' + 'backward' + '2' + '40 µs' + '1.02 MiB' + '3' + '1.02 MiB' + '360');
});
test('a picked tensor is selected and revealed', () => {
  filtered();
  view = {x0: 0, x1: 0.75, y0: 0, y1: 4};
  pickTensor(4);
  equal([selected, cursor], [4, null]);
  that(view.y1 >= 5 && view.x1 >= 1, 'it is out of sight');
  select(-1);
});
test('a picked layer is zoomed to', () => {
  resetView();
  $('heatmap').scrollIntoView = () => {};
  layerTable.body.children[3].click();
  that(view.x1 >= edges[4] && view.x0 <= edges[3], 'it is out of sight');
  resetView();
});
