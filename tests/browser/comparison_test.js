const cells = row => texts($('table').querySelectorAll('tr')[row], 'td');
test('what was moved is the sum over all ways', () => { equal(moved(D.rows[2].result), 4 << 20); });
test('the table has a row a policy', () => {
  equal(texts($('table'), 'th'), ['policy', ...COLUMNS.map(([name]) => name)]);
  equal(cells(3), ['lru ', '2 ms', '50.0 %', '80.0 %', '62.5 %', '1 ms', '0 µs', '4.00 MiB', '1.00 MiB',
                   '20,000', '<1 µs']);
  equal(cells(4)[0], 'sentinel no copies');
  equal(cells(2)[4], '–');
});
test('moved bytes tell of their ways', () => {
  equal($('table').querySelectorAll('tr')[3].children[7].title,
        'ssd to fast: 3.00 MiB\nfast to ssd: 1.00 MiB');
});
test('a reason is a text', () => {
  equal(cells(5), ['g10 ', 'not feasible: too few <b>bytes</b>']);
  equal($('table').querySelector('.why').colSpan, COLUMNS.length);
  equal($('table').querySelectorAll('b').length, 0);
});
test('the header has the model, the machine and the facts', () => {
  equal([$('model').textContent, document.title], ['tiny, batch 4 on test', 'tiny on test – Sentinel']);
  equal(texts($('facts'), 'span'), ['budgets1.00–2.00 MiB', 'unlimited peak4.00 MiB',
                                    'ideal step1 ms', 'ops6', 'tensors5']);
});
test('one budget, or the least and the most of a sweep of them', () => {
  const [swept, first] = [D.swept, D.rows[0].fast_bytes];
  equal(budgetWords(), ['budgets', '1.00–2.00 MiB']);
  D.rows[0].fast_bytes = 2 ** 31;
  equal(budgetWords(), ['budgets', '1.00 MiB–2.00 GiB']);
  D.swept = 'host';
  equal(budgetWords(), ['budget', '1.00 MiB']);
  [D.swept, D.rows[0].fast_bytes] = [swept, first];
});
test('less than a microsecond is told as that', () => { equal([0, 0.4, 1, 30].map(brief), ['<1 µs', '<1 µs', '1 µs', '30 µs']); });
test('a bound is a share of the ideal', () => { equal([ratioOf(2000), ratioOf(0)], [0.5, null]); });
test('the time axis is chosen', () => {
  $('axis').value = 'own';
  $('axis').dispatchEvent(new Event('change'));
  equal(axis, 'own');
});
