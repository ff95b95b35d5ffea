const shown = () => { filtered(); layOut(false); resetView(); draw(); };
test('the peak is the largest of what lives and what is needed', () => { equal(peak, 1073152); });
test('a curve has the largest value on each pixel', () => {
  shown();
  const got = curve(O.live), w = Math.round(box.width);
  equal(got.length, w);
  const at = share => got[Math.floor(share * w)];
  equal([0.05, 0.2, 0.4, 0.55, 0.7, 0.9].map(at), O.live);
});
test('a peak stays visible however many ops there are', () => {
  shown();
  const width = box.width;
  box.width = 2;
  equal(curve(O.need), [1056768, 1069056]);
  box.width = width;
});
test('a curve of a part of the layers', () => {
  shown();
  view.x0 = 0.25;
  equal(curve(O.live)[0], O.live[2]);
  resetView();
});
test('what lives is filled from the floor up', () => {
  shown();
  const floor = box.memoryTop + box.memoryHeight;
  const inPlot = (x, y) => pixel(canvas, xOf(x), y);
  ctx.clearRect(0, 0, canvas.width, canvas.height);
  area(curve(O.live), '#ff0000', 1);
  equal(inPlot(0.1, floor - 5), [255, 0, 0, 255]);
  equal(inPlot(0.1, floor - box.memoryHeight / 2), [255, 0, 0, 255]);
  equal(inPlot(0.9, floor - box.memoryHeight / 2)[3], 0);  // there hardly anything lives
  equal(ctx.globalAlpha, 1);
});
test('the curves are drawn with their scale', () => {
  shown();
  ctx.clearRect(0, 0, canvas.width, canvas.height);
  drawMemory();
  that(colours(canvas, box.left, box.memoryTop, Math.round(box.width), box.memoryHeight) > 3,
       'no curves');
  that(colours(canvas, 100, 0, box.left - 105, box.memoryTop + box.memoryHeight + 10) > 1,
       'no scale');
});
