// On a comparison of several budgets as the command wrote it.
test('the curve has a line a policy, and the bound', () => {
  const svg = document.querySelector('#chart svg'), lines = texts(svg, 'polyline');
  that(lines.includes('lru') && lines.includes('bound'), lines.join(', '));
  for (const line of svg.querySelectorAll('polyline')) {
    const box = line.getBBox();
    that(box.width > 100 && isFinite(box.height), line.textContent + ' has no size');
  }
  that(document.getElementById('curve-title').textContent.includes('fast memory'), 'no title');
});
