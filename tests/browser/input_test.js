const shown = () => {
  [cursor, drag, selected] = [null, null, -1];
  filtered();
  layOut(false);
  resetView();
  draw();
};
const at = (x, row) => ({x: xOf(x), y: yOf(row)});
const send = (type, p, more = {}) => {
  const r = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new (type === 'wheel' ? WheelEvent : MouseEvent)(
      type, {clientX: r.left + p.x, clientY: r.top + p.y, cancelable: true, ...more}));
};
const key = (name, more = {}) =>
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key: name, cancelable: true, ...more}));
test('a place in the canvas', () => {
  const r = canvas.getBoundingClientRect();
  equal(point({clientX: r.left + 3, clientY: r.top + 4}), {x: 3, y: 4});
  shown();
  equal([inside(at(0, 0)), inside({y: box.top - 1}), inside(at(0, 5))], [true, false, false]);
});
test('the row at a place', () => {
  shown();
  equal([0.5, 1.5, 4.5].map(row => rowAt(yOf(row), 0)),
        [0, 1, 4].map(row => ({row, more: 0})));
});
test('of the rows on one pixel it is the hottest in that layer', () => {
  shown();
  const height = box.height;
  box.height = 1;
  equal([0, 1, 3].map(layer => rowAt(box.top, layer)),
        [{row: 1, more: 4}, {row: 2, more: 4}, {row: 1, more: 4}]);
  box.height = height;
});
test('the pointer tells of a cell', () => {
  shown();
  hover(at(0.3, 2.5));
  equal(cursor, {row: 2, layer: 1});
  equal([tip.style.display, texts(tip, '.name')[0]], ['block', 'scratch']);
});
test('above the heatmap it tells of an op', () => {
  shown();
  hover({x: xOf(0.6), y: box.memoryTop + 1});
  equal([cursor, texts(tip, '.name')[0]], [{row: -1, layer: 2}, 'op 3 dmatmul']);
});
test('outside of both of nothing', () => {
  shown();
  for (const p of [{x: 1, y: yOf(1)}, {x: xOf(0.5), y: 1}, {x: xOf(0.5), y: yOf(5) + 3}]) {
    hover(at(0.3, 2.5));
    hover(p);
    equal([cursor, tip.style.display], [null, 'none']);
  }
});
test('a click selects', () => {
  shown();
  hover(at(0.3, 1.5));
  drag = {...at(0.3, 1.5), moved: false};
  endDrag();
  equal([selected, drag], [0, null]);
});
test('a drag zooms to what it covers', () => {
  shown();
  const from = at(1, 5), to = at(0.25, 1);
  drag = {x: from.x, y: from.y, toX: to.x, toY: to.y, moved: true};
  endDrag();
  near(view.x0, 0.25);
  [view.x1, view.y0, view.y1].forEach((v, i) => near(v, [1, 1, 5][i]));
});
test('a drag over the curves leaves the rows as they are', () => {
  shown();
  drag = {x: xOf(0.25), y: box.memoryTop, toX: xOf(1), toY: yOf(3), moved: true};
  endDrag();
  near(view.x0, 0.25);
  equal([view.y0, view.y1], [0, 5]);
});
test('the pointer drags from six pixels on', () => {
  shown();
  canvas.setPointerCapture = () => {};
  send('pointerdown', at(0.5, 2), {button: 0});
  send('pointermove', {x: xOf(0.5) + 2, y: yOf(2)});
  equal(drag.moved, false);
  send('pointermove', {x: xOf(0.5) + 9, y: yOf(2)});
  equal(drag.moved, true);
  send('pointercancel', at(0.5, 2));
  equal(drag, null);
});
test('the wheel zooms with Ctrl and scrolls what is zoomed', () => {
  shown();
  send('wheel', at(0, 0), {deltaY: -20, ctrlKey: true});
  near(view.x1, Math.exp(-0.1));
  near(view.x0, 0);
  const x1 = view.x1;
  send('wheel', at(0, 0), {deltaX: 10});
  near(view.x0, 10 / box.width * x1);
  send('wheel', at(0, 0), {deltaX: -1000});
  near(view.x0, 0);
});
test('keys move the cursor, zoom, select and leave', () => {
  shown();
  key('ArrowDown');
  equal(cursor, {row: 1, layer: 0});
  key('ArrowRight');
  equal(cursor, {row: 1, layer: 1});
  equal($('spoken').textContent,
        'weight, 8.00 KiB, layer 1 fc, forward: alive, not accessed');
  key('ArrowDown', {shiftKey: true});
  equal(cursor, {row: 4, layer: 1});
  key('Enter');
  equal(selected, 4);
  key('+');
  that(view.x1 - view.x0 < 1, 'it did not zoom');
  key('0');
  equal(view, {x0: 0, x1: 1, y0: 0, y1: 5});
  key('Escape');
  equal([selected, cursor], [-1, null]);
  key('ArrowDown', {ctrlKey: true});
  equal(cursor, null);
});
