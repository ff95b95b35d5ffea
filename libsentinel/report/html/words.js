// What is told of a tensor or an op: the tooltip and the panel of the selected tensor.
const tip = $('tip');

function list(pairs) {
  const dl = el('dl');
  for (const [key, value] of pairs) { dl.append(el('dt', '', key), el('dd', '', value)); }
  return dl;
}
const plural = (n, word) => number(n) + ' ' + word + (n === 1 ? '' : 's');
const lifetimeWords = t => (T.flags[t] & 1) ? 'persistent'
    : lifeOf(t) === 1 ? 'short, layer ' + T.first[t]
    : lifeOf(t) + ' layers, ' + T.first[t] + ' to ' + T.last[t];
const layerWords = l => l + ' ' + L.name[l] + ', ' + PHASES[L.phase[l]];
function openingWords(t, layer) {
  const cell = cellAt(t, layer);
  if (!alive(t, layer) && !cell) return 'absent';
  if (!cell || !(cell.reads + cell.writes)) return untouched;
  const h = heat(t, cell.reads + cell.writes);
  return number(h) + ' ' + unitOf(h) + ' (' + plural(cell.reads, 'read') + ', ' +
         plural(cell.writes, 'write') + ')';
}
function tensorPairs(t) {
  const pairs = [['size', bytes(T.bytes[t])], ['kind', KINDS[T.kind[t]]],
                 ['lives', lifetimeWords(t)], ['hotness', number(T.hotness[t]) + ' ' + unitOf(T.hotness[t])],
                 ['reads', number(T.reads[t])], ['writes', number(T.writes[t])]];
  if (T.stride[t] > 1) pairs.push(['counted', 'one page in ' + T.stride[t]]);
  if (T.flags[t] & 2) pairs.push(['memory', 'foreign, never moved']);
  return pairs;
}
function showSelected() {
  const host = $('selected');
  host.replaceChildren();
  if (selected < 0) {
    host.append(el('p', 'sub', 'Click a cell or a table row to keep a tensor here.'));
    return;
  }
  host.append(el('div', 'name mono', T.name[selected]), list(tensorPairs(selected)));
  if (cursor) host.append(list([['in layer', layerWords(cursor.layer)],
                                ['there', openingWords(selected, cursor.layer)]]));
}
function select(t) {
  selected = t;
  showSelected();
  for (const table of tables) table.paint();
  refresh();
}

function place(p) {
  const plot = $('plot').getBoundingClientRect();
  tip.style.display = 'block';
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(0, p.x + 18 + w > plot.width ? p.x - w - 14 : p.x + 18) + 'px';
  tip.style.top = Math.max(0, Math.min(p.y + 16, plot.height - h)) + 'px';
}
function tellTensor(p, layer, at) {
  const t = rows[at.row];
  tip.replaceChildren(el('div', 'name mono', T.name[t]),
      list([['size', bytes(T.bytes[t]) + ', ' + KINDS[T.kind[t]]], ['lives', lifetimeWords(t)],
            ['layer', layerWords(layer)], ['there', openingWords(t, layer)],
            ['whole step', number(T.hotness[t]) + ' ' + unitOf(T.hotness[t])]]));
  if (at.more > 0)
    tip.append(el('div', 'more', 'the hottest of ' + (at.more + 1) + ' tensors here; zoom in for the rest'));
  place(p);
}
function tellOp(p, x) {
  if (!opCount) return;
  const i = indexAt(opEdges, opCount, x);
  tip.replaceChildren(el('div', 'name mono', 'op ' + i + ' ' + O.name[i]),
      list([['layer', layerWords(O.layer[i])], ['time', micros(O.us[i])],
            ['live', bytes(O.live[i])], ['hot', bytes(O.hot[i])], ['needs', bytes(O.need[i])]]));
  place(p);
}
