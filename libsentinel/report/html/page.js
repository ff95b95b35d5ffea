// The page around the chart: header, tiles, observations, filters, theme.
function fillHeader() {
  for (const [label, value] of D.facts) {
    if (label === 'model') {
      $('model').textContent = value;
      document.title = value + ' – Sentinel';
      continue;
    }
    const span = el('span', label === 'command' ? 'mono' : '', value);
    span.prepend(el('b', '', label));
    span.title = value;
    $('facts').append(span);
  }
  $('partial').textContent = D.partial;
  $('partial').hidden = !D.partial;
  for (const tile of D.tiles) {
    const node = el('div', 'tile');
    node.append(el('div', 'l', tile.label), el('div', 'v', tile.value), el('div', 'n', tile.note));
    $('tiles').append(node);
  }
}
function fillObservations() {
  for (const table of D.observations) {
    const card = el('div', 'card'), grid = el('table'), head = el('tr');
    const [kicker, title] = table.title.split(': ');
    card.append(el('div', 'sub', kicker), el('h2', '', title[0].toUpperCase() + title.slice(1)));
    for (const text of ['', 'this model', 'ResNet-32']) head.append(el('th', '', text));
    grid.append(head);
    for (const figure of table.figures) {
      const row = el('tr');
      const [label, value, detail, reference] = figure, cell = el('td', '', label);
      if (detail) cell.append(el('div', 'n', detail));
      row.append(cell, el('td', '', value), el('td', '', reference));
      grid.append(row);
    }
    if (table.figures.length) card.append(grid);
    if (table.note) card.append(el('p', 'note', table.note));
    $('observations').append(card);
  }
}
// The ends of the scale, and between them powers of ten, or 1, 2 and 5 times these, that have room.
function marksOf(low, high) {
  const marks = [low], whole = Math.log10(high / low), room = whole > 1.5 ? [1] : [1, 2, 5];
  for (let power = 10 ** Math.floor(Math.log10(low)); power < high; power *= 10)
    for (const h of room.map(f => f * power))
      if (Math.log10(h / marks[marks.length - 1]) > 0.15 * whole && Math.log10(high / h) > 0.15 * whole)
        marks.push(h);
  return [...marks, high];
}
function fillTicks() {
  $('scale').textContent = D.counted ? 'Accesses per page' : 'Ops that name it';
  $('subtitle').textContent = D.counted
      ? 'How often each page of a tensor is accessed, layer by layer; memory above.'
      : 'How many ops of a layer name a tensor, as accesses were not counted; memory above.';
  $('untouched').textContent = untouched;
  $('hot').textContent = 'hot tensors (over 100 ' + unit + ')';
  for (const h of marksOf(range.low, range.high)) {
    const tick = el('span', '', number(h));
    tick.style.left = share(h) * 100 + '%';
    $('ticks').append(tick);
  }
}
function filtered() {
  applyFilter();
  tensorTable.show(rows);
  $('shown').textContent = (rows.length === tensorCount ? 'All ' : number(rows.length) + ' of ') +
      number(tensorCount) + ' tensors; the filters of the heatmap apply. Select one to find it there.';
  redraw();
}
function fillChoices(host, names, chosen) {
  names.forEach((name, k) => {
    const label = el('label'), check = el('input');
    check.type = 'checkbox';
    check.checked = true;
    check.addEventListener('change', () => {
      if (check.checked) chosen.add(k); else chosen.delete(k);
      filtered();
    });
    label.append(check, name);
    host.append(label);
  });
}
function bind() {
  $('text').addEventListener('input', e => { filter.text = e.target.value; filtered(); });
  $('size').addEventListener('change', e => { filter.size = +e.target.value; filtered(); });
  $('order').addEventListener('change', e => {
    filter.order = e.target.value;
    filtered();
  });
  $('widths').addEventListener('change', e => { layOut(e.target.value === 'time'); redraw(); });
  $('in').addEventListener('click', () => zoomCursor(0.6));
  $('out').addEventListener('click', () => zoomCursor(1 / 0.6));
  $('reset').addEventListener('click', resetView);
  new ResizeObserver(redraw).observe($('plot'));
}

onTheme(() => { readPalette(); redraw(); });
fillHeader();
fillObservations();
fillTicks();
fillChoices($('kinds'), KINDS, filter.kinds);
fillChoices($('lives'), LIVES, filter.lives);
layOut(false);
showSelected();
tensorTable.sortBy(2);
layerTable.show(Array.from({length: layerCount}, (_, l) => l));
filtered();
bind();
if (D.open !== 'top') $(D.open).scrollIntoView();
})();
