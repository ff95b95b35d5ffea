// Two profiles beside one another: tiles, facts, and a table each of tensors, ops and layers.
const FIRST = 100;  // rows of a table, before more are asked for
const SMALL = 2;  // percent, of a change that times differ by anyway
const NAME = 0, DETAIL = 1, BEFORE = 2, AFTER = 3, OTHER_BEFORE = 4, OTHER_AFTER = 5;
const shown = (format, value) => value === null ? '–' : format(value);
function changeOf(before, after) {
  if (before === null) return ['new', ''];
  if (after === null) return ['gone', ''];
  if (before === after) return ['', ''];
  const by = before ? (after - before) / before * 100 : Infinity;
  const text = isFinite(by) ? (by > 0 ? '+' : '−') + Math.abs(by).toFixed(1) + ' %' : 'from 0';
  return [text, Math.abs(by) < SMALL ? 'muted' : after > before ? 'up' : 'down'];
}
function barsOf(row, most) {
  const bars = el('div', 'bars');
  for (const [name, value] of [['before', row[BEFORE]], ['after', row[AFTER]]]) {
    const bar = el('i', name);
    bar.style.width = (most > 0 ? (value || 0) / most * 100 : 0) + '%';
    bars.append(bar);
  }
  return bars;
}
// `other`: the format of the second figure; null: there is none.
function rowOf(row, format, other, most) {
  const line = el('tr'), name = el('td', 'mono', row[NAME]);
  name.title = row[NAME];
  const [text, cls] = changeOf(row[BEFORE], row[AFTER]);
  const bars = el('td');
  bars.append(barsOf(row, most));
  const [a, b] = other ? [shown(other, row[OTHER_BEFORE]), shown(other, row[OTHER_AFTER])] : [];
  line.append(
      name, el('td', 'muted', row[DETAIL]), bars, el('td', '', shown(format, row[BEFORE])),
      el('td', '', shown(format, row[AFTER])), el('td', cls, text));
  if (other) line.append(el('td', 'muted', a === b ? a : a + ' → ' + b));
  return line;
}
function fillTable(id, rows, labels, format, other) {
  if (!rows.length) {
    $(id).remove();
    document.querySelector('nav a[href="#' + id + '"]').remove();
    return;
  }
  const host = $(id).querySelector('.diff'), table = el('table'), head = el('tr');
  head.append(...labels.map(label => el('th', '', label)));
  table.append(head);
  const most = Math.max(...rows.map(row => Math.max(row[BEFORE] || 0, row[AFTER] || 0)));
  const add = list => table.append(...list.map(row => rowOf(row, format, other, most)));
  add(rows.slice(0, FIRST));
  host.append(table);
  if (rows.length <= FIRST) return;
  const more = el('button', 'more', 'Show all ' + number(rows.length));
  more.type = 'button';
  more.addEventListener('click', () => {
    add(rows.slice(FIRST));
    more.remove();
  });
  host.append(more);
}
function fillHeader() {
  $('verdict').textContent = D.verdict;
  $('note').textContent = D.note;
  $('note').hidden = !D.note;
  document.title = D.before + ' and ' + D.after + ' – Sentinel';
  for (const [label, value] of [['before', D.before], ['after', D.after]]) {
    const span = el('span', 'mono', value);
    span.prepend(el('b', '', label));
    $('files').append(span);
  }
  for (const figure of D.figures) {
    const tile = el('div', 'tile');
    const note = figure.change ? figure.change + ', was ' + figure.before : 'as before';
    tile.append(el('div', 'l', figure.label), el('div', 'v', figure.after), el('div', 'n', note));
    $('tiles').append(tile);
  }
}
function fillFacts() {
  if (!D.facts.length) return $('facts-card').remove();
  const table = el('table'), head = el('tr');
  head.append(...['', 'before', 'after'].map(text => el('th', '', text)));
  table.append(head);
  for (const [label, before, after] of D.facts) {
    const line = el('tr');
    line.append(el('td', '', label), el('td', '', before || '–'), el('td', '', after || '–'));
    table.append(line);
  }
  $('facts').append(table);
}
fillHeader();
fillFacts();
fillTable(
    'tensors', D.tensors,
    ['tensor', 'kind', '', 'before', 'after', 'change', ...(D.comparable ? [D.counted ? 'accesses' : 'uses'] : [])],
    bytes, D.comparable ? number : null);
fillTable(
    'ops', D.ops, ['op', 'phase', '', 'before', 'after', 'change', 'calls'], micros, number);
fillTable(
    'layers', D.layers, ['layer', 'phase', '', 'before', 'after', 'change', 'peak live'],
    micros, bytes);
onTheme(() => {});
})();
