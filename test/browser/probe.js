// Returns the look of a page as a value, which the tests compare.
(() => {
  const name = e => {
    const text = (e.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 40);
    return e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined ? '.' + e.className : '') + (text ? ' ' + JSON.stringify(text) : '');
  };
  const box = e => e.getBoundingClientRect();
  const seen = e => e.checkVisibility() && box(e).width > 0 && box(e).height > 0;

  // An element that scrolls may have wider content.
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const inScroller = e => { for (let p = e.parentElement; p; p = p.parentElement) if (scrolls(p)) return true; return false; };
  const wide = [...document.body.querySelectorAll('*')]
    .filter(e => seen(e) && !inScroller(e) && (box(e).right > innerWidth + 0.5 || box(e).left < -0.5)).map(name);
  if (document.documentElement.scrollWidth > innerWidth) wide.push('the page: ' + document.documentElement.scrollWidth + ' px');

  // A chart is visible if it and its bars are.
  const charts = [...document.querySelectorAll('svg')].map(svg => ({
    width: box(svg).width, height: box(svg).height, title: name(svg),
    shapes: [...svg.querySelectorAll('rect, path, line, circle, polygon')].filter(e => box(e).width > 0 || box(e).height > 0).length,
    texts: [...svg.querySelectorAll('text')].filter(seen).length,
    axis: [...svg.querySelectorAll('text.faint[text-anchor=middle]')].map(e => e.textContent).join(' '),
    // Elements that are drawn outside the picture are cut off.
    cut: [...svg.querySelectorAll('text, rect')].filter(e => seen(e) && (box(e).right > box(svg).right + 1 || box(e).bottom > box(svg).bottom + 1 || box(e).left < box(svg).left - 1)).map(name),
  }));

  // Contrast between a text and its background, as WCAG 2 defines it.
  const rgba = c => { const m = c.match(/rgba?\(([^)]*)\)/); if (!m) return null; const v = m[1].split(/[ ,/]+/).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => { const f = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  // If a page only declares that it can be dark, the canvas is black in dark mode.
  const dark = matchMedia('(prefers-color-scheme: dark)').matches && getComputedStyle(document.documentElement).colorScheme.includes('dark');
  const canvas = dark ? [18, 18, 18, 1] : [255, 255, 255, 1];
  const painted = e => {
    const s = getComputedStyle(e), svg = e instanceof SVGElement && e.tagName !== 'svg';
    const c = rgba(svg ? s.fill : s.backgroundColor);
    return c && [c[0], c[1], c[2], c[3] * Number(s.opacity) * (svg ? Number(s.fillOpacity) : 1)];
  };
  const below = (e, x, y) => {
    const stack = document.elementsFromPoint(x, y).filter(o => o !== e && !(o instanceof SVGTextContentElement) && !(e.contains(o)));
    return stack.reverse().reduce((c, o) => { const p = painted(o); return p ? over(p, c) : c; }, canvas);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  let read = 0;
  for (let t = texts.nextNode(); t; t = texts.nextNode()) {
    const e = t.parentElement;
    if (!t.data.trim() || !seen(e) || e.closest('title, script, style')) continue;
    const range = document.createRange();
    range.selectNodeContents(t);
    const r = range.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2;
    if (r.width === 0 || x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
    const s = getComputedStyle(e), ink = rgba(e instanceof SVGElement ? s.fill : s.color), ground = painted(e) && !(e instanceof SVGElement) ? over(painted(e), below(e, x, y)) : below(e, x, y);
    read++;
    const ratio = contrast(over(ink, ground), ground);
    // A single letter is a mark, explained in the legend: WCAG requires less contrast for graphics.
    if (ratio < (t.data.trim().length === 1 ? 3 : 4.5)) faint.push(name(e) + ' ' + ratio.toFixed(2));
  }

  // A bar needs less contrast than a text: WCAG 2, 1.4.11.
  const pale = [...document.querySelectorAll('rect.bar')].filter(seen).flatMap(e => {
    const r = box(e), x = r.left + r.width / 2, y = r.top + r.height / 2;
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return [];
    const ground = [...e.ownerSVGElement.querySelectorAll('rect.ground')].reduce((c, o) => over(painted(o), c), canvas);
    const ratio = contrast(over(painted(e), ground), ground);
    return ratio < 3 ? [name(e) + ' ' + (e.getAttribute('class') || '') + ' ' + ratio.toFixed(2)] : [];
  });

  return {
    title: document.title, wide, charts, faint, pale, read,
    details: [...document.querySelectorAll('details')].map(d => ({ open: d.open, height: box(d).height, content: [...d.children].slice(1).some(seen) })),
    scripts: document.scripts.length,
  };
})()
