const shown = () => { filtered(); layOut(false); resetView(); draw(); };
test('the canvas has the size of its place, and the plot a margin for names', () => {
  measure();
  equal([canvas.width, canvas.height], [canvas.clientWidth * ratio, canvas.clientHeight * ratio]);
  equal([box.left, box.width], [216, canvas.clientWidth - 226]);
  that(box.height > 100, 'the plot is ' + box.height + ' pixels high');
});
test('shares become pixels', () => {
  shown();
  equal([xOf(0), xOf(1)], [box.left, box.left + box.width]);
  equal([yOf(0), yOf(5)], [box.top, box.top + box.height]);
  view = {x0: 0.25, x1: 1, y0: 1, y1: 5};
  equal([xOf(0.25), yOf(1)], [box.left, box.top]);
  resetView();
});
test('a font, proportional or not', () => {
  that(fontOf(11).startsWith('11px system-ui'), fontOf(11));
  that(fontOf(9, true).includes('monospace'), fontOf(9, true));
});
test('levels of each pixel: four columns a layer, one line a row', () => {
  shown();
  const four = (...levels) => levels.flatMap(level => [level, level, level, level]);
  const got = levelsOf(16, 5);
  [four(2, 2, 2, 0), four(255, 1, 217, 2), four(0, 167, 0, 0), four(0, 0, 2, 2), four(0, 0, 0, 1)]
      .forEach((line, y) => equal([...got.slice(16 * y, 16 * y + 16)], line));
});
test('of what falls on one pixel the brightest shows', () => {
  shown();
  equal(levelsOf(4, 1), [255, 255, 217, 217]);
  equal(levelsOf(1, 1), [255]);
});
test('the cells are painted in the colours of their levels', () => {
  shown();
  paintCells();
  equal([image.width, image.height], [Math.round(box.width * ratio), Math.round(box.height * ratio)]);
  const ramp = css('--ramp').split(',').map(s => rgb(s.trim()));
  const mid = row => yOf(row + 0.5) - box.top;
  equal(pixel(image, box.width * 0.125, mid(1)), [...ramp[ramp.length - 1], 255]);
  equal(pixel(image, box.width * 0.125, mid(0)), [...ramp[0], 255]);
  equal(pixel(image, box.width * 0.375, mid(1)), [...rgb(css('--alive')), 255]);
  equal(pixel(image, box.width * 0.9, mid(0))[3], 0);
});
test('a drawn page shows them at their place', () => {
  shown();
  equal(pixel(canvas, xOf(0.125), yOf(1.5)), pixel(image, box.width * 0.125, yOf(1.5) - box.top));
  that(colours(canvas, 0, box.top, box.left - 8, box.height) > 1, 'no names');
  that(colours(canvas, box.left, box.top + box.height + 1, box.width, 20) > 1, 'no layers');
  that(colours(canvas, box.left, box.phaseTop, box.width, 18) > 3, 'no phases');
});
test('a name loses its middle where it has no room', () => {
  ctx.font = fontOf(11, true);
  equal(cut('short', 1000), 'short');
  const name = 'a.rather.long.name.of.a.weight', short = cut(name, 90);
  const [head, tail] = short.split('…');
  that(name.startsWith(head) && name.endsWith(tail) && head.length > 1 && tail.length > 1, short);
  that(ctx.measureText(short).width <= 90, short + ' is too wide');
  that(short.length > 4, short + ' is too short');
  equal(cut(name, 0), '…');
});
test('the band of phases is the ops\', also within a layer', () => {
  shown();
  const was = O.phase[4], at = () => pixel(canvas, xOf((opEdges[4] + opEdges[5]) / 2), box.phaseTop + 17);
  const backward = at();
  equal(backward, [...rgb(css('--bwd')), 255]);
  O.phase[4] = 2;
  draw();
  equal(at(), [...rgb(css('--opt')), 255]);
  O.phase[4] = was;
  draw();
});
test('a few pixels of another phase part no run', () => {
  const runs = [{phase: 0, a: 0, b: 50}, {phase: 1, a: 50, b: 52}, {phase: 0, a: 52, b: 90}, {phase: 2, a: 90, b: 99}];
  equal(longRuns(runs), [{phase: 0, a: 0, b: 90}, {phase: 2, a: 90, b: 99}]);
  equal(runs[0].b, 50);
});
test('the cursor, the selection and a drag are marked', () => {
  shown();
  const pictures = new Set([canvas.toDataURL()]);
  selected = 0;
  draw();
  pictures.add(canvas.toDataURL());
  cursor = {row: 2, layer: 1};
  draw();
  pictures.add(canvas.toDataURL());
  drag = {x: 300, y: 200, toX: 400, toY: 300, moved: true};
  draw();
  pictures.add(canvas.toDataURL());
  equal(pictures.size, 4);
  [selected, cursor, drag] = [-1, null, null];
});
test('the extent shows once not all is in sight', () => {
  shown();
  const right = () => colours(canvas, Math.round(box.left + box.width) + 4, Math.round(box.top), 4,
                              Math.round(box.height));
  equal(right(), 1);
  view = {x0: 0, x1: 0.75, y0: 0, y1: 4};
  draw();
  that(right() > 1, 'no mark beside the rows');
  that(colours(canvas, box.left, 2, Math.floor(box.width), 4) > 1, 'no mark above the layers');
  resetView();
});
test('where no tensor passes a sentence says so', () => {
  filter.text = 'no such';
  filtered();
  draw();
  equal(rows.length, 0);
  that(colours(canvas, Math.round(canvas.clientWidth / 2) - 90,
               Math.round(canvas.clientHeight / 2) - 10, 180, 20) > 1, 'nothing is written');
  filter.text = '';
  shown();
});
test('redrawing waits for the next frame, once', async () => {
  shown();
  redraw();
  refresh();
  that(waiting && stale, 'it does not wait');
  await drawn();
  that(!waiting && !stale, 'it was not drawn');
});
