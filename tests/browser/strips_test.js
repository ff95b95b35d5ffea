// Takes down what is filled and written.
const paper = () => {
  const all = {rects: [], texts: [], globalAlpha: 1};
  all.fillRect = (...r) => all.rects.push(r);
  all.fillText = text => all.texts.push(text);
  return all;
};
test('a policy with its variant', () => { equal(strips.map(named), ['lru', 'sentinel no copies']); });
test('strips are of what ran and was followed', () => {
  equal([strips.length, longest, highest, usedLanes], [2, 2000, 1048576, [0, 1]]);
  equal(heightOf, MEMORY + GAP + MARKS + 2 * LANE + AXIS);
});
test('steps of an axis are 1, 2 or 5 times a power of ten', () => {
  equal([niceStep(2000, 4), niceStep(1000, 8), niceStep(70, 4)], [500, 200, 20]);
  near(niceStep(1, 4), 0.5);
});
test('one axis for all or each its own', () => {
  equal([span(strips[0]), span(strips[1])], [2000, 2000]);
  axis = 'own';
  equal([span(strips[0]), span(strips[1])], [2000, 1000]);
  axis = 'one';
});
test('bars: one column a pixel, from the floor up', () => {
  const ctx = paper();
  bars(ctx, [0.5, 0, 1], 10, 6, 100, 20);
  equal(ctx.rects, [[10, 90, 1, 10], [11, 90, 1, 10], [14, 80, 1, 20], [15, 80, 1, 20]]);
});
test('bars: the largest of what falls on one pixel, and a little is seen', () => {
  const ctx = paper();
  bars(ctx, [0.1, 0.9, 0.001, 0], 0, 2, 10, 10);
  equal(ctx.rects, [[0, 1, 1, 9], [1, 9, 1, 1]]);
});
test('memory has the scale of its budget, its curve and the budget', () => {
  const ctx = paper();
  drawMemory(ctx, strips[0], 400, 400, 0);
  equal(ctx.texts, ['1.00 MiB', 'resident', '0']);
  const floor = MEMORY - 6, height = MEMORY - 12;
  equal(ctx.rects[0], [LEFT, floor - height, 1, height]);
  equal(ctx.rects[100], [LEFT + 100, floor - height / 2, 1, height / 2]);
  equal(ctx.rects.at(-1), [LEFT, floor - height, 400, 1]);
  equal(ctx.globalAlpha, 1);
});
test('what holds more than the budget is cut off, and a note says so', () => {
  const ctx = paper();
  drawMemory(ctx, strips[1], 400, 400, 0);
  that(Math.max(...ctx.rects.map(r => r[3])) <= MEMORY - 12, 'it is higher than the scale');
  equal(texts($('strips').children[1], 'h3 span').slice(1), ['up to 2.00 MiB resident, cut off at 1.00 MiB']);
  equal(texts($('strips').children[0], 'h3 span').length, 1);
});
test('a lane tells its bandwidth, where there is one', () => {
  equal([0, 1, 2].map(laneWords), ['ssd in, 1.07 GB/s', 'ssd out, 2.15 GB/s', 'host in']);
});
test('the labels have the room that they need', () => {
  const ctx = el('canvas').getContext('2d');
  ctx.font = FONT;
  for (const lane of usedLanes) that(ctx.measureText(laneWords(lane)).width <= LEFT - 14, laneWords(lane));
});
test('a lane is drawn where something moved', () => {
  const busy = paper(), idle = paper();
  drawLane(busy, strips[0], 0, 400, 400, 50);
  drawLane(idle, strips[1], 0, 400, 400, 50);
  equal([busy.texts, idle.texts, idle.rects], [['ssd in, 1.07 GB/s'], ['ssd in, 1.07 GB/s'], [[LEFT, 50, 400, 1]]]);
  equal(busy.rects.length, 1 + 200);
});
test('the axis has times', () => {
  const ctx = paper();
  drawAxis(ctx, strips[0], 440, 10);
  equal(ctx.texts, ['0 µs', '500 µs', '1 ms', '1.5 ms', '2 ms']);
});
test('a moment in words', () => {
  equal(describe(strips[0], 0.3),
        ['600 µs into the step', '512 KiB resident', 'stalled 100 %', 'ssd out 1.00 GiB/s']);
  equal(describe(strips[1], 1), ['1 ms into the step', '2.00 MiB resident']);
});
test('each strip has a title, a canvas and a picture', () => {
  equal(texts($('strips'), 'h3'),
        ['lru2 ms, 50.0 % of the ideal throughput', 'sentinel no copies1 ms, 100 % of the ideal throughputup to 2.00 MiB resident, cut off at 1.00 MiB']);
  drawStrips();
  for (const row of strips) {
    equal(row.canvas.height, heightOf * devicePixelRatio);
    that(colours(row.canvas) > 4, named(row) + ' has ' + colours(row.canvas) + ' colours');
  }
  equal(strips[0].canvas.getAttribute('aria-label'),
        'Memory over the step of lru: at most 1.00 MiB resident, 1 ms stalled');
});
test('a shorter step takes a shorter part of the one axis', () => {
  drawStrips();
  const row = strips[1], y = MEMORY - 8;  // within its memory
  const wide = row.canvas.width / devicePixelRatio - LEFT - RIGHT;
  that(pixel(row.canvas, (LEFT + wide * 0.25) * devicePixelRatio, y * devicePixelRatio)[3] > 0, 'empty');
  equal(pixel(row.canvas, (LEFT + wide * 0.75) * devicePixelRatio, y * devicePixelRatio)[3], 0);
});
test('the pointer tells of one strip and marks all', () => {
  const [row, other] = strips, box = row.canvas.getBoundingClientRect();
  const middle = box.left + LEFT + (box.width - LEFT - RIGHT) * 0.3;
  point(row, {clientX: middle});
  equal(texts(row.tip, 'div').length, 4);
  equal([row.tip.style.display, other.cursor.style.display], ['block', 'block']);
  point(row, {clientX: box.left + 1});
  equal([row.tip.style.display, other.cursor.style.display], ['none', 'none']);
  point(row, {clientX: middle});
  leave(row);
  equal([row.tip.style.display, other.cursor.style.display], ['none', 'none']);
});
