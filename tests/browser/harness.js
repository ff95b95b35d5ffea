// The harness of the pages: test(), the assertions, and the results on the console, where browser_test.py
// reads them. It stands before the scripts and shares no name with them.
'use strict';
const Harness = {tests: [], errors: [], current: null};
addEventListener('error', e => Harness.errors.push({message: e.message, stack: e.error && e.error.stack}));
addEventListener('unhandledrejection', e =>
    Harness.errors.push({message: String(e.reason), stack: e.reason && e.reason.stack}));

// Runs once the page has loaded, after all tests before it.
function test(name, body) { Harness.tests.push({name, body, failures: []}); }
function fail(message, stack = new Error().stack) { Harness.current.failures.push({message, stack}); }

// These go on after a failure, so that one run shows all of them.
function that(condition, says) { if (!condition) fail(says); }
function equal(actual, expected) {
  if (!Harness.same(actual, expected))
    fail('expected ' + Harness.show(expected) + ', not ' + Harness.show(actual));
}
function near(actual, expected, within = 1e-9) {
  if (!(Math.abs(actual - expected) <= within))
    fail('expected ' + expected + ' within ' + within + ', not ' + actual);
}
const plain = v => ArrayBuffer.isView(v) || v instanceof Set ? [...v] : v;
Harness.same = (a, b) => {
  a = plain(a);
  b = plain(b);
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length &&
         keys.every(k => Object.hasOwn(b, k) && Harness.same(a[k], b[k]));
};
Harness.show = v => JSON.stringify(plain(v)) ?? String(v);

// A part of a canvas, read from a copy: the browser complains of a page that reads its own often.
function part(canvas, x, y, width, height) {
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [width, height];
  const context = copy.getContext('2d', {willReadFrequently: true});
  context.drawImage(canvas, x, y, width, height, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}
// A pixel of a canvas as [red, green, blue, alpha], and how many colours a rectangle of it has.
function pixel(canvas, x, y) { return [...part(canvas, Math.floor(x), Math.floor(y), 1, 1)]; }
function colours(canvas, x = 0, y = 0, width = canvas.width, height = canvas.height) {
  return new Set(new Uint32Array(part(canvas, x, y, width, height).buffer)).size;
}
const texts = (root, selector) => [...root.querySelectorAll(selector)].map(n => n.textContent);
// Until the page has drawn what it put off: a frame for that, and one more to come after it.
const drawn = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));

const within = (seconds, promise) => Promise.race([promise, new Promise((_, give_up) =>
    setTimeout(() => give_up('not at its end after ' + seconds + ' s'), 1000 * seconds))]);
addEventListener('load', async () => {
  await drawn();  // the observers of sizes have been called for the first time
  await drawn();
  for (const one of Harness.tests) {
    Harness.current = one;
    try {
      await within(5, one.body());
    } catch (e) {
      fail(String(e), e && e.stack);
    }
  }
  const tests = Harness.tests.map(({name, failures}) => ({name, failures}));
  console.info('results ' + encodeURIComponent(JSON.stringify({tests, errors: Harness.errors})));
});
