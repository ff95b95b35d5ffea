// What every page begins with: its figures, formats, the theme.
(() => {
'use strict';
const $ = id => document.getElementById(id);
const D = JSON.parse($('profile').textContent);
// Names come from the profiled program: they only ever become text nodes.
function el(tag, cls, text) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
}
function digits3(v) { return v.toFixed(v < 9.995 ? 2 : v < 99.95 ? 1 : 0); }
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let u = 0;
  if (n < 1024) return n + ' B';
  while (n >= 999.5 && u < 5) { n /= 1024; u++; }
  return digits3(n) + ' ' + units[u];
}
function micros(us) {
  return us < 999.5 ? Number(us.toPrecision(3)) + ' µs'
       : us < 999.5e3 ? Number((us / 1e3).toPrecision(3)) + ' ms'
       : Number((us / 1e6).toPrecision(3)) + ' s';
}
const number = n => n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString('en')
                                                    : String(Number(n.toPrecision(3)));
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function rgb(hex) { return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)); }
// Storage may be refused for a page opened from disk; the theme then lasts as long as the page.
function stored(value) {
  try {
    if (value) localStorage.setItem('sentinel-theme', value);
    return localStorage.getItem('sentinel-theme');
  } catch { return null; }
}
// Calls `change` now and whenever colours do.
function onTheme(change) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const root = document.documentElement;
  const set = theme => {
    root.dataset.theme = theme;
    $('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
    $('theme').setAttribute('aria-label',
        'Switch to ' + (theme === 'dark' ? 'light' : 'dark') + ' mode');
    change();
  };
  $('theme').addEventListener('click', () => {
    const next = root.dataset.theme === 'dark' ? 'light' : 'dark';
    stored(next);
    set(next);
  });
  dark.addEventListener('change', e => { if (!stored()) set(e.matches ? 'dark' : 'light'); });
  set(stored() || (dark.matches ? 'dark' : 'light'));
}
