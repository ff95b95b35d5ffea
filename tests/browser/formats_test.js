test('bytes have three digits and binary units', () => {
  equal([0, 1023, 1024, 10240, 999 * 1024].map(bytes),
        ['0 B', '1023 B', '1.00 KiB', '10.0 KiB', '999 KiB']);
  equal([1023 * 1024, 3 * 2 ** 30, 2 ** 60].map(bytes), ['1.00 MiB', '3.00 GiB', '1024 PiB']);
});
test('three digits are not four after rounding', () => {
  equal([1.234, 9.994, 9.995, 99.94, 99.95].map(digits3), ['1.23', '9.99', '10.0', '99.9', '100']);
});
test('microseconds', () => {
  equal([0.5, 999.4, 999.5, 1234, 999.5e3, 2.5e6].map(micros),
        ['0.5 µs', '999 µs', '1 ms', '1.23 ms', '1 s', '2.5 s']);
});
test('numbers are whole from 100 on', () => {
  equal([0, 3, 0.12345, 123.6, 1234567].map(number), ['0', '3', '0.123', '124', '1,234,567']);
});
test('colours as parts', () => { equal(rgb('#0a10ff'), [10, 16, 255]); });
test('a text is never markup', () => {
  const node = el('b', 'mono', '<i>x</i>');
  equal([node.tagName, node.className, node.children.length], ['B', 'mono', 0]);
  equal(node.textContent, '<i>x</i>');
  equal([el('p').className, el('p', '', 0).textContent], ['', '0']);
});
test('the theme changes by its button, is kept, and tells', () => {
  const root = document.documentElement, before = root.dataset.theme, ink = css('--ink');
  let changes = 0;
  onTheme(() => ++changes);  // a second listener beside the page's own: two switches a click
  equal([changes, root.dataset.theme], [1, before]);
  root.dataset.theme = before === 'dark' ? 'light' : 'dark';
  that(css('--ink') !== ink, 'both themes have one ink');
  $('theme').click();
  equal(changes, 2);
  equal(stored(), root.dataset.theme);
  equal($('theme').textContent, root.dataset.theme === 'dark' ? 'Light' : 'Dark');
});
