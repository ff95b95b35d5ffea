// The memory curves above the heatmap, on the same columns.
// The largest value of a curve over ops on each pixel column.
function curve(values) {
  const w = Math.round(box.width), out = new Float64Array(w);
  for (let i = 0; i < opCount; i++) {
    const a = Math.round(xOf(opEdges[i]) - box.left), b = Math.round(xOf(opEdges[i + 1]) - box.left);
    for (let x = Math.max(0, a); x < Math.min(w, Math.max(b, a + 1)); x++)
      if (values[i] > out[x]) out[x] = values[i];
  }
  return out;
}
let peak = 1;
for (const v of O.live) peak = Math.max(peak, v);
for (const v of O.need) peak = Math.max(peak, v);
function trace(values) {
  ctx.beginPath();
  const floor = box.memoryTop + box.memoryHeight;
  values.forEach((v, x) => {
    const y = floor - v / peak * box.memoryHeight;
    if (x) ctx.lineTo(box.left + x, y); else ctx.moveTo(box.left, y);
    ctx.lineTo(box.left + x + 1, y);
  });
}
function area(values, colour, alpha) {
  const floor = box.memoryTop + box.memoryHeight;
  trace(values);
  ctx.lineTo(box.left + values.length, floor);
  ctx.lineTo(box.left, floor);
  ctx.globalAlpha = alpha;
  ctx.fillStyle = colour;
  ctx.fill();
  ctx.globalAlpha = 1;
}
function drawMemory() {
  const floor = box.memoryTop + box.memoryHeight;
  ctx.font = fontOf(11);
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  for (const part of [1, 0.5, 0]) {
    const y = floor - part * box.memoryHeight;
    ctx.fillStyle = palette.line;
    ctx.fillRect(box.left, y, box.width, 1);
    ctx.fillStyle = palette.muted;
    ctx.fillText(part ? bytes(Math.round(peak * part)) : '0', box.left - 10, y);
  }
  const live = curve(O.live);
  area(live, palette.live, 0.28);
  trace(live);
  ctx.strokeStyle = palette.live;
  ctx.lineWidth = 1.25;
  ctx.stroke();
  area(curve(O.hot), palette.hot, 0.9);
  trace(curve(O.need));
  ctx.strokeStyle = palette.need;
  ctx.stroke();
}
