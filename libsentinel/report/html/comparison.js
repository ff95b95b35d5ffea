// The table of policies, and the page around it.
const moved = r => r.moved.reduce((sum, m) => sum + m.bytes, 0);
const ratioOf = us => D.ideal_us && us ? D.ideal_us / us : null;
const brief = us => us < 1 ? '<1 µs' : micros(us);
const COLUMNS = [
  ['step', r => micros(r.step_us)],
  ['throughput', r => percents(r.throughput)],
  ['bound', r => percents(ratioOf(r.bound_us))],
  ['bound, swapping', r => percents(ratioOf(r.swap_bound_us))],
  ['stalled', r => r.stall_us ? brief(r.stall_us) : '0 µs'],
  ['recomputed', r => r.recompute_us ? brief(r.recompute_us) : '0 µs'],
  ['moved', r => bytes(moved(r))],
  ['peak fast', r => bytes(r.peak)],
  ['faults', r => number(r.faults)],
  ['planning', r => brief(r.plan_us)]];

function fillTable() {
  const table = el('table'), head = el('tr');
  head.append(el('th', '', 'policy'), ...COLUMNS.map(([name]) => el('th', '', name)));
  table.append(head);
  for (const row of D.rows) {
    const line = el('tr'), name = el('td', '', row.policy + ' ');
    name.append(el('span', '', row.variant));
    line.append(name);
    if (row.result) {
      for (const [, show] of COLUMNS) line.append(el('td', '', show(row.result)));
      line.children[7].title = row.result.moved
          .map(m => m.from + ' to ' + m.to + ': ' + bytes(m.bytes)).join('\n');
    } else {
      const why = el('td', 'why', 'not feasible: ' + row.reason);
      why.colSpan = COLUMNS.length;
      line.append(why);
    }
    table.append(line);
  }
  $('table').append(table);
}

// The budget, or the least and the most of a sweep's.
function budgetWords() {
  if (D.swept !== 'fast') return ['budget', bytes(D.fast_bytes)];
  const all = D.rows.map(r => r.fast_bytes), least = bytes(Math.min(...all)), most = bytes(Math.max(...all));
  if (least === most) return ['budget', most];
  const [number, unit] = least.split(' ');
  return ['budgets', (most.endsWith(' ' + unit) ? number : least) + '–' + most];
}
function fillHeader() {
  $('model').textContent = D.model + (D.batch ? ', batch ' + D.batch : '') + ' on ' + D.machine;
  document.title = D.model + ' on ' + D.machine + ' – Sentinel';
  const facts = [budgetWords(), ['unlimited peak', bytes(D.peak_bytes)],
                 ['ideal step', micros(D.ideal_us)], ['ops', number(D.ops)],
                 ['tensors', number(D.tensors)], ['machine', D.source]];
  for (const [label, value] of facts) {
    if (!value) continue;
    const span = el('span', '', value);
    span.prepend(el('b', '', label));
    span.title = value;
    $('facts').append(span);
  }
}
fillHeader();
fillTable();
fillCurve();
if (strips.length) {
  strips.forEach(addStrip);
  $('axis').addEventListener('change', e => { axis = e.target.value; drawStrips(); });
  new ResizeObserver(drawStrips).observe($('strips'));
} else {
  $('timelines').remove();
  $('to-timelines').remove();
}
onTheme(drawStrips);
})();
