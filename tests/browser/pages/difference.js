// On a difference as the command wrote it.
test('it says whether the steps are one', () => {
  that(/^The steps differ: /.test(document.getElementById('verdict').textContent),
       document.getElementById('verdict').textContent);
});
test('the tiles and the tables have figures', () => {
  that(document.querySelectorAll('.tile').length > 5, 'few tiles');
  for (const id of ['tensors', 'ops', 'layers'])
    that(document.querySelectorAll('#' + id + ' tr').length > 5, id + ' has no rows');
});
test('nothing is wider than the page', () => {
  that(document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollWidth);
});
