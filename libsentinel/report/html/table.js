// Sortable tables that keep only the rows in sight in the document.
const tables = [];
const ROW = 30, HEAD = 36;

// columns: {label, title, width, num, text(i), node(i), key(i)}; onPick(i); isOn(i).
class VirtualTable {
  constructor(host, label, columns, onPick, isOn) {
    Object.assign(this, {columns, onPick, isOn, items: [], sort: -1, down: true});
    this.root = el('div', 'vt');
    this.root.setAttribute('role', 'table');
    this.root.setAttribute('aria-label', label);
    this.root.tabIndex = 0;
    this.root.style.setProperty('--cols', columns.map(c => c.width).join(' '));
    const least = columns.reduce((sum, c) => sum + parseInt((c.width.match(/\d+(?=px)/) || [0])[0]), 0);
    this.root.style.setProperty('--min', least + 14 * (columns.length - 1) + 24 + 'px');
    this.body = el('div', 'body');
    this.body.setAttribute('role', 'rowgroup');
    this.root.append(this.head(), this.body);
    this.root.addEventListener('scroll', () => this.paint());
    host.append(this.root);
    tables.push(this);
  }
  head() {
    const row = el('div', 'row head');
    row.setAttribute('role', 'row');
    this.heads = this.columns.map((column, i) => {
      const cell = el('div', column.num ? 'num' : '');
      const button = el('button', '', column.label);
      button.type = 'button';
      if (column.title) button.title = column.title;
      cell.setAttribute('role', 'columnheader');
      button.addEventListener('click', () => this.sortBy(i));
      cell.append(button);
      row.append(cell);
      return cell;
    });
    return row;
  }
  sortBy(i) {
    this.down = this.sort === i ? !this.down : !!this.columns[i].num;
    this.sort = i;
    this.show(this.items);
  }
  show(items) {
    this.items = items.slice();
    const column = this.columns[this.sort];
    if (column) {
      const sign = this.down ? -1 : 1;
      this.items.sort((a, b) => {
        const x = column.key(a), y = column.key(b);
        return sign * (typeof x === 'string' ? x.localeCompare(y) : x - y);
      });
    }
    this.heads.forEach((head, i) => {
      const on = i === this.sort;
      head.setAttribute('aria-sort', !on ? 'none' : this.down ? 'descending' : 'ascending');
      head.firstChild.textContent = this.columns[i].label + (!on ? '' : this.down ? ' ↓' : ' ↑');
    });
    this.root.setAttribute('aria-rowcount', this.items.length + 1);
    this.root.style.height = Math.min(520, HEAD + 4 + ROW * Math.max(1, this.items.length)) + 'px';
    this.body.style.height = ROW * this.items.length + 'px';
    this.paint();
  }
  paint() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - 4);
    const end = Math.min(this.items.length, first + Math.ceil(520 / ROW) + 10);
    const rows = [];
    for (let i = first; i < end; i++) rows.push(this.rowOf(i));
    this.body.replaceChildren(...rows);
  }
  rowOf(i) {
    const item = this.items[i], row = el('div', this.isOn(item) ? 'row on' : 'row');
    row.setAttribute('role', 'row');
    row.setAttribute('aria-rowindex', i + 2);
    row.style.top = i * ROW + 'px';
    for (const column of this.columns) {
      const cell = el('div', (column.num ? 'cell num' : 'cell') + (column.mono ? ' mono' : ''));
      cell.setAttribute('role', 'cell');
      if (column.node) cell.append(column.node(item));
      else { cell.textContent = column.text(item); cell.title = cell.textContent; }
      row.append(cell);
    }
    row.addEventListener('click', () => this.onPick(item));
    return row;
  }
}

