const fresh = () => {
  Object.assign(filter, {text: '', kinds: new Set([0, 1, 2]), lives: new Set([0, 1, 2]), size: 0,
                         order: 'first'});
  applyFilter();
  layOut(false);
  Object.assign(view, {x0: 0, x1: 1});
};
test('lifetimes: short, long, persistent', () => {
  equal([0, 1, 2, 3].map(lifeOf), [4, 3, 1, 2]);
  equal([0, 1, 2, 3].map(lifeKind), [2, 1, 0, 1]);
});
test('without a filter all tensors are rows, by their first use', () => {
  fresh();
  equal(rows, [1, 0, 2, 3, 4]);
  equal([view.y0, view.y1, cursor], [0, 5, null]);
});
test('rows are filtered by name, kind, lifetime and size', () => {
  const rowsWith = change => { fresh(); Object.assign(filter, change); applyFilter(); return rows; };
  equal(rowsWith({text: ' ACT '}), [1]);
  equal(rowsWith({kinds: new Set([2])}), [2, 4]);
  equal(rowsWith({lives: new Set([2])}), [0]);
  equal(rowsWith({size: 8192}), [1, 0, 3]);
  equal(rowsWith({text: 'no such'}), []);
  equal(view.y1, 1);
});
test('rows are ordered', () => {
  const rowsBy = order => { fresh(); filter.order = order; applyFilter(); return rows; };
  equal(rowsBy('hotness'), [0, 2, 1, 3, 4]);
  equal(rowsBy('bytes'), [1, 3, 0, 2, 4]);
  equal(rowsBy('life'), [0, 1, 3, 2, 4]);
});
test('equal columns', () => {
  layOut(false);
  equal(edges, [0, 0.25, 0.5, 0.75, 1]);
  equal(opEdges, [0, 0.125, 0.25, 0.5, 0.625, 0.75, 1]);
});
test('columns as wide as their time', () => {
  layOut(true);
  [0, 0.3, 0.4, 0.8, 1].forEach((x, l) => near(edges[l], x));
  [0, 0.1, 0.3, 0.4, 0.7, 0.8, 1].forEach((x, i) => near(opEdges[i], x));
});
test('no column is thinner than a sixth of the mean', () => {
  const us = L.us;
  L.us = [30, 0, 50, 20];
  layOut(true);
  L.us = us;
  near(edges[2] - edges[1], 1 / 24 / (1 + 1 / 24));
  near(edges[4], 1);
});
test('the index at a place', () => {
  equal([-1, 0, 0.3, 0.5, 7].map(x => indexAt([0, 0.25, 0.5, 0.75], 4, x)), [0, 0, 1, 2, 3]);
});
test('the view shows at least three layers and four rows, all inside', () => {
  fresh();
  view = {x0: -0.2, x1: 0.3, y0: 4, y1: 5};
  clampView();
  equal(view, {x0: 0, x1: 0.75, y0: 1, y1: 5});
});
test('zoom keeps the point where it is, and reset shows all', () => {
  fresh();
  zoom(0.5, 0, 0.8, 0.8);
  [0.1, 0.9].forEach((x, i) => near([view.x0, view.x1][i], x));
  equal([view.y0, view.y1], [0, 4]);
  resetView();
  equal(view, {x0: 0, x1: 1, y0: 0, y1: 5});
});
test('what is revealed is in sight', () => {
  fresh();
  view = {x0: 0, x1: 0.75, y0: 0, y1: 4};
  reveal(4, 3);
  that(view.y1 >= 5 && view.x1 >= edges[4], 'row 4 or layer 3 is out of sight');
  const before = {...view};
  reveal(3, 2);
  equal(view, before);
});
