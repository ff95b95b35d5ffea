// On a report as the command wrote it: only what its reader sees.
test('the heatmap is drawn', async () => {
  await drawn();
  const canvas = document.getElementById('canvas');
  that(canvas.width > 500 && canvas.height > 200, canvas.width + ' by ' + canvas.height);
  that(colours(canvas) > 50, colours(canvas) + ' colours');
  that(colours(canvas, 220, 12, canvas.width - 240, 88) > 3, 'no memory curves');
});
test('the header, the tiles and the observations have figures', () => {
  that(document.getElementById('model').textContent.length > 3, 'no model');
  equal([document.querySelectorAll('.tile').length, texts(document, '.tile .v').includes('')],
        [6, false]);
  that(document.querySelectorAll('#observations td').length > 6, 'no observations');
});
test('both tables have rows, of which those in sight are there', () => {
  for (const id of ['tensor-table', 'layer-table']) {
    const table = document.querySelector('#' + id + ' .vt');
    that(+table.getAttribute('aria-rowcount') > 20, id + ' has no rows');
    const there = table.querySelectorAll('.body .row').length;
    that(there > 10 && there < 50, id + ' shows ' + there);
  }
});
test('the other theme has other colours', async () => {
  const canvas = document.getElementById('canvas'), before = canvas.toDataURL();
  document.getElementById('theme').click();
  await drawn();
  that(canvas.toDataURL() !== before, 'nothing changed');
});
test('the pointer tells of a tensor', () => {
  const canvas = document.getElementById('canvas'), r = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new MouseEvent('pointermove', {clientX: r.left + 300, clientY: r.top + 200}));
  equal(document.getElementById('tip').style.display, 'block');
  that(texts(document, '#tip dd').length >= 5, 'it says little');
});
