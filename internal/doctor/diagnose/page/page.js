'use strict';
(() => {
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const one = (selector, of = document) => of.querySelector(selector);

  // Light and dark: as the reader's system, until the button says otherwise.
  const theme = one('#theme'), root = document.documentElement, system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : system.matches;
  const showTheme = () => theme.setAttribute('aria-pressed', String(isDark()));
  theme.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; showTheme(); });
  system.addEventListener('change', showTheme);
  showTheme();

  if (one('.fleet')) fleet();
  if (one('main[data-end]')) timelines();

  function fleet() {
    const rows = all('.fleet li[data-c]'), causes = all('button.cause'), name = one('#name'), shown = one('#shown');
    const filter = () => {
      const on = causes.filter(b => b.getAttribute('aria-pressed') === 'true').map(b => b.dataset.cause), part = name.value.trim().toLowerCase();
      let n = 0;
      for (const row of rows) {
        row.hidden = on.length > 0 && !on.includes(row.dataset.c) || part !== '' && !row.firstChild.textContent.toLowerCase().includes(part);
        if (!row.hidden) n++;
      }
      shown.textContent = n === rows.length ? '' : n + ' of ' + rows.length + ' are shown';
    };
    for (const b of causes) b.addEventListener('click', () => { b.setAttribute('aria-pressed', String(b.getAttribute('aria-pressed') !== 'true')); filter(); });
    name.addEventListener('input', filter);
  }

  function timelines() {
    // Times are milliseconds since each pod's first moment. The window from lo to hi is that of all timelines.
    const end = Number(one('main').dataset.end), least = Math.min(end, 10);
    let lo = 0, hi = end, cursor = null, active = null;
    const bars = all('.lane [data-a]'), points = all('.lane [data-at]'), axes = all('.row .axis'), cursors = all('.cursor'), charts = all('.chart');
    const percent = t => (t - lo) / (hi - lo) * 100;
    const label = t => '+' + (t / 1000).toFixed(hi - lo < 100 ? 3 : hi - lo < 20000 ? 2 : 0) + ' s';

    function ticks() {
      const count = Math.max(2, Math.floor((axes[0] ? axes[0].clientWidth : 600) / 80)), rough = (hi - lo) / count, power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find(n => n * power >= rough);
      for (const axis of axes) {
        axis.textContent = '';
        for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) {
          const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
          text.setAttribute('class', 'faint');
          text.setAttribute('x', percent(t) + '%');
          text.setAttribute('y', '14');
          text.textContent = step >= 1000 ? t / 1000 + ' s' : (t / 1000).toFixed(step >= 100 ? 1 : step >= 10 ? 2 : 3) + ' s';
          axis.append(text);
        }
      }
    }

    function draw() {
      for (const b of bars) {
        const from = Math.max(percent(Number(b.dataset.a)), 0), to = Math.min(percent(Number(b.dataset.b)), 100);
        b.setAttribute('visibility', to < 0 || from > 100 ? 'hidden' : 'visible');
        b.setAttribute('x', Math.min(from, 99.7) + '%');
        b.setAttribute('width', Math.max(to - from, 0.3) + '%');
      }
      for (const p of points) {
        const x = percent(Number(p.dataset.at));
        p.setAttribute('visibility', x < 0 || x > 100 ? 'hidden' : 'visible');
        p.setAttribute(p.tagName === 'circle' ? 'cx' : 'x', Math.min(Math.max(x, 0), 100) + '%');
      }
      ticks();
      drawCursor();
      one('#window').textContent = label(lo) + ' to ' + label(hi);
    }

    function drawCursor() {
      const on = cursor !== null && cursor >= lo && cursor <= hi;
      for (const c of cursors) {
        c.classList.toggle('on', on);
        if (on) { c.setAttribute('x1', percent(cursor) + '%'); c.setAttribute('x2', percent(cursor) + '%'); }
      }
    }

    function show(from, to) {
      const wide = Math.min(Math.max(to - from, least), end);
      lo = Math.min(Math.max(from, 0), end - wide);
      hi = lo + wide;
      draw();
    }
    const zoom = (factor, at = cursor !== null && cursor >= lo && cursor <= hi ? cursor : (lo + hi) / 2) => show(at - (at - lo) * factor, at + (hi - at) * factor);
    const pan = part => show(lo + (hi - lo) * part, hi + (hi - lo) * part);

    // The lines of the pod's logs near the cursor, by time.
    function place(t, chart) {
      cursor = Math.min(Math.max(t, 0), end);
      if (cursor < lo || cursor > hi) show(cursor - (hi - lo) / 2, cursor + (hi - lo) / 2);
      active = chart || active || charts[0];
      drawCursor();
      if (!active) return;
      const section = active.closest('section'), now = one('.now', section), near = (hi - lo) / 50;
      const lines = all('.lines li', section).filter(l => Math.abs(Number(l.dataset.at) - cursor) <= near)
        .sort((a, b) => Math.abs(Number(a.dataset.at) - cursor) - Math.abs(Number(b.dataset.at) - cursor)).slice(0, 12)
        .sort((a, b) => Number(a.dataset.at) - Number(b.dataset.at));
      const head = document.createElement('p');
      head.className = 'faint';
      head.textContent = 'at ' + label(cursor) + (lines.length ? ':' : ': no line of a log');
      const list = document.createElement('ul');
      list.className = 'quotes';
      for (const l of lines) {
        const item = document.createElement('li');
        for (const part of l.childNodes) item.append(part.cloneNode(true));
        list.append(item);
      }
      now.replaceChildren(head, list);
    }

    function mark(chart, by) {
      const times = all('[data-at]', chart).filter(p => p.tagName === 'circle').map(p => Number(p.dataset.at)).sort((a, b) => a - b);
      const at = cursor === null ? by > 0 ? -1 : end + 1 : cursor, next = by > 0 ? times.find(t => t > at + 0.5) : times.findLast(t => t < at - 0.5);
      if (next !== undefined) place(next, chart);
    }

    const keys = {
      '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '_': () => zoom(2), '0': () => show(0, end),
      ArrowLeft: (c, e) => e.shiftKey ? pan(-0.25) : place((cursor === null ? (lo + hi) / 2 : cursor) - (hi - lo) / 50, c),
      ArrowRight: (c, e) => e.shiftKey ? pan(0.25) : place((cursor === null ? (lo + hi) / 2 : cursor) + (hi - lo) / 50, c),
      Home: c => place(0, c), End: c => place(end, c), n: c => mark(c, 1), p: c => mark(c, -1),
    };
    for (const chart of charts) {
      const lane = one('.lane', chart), timeAt = e => { const box = lane.getBoundingClientRect(); return lo + (e.clientX - box.left) / box.width * (hi - lo); };
      let drag = null;
      chart.addEventListener('keydown', e => {
        const act = e.ctrlKey || e.metaKey || e.altKey ? undefined : keys[e.key];
        if (act) { e.preventDefault(); act(chart, e); }
      });
      chart.addEventListener('focus', () => { if (cursor !== null) place(cursor, chart); else mark(chart, 1); });
      chart.addEventListener('pointerdown', e => {
        drag = { x: e.clientX, lo, hi, moved: false };
        chart.setPointerCapture(e.pointerId);
      });
      chart.addEventListener('pointermove', e => {
        if (drag && (drag.moved || Math.abs(e.clientX - drag.x) > 4)) {
          drag.moved = true;
          const by = (drag.x - e.clientX) / lane.getBoundingClientRect().width * (drag.hi - drag.lo);
          show(drag.lo + by, drag.hi + by);
        } else if (!drag) {
          place(Math.min(Math.max(timeAt(e), lo), hi), chart);
        }
      });
      const release = e => { if (drag && !drag.moved && e.type === 'pointerup') place(Math.min(Math.max(timeAt(e), lo), hi), chart); drag = null; };
      chart.addEventListener('pointerup', release);
      chart.addEventListener('pointercancel', release);
      chart.addEventListener('wheel', e => {
        if (!e.ctrlKey && document.activeElement !== chart) return; // the page scrolls
        e.preventDefault();
        zoom(e.deltaY < 0 ? 0.8 : 1.25, Math.min(Math.max(timeAt(e), lo), hi));
      }, { passive: false });
    }
    const actions = { in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, end), left: () => pan(-0.25), right: () => pan(0.25) };
    for (const b of all('button[data-do]')) b.addEventListener('click', () => actions[b.dataset.do]());
    for (const b of all('button.at')) b.addEventListener('click', () => place(Number(b.dataset.at), one('.chart', b.closest('section'))));
    addEventListener('resize', draw);
    draw();
  }
})();
