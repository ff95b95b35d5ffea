// On a comparison as the command wrote it.
test('the table has a row a policy, the best first, with figures', () => {
  const rows = [...document.querySelectorAll('#table tr')].slice(1);
  equal(rows.map(row => row.firstChild.textContent.trim()), ['sentinel', 'lru']);
  for (const row of rows) that(/s$/.test(row.children[1].textContent), row.textContent);
});
test('each has a timeline that is drawn', async () => {
  await drawn();
  const canvases = document.querySelectorAll('#strips canvas');
  equal(canvases.length, 2);
  for (const canvas of canvases) that(colours(canvas) > 5, colours(canvas) + ' colours');
});
test('there is no curve without a sweep', () => { equal(document.getElementById('curve'), null); });