function lifeBar(t) {
  const bar = el('div', 'life'), span = el('i');
  const n = Math.max(1, layerCount);
  span.style.left = T.first[t] / n * 100 + '%';
  span.style.width = lifeOf(t) / n * 100 + '%';
  bar.append(span);
  bar.title = lifetimeWords(t);
  return bar;
}
function pickTensor(t) {
  const row = rows.indexOf(t);
  if (row >= 0) {
    cursor = null;
    const tall = view.y1 - view.y0 > 60;
    if (tall) { view.y0 = row - 20; view.y1 = row + 21; }
    reveal(row, T.first[t]);
  }
  select(t);
  redraw();
}
const tensorTable = new VirtualTable($('tensor-table'), 'Tensors', [
  {label: 'Tensor', width: 'minmax(220px,3fr)', mono: true, text: t => T.name[t],
   key: t => T.name[t]},
  {label: 'Kind', width: '104px', node: t => el('span', 'chip', KINDS[T.kind[t]]),
   key: t => T.kind[t]},
  {label: 'Bytes', width: '92px', num: true, text: t => bytes(T.bytes[t]), key: t => T.bytes[t]},
  {label: 'Lifetime', width: 'minmax(110px,1.4fr)', node: lifeBar, key: t => T.first[t]},
  {label: 'Layers', width: '70px', num: true, text: t => number(lifeOf(t)), key: lifeOf},
  {label: 'Reads', width: '92px', num: true,
   title: D.counted ? 'Accesses of all pages that read'
                    : 'Ops that read it',
   text: t => number(T.reads[t]), key: t => T.reads[t]},
  {label: 'Writes', width: '92px', num: true,
   title: D.counted ? 'Accesses of all pages that write'
                    : 'Ops that write it',
   text: t => number(T.writes[t]),
   key: t => T.writes[t]},
  {label: D.counted ? 'Accesses per page' : 'Ops that name it', width: '136px', num: true,
   title: D.counted ? 'Accesses of the whole step, over the pages of the tensor'
                    : 'Ops of the step that name the tensor',
   text: t => number(T.hotness[t]),
   key: t => T.hotness[t]},
], pickTensor, t => t === selected);

const opsOf = new Array(layerCount).fill(0);
for (const l of O.layer) opsOf[l]++;
const layerTable = new VirtualTable($('layer-table'), 'Layers', [
  {label: '#', width: '48px', num: true, text: l => String(l), key: l => l},
  {label: 'Layer', width: 'minmax(220px,3fr)', mono: true, text: l => L.name[l],
   key: l => L.name[l]},
  {label: 'Phase', width: '104px', node: l => el('span', 'chip', PHASES[L.phase[l]]),
   key: l => L.phase[l]},
  {label: 'Ops', width: '60px', num: true, text: l => number(opsOf[l]), key: l => opsOf[l]},
  {label: 'Time', width: '92px', num: true, text: l => micros(L.us[l]), key: l => L.us[l]},
  {label: 'Peak live', width: '92px', num: true, text: l => bytes(L.live[l]), key: l => L.live[l]},
  {label: 'Tensors', width: '76px', num: true, text: l => number(L.tensors[l]),
   key: l => L.tensors[l]},
  {label: 'Bytes touched', width: '104px', num: true,
   title: 'Bytes of the tensors that the layer accesses',
   text: l => bytes(L.touched[l]),
   key: l => L.touched[l]},
  {label: D.counted ? 'Accesses' : 'Uses', width: '100px', num: true,
   title: D.counted ? 'Accesses of pages, reads and writes, in the layer'
                    : 'How often an op of the layer names a tensor',
   text: l => number(L.reads[l] + L.writes[l]),
   key: l => L.reads[l] + L.writes[l]},
], l => {
  const mid = (edges[l] + edges[l + 1]) / 2, half = Math.max(8 / layerCount, 2 * (edges[l + 1] - edges[l]));
  view.x0 = mid - half;
  view.x1 = mid + half;
  clampView();
  redraw();
  $('heatmap').scrollIntoView();
}, () => false);
