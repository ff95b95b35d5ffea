// Figures, levels of heat, and the state that all parts share.
const T = D.tensors, L = D.layers, O = D.ops;
const tensorCount = T.name.length, layerCount = L.name.length, opCount = O.us.length;
const KINDS = ['global', 'intermediate', 'workspace'];
const LIVES = ['short-lived', 'long-lived', 'persistent'];
const PHASES = ['forward', 'backward', 'optimizer'];

const pages = t => Math.max(1, Math.ceil(T.bytes[t] / D.page));
const heat = (t, openings) => D.counted ? openings / pages(t) : openings;
const unit = D.counted ? 'accesses per page' : 'ops that name it';
const unitOf = h => number(h) !== '1' ? unit : D.counted ? 'access per page' : 'op that names it';
const untouched = D.counted ? 'alive, not accessed' : 'alive, not named by an op';

// Levels: 0 absent, 1 alive, 2 to 255 the logarithm of hotness over the range that occurs.
const range = (() => {
  let low = Infinity, high = 0;
  for (let t = 0; t < tensorCount; t++)
    for (let c = 0, cells = T.cells[t]; c < cells.length; c += 3) {
      const h = heat(t, cells[c + 1] + cells[c + 2]);
      if (h > 0) { low = Math.min(low, h); high = Math.max(high, h); }
    }
  if (!high) return {low: 1, high: 10};
  return {low: low < high ? low : high / 10, high};
})();
const share = h => Math.min(1, Math.max(0,
    Math.log(h / range.low) / Math.log(range.high / range.low)));
const levels = T.cells.map((cells, t) => {
  const out = new Uint8Array(cells.length / 3);
  for (let c = 0; c < out.length; c++) {
    const h = heat(t, cells[3 * c + 1] + cells[3 * c + 2]);
    out[c] = h > 0 ? 2 + Math.round(253 * share(h)) : 1;
  }
  return out;
});
function cellAt(t, layer) {
  const cells = T.cells[t];
  for (let c = 0; c < cells.length; c += 3)
    if (cells[c] === layer) return {reads: cells[c + 1], writes: cells[c + 2],
                                    level: levels[t][c / 3]};
  return null;
}
const alive = (t, layer) => layer >= T.first[t] && layer <= T.last[t];

let palette = null;  // one packed colour a level, and the named colours; made anew for each theme
function readPalette() {
  const stops = css('--ramp').split(',').map(s => rgb(s.trim()));
  const packed = new Uint32Array(256);
  const pack = c => (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0;
  packed[1] = pack(rgb(css('--alive')));
  for (let i = 2; i < 256; i++) {
    const x = (i - 2) / 253 * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(x));
    packed[i] = pack(stops[k].map((v, j) => Math.round(v + (stops[k + 1][j] - v) * (x - k))));
  }
  palette = {packed};
  for (const name of ['card', 'ink', 'muted', 'faint', 'line', 'soft', 'live', 'need', 'hot', 'fwd',
                      'bwd', 'opt', 'focus', 'accent'])
    palette[name] = css('--' + name);
}
