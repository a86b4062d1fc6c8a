/* Charts. The server sends plotly figures without data (layout, axes, colours by token) and the rule of each line; here
   they get history, then live frames by the same rule. Gaps stay gaps. One hairline crosses all plots; the label column
   is legend and hover box. */
(function () {
  'use strict';
  const box = document.getElementById('charts');
  if (!box) { return; }
  const panel = box.closest('.panel');
  const LEFT = 40, RIGHT = 8, GAP_MS = 2500, MOST = 1900;
  const rangeMs = Number(box.dataset.range) * 1000;
  const NODATA = document.body.dataset.tNodata;

  let charts = [];                 /* [{el, meta, figure}] */
  let at = [], values = {};        /* one column of times, one of numbers per line */
  let queue = [];                  /* frames that came before history did */
  let loaded = false, paused = false, asking = 0;

  /* ---- colours: tokens to rgb, with an alpha after a slash ---- */
  const probe = document.createElement('span');
  probe.hidden = true;
  document.body.append(probe);
  const known = new Map();
  function colour(name) {
    if (!known.has(name)) {
      const [token, alpha] = name.split('/');
      probe.style.color = 'var(' + token + ')';
      const rgb = getComputedStyle(probe).color;
      known.set(name, alpha ? rgb.replace('rgb(', 'rgba(').replace(')', ', ' + alpha + ')') : rgb);
    }
    return known.get(name);
  }
  function resolved(node) {
    if (typeof node === 'string') { const m = /^var\((--[^)]+)\)$/.exec(node); return m ? colour(m[1]) : node; }
    if (Array.isArray(node)) { return node.map(resolved); }
    if (node && typeof node === 'object') { return Object.fromEntries(Object.entries(node).map(([k, v]) => [k, resolved(v)])); }
    return node;
  }

  /* ---- one line's value in one frame: the sum over the rows that match, null where no row has one ---- */
  function read(rule, frame) {
    let sum = null;
    for (const row of frame[rule.rows]) {
      if (!Object.entries(rule.where).every(([k, v]) => row[k] === v)) { continue; }
      const v = rule.entry ? row[rule.field][rule.entry] || 0 : row[rule.field];
      if (v !== null && v !== undefined) { sum = (sum || 0) + v; }
    }
    return sum === null ? null : sum * rule.scale;
  }
  const rules = () => charts.flatMap((c) => c.meta.series);
  function append(frame) {
    const x = Math.round(frame.at * 1000);
    if (at.length && x <= at[at.length - 1]) { return; }
    if (at.length && x - at[at.length - 1] > GAP_MS) {
      at.push(at[at.length - 1] + 1000);
      Object.values(values).forEach((column) => column.push(null));
    }
    at.push(x);
    rules().forEach((rule) => values[rule.key].push(read(rule, frame)));
    const drop = at.length > MOST ? at.length - MOST : at.findIndex((v) => v >= x - rangeMs - 2000);
    if (drop > 60) {                                                     /* not each second: splicing is work */
      at.splice(0, drop);
      Object.values(values).forEach((column) => column.splice(0, drop));
    }
  }

  /* ---- drawing ---- */
  function top(chart) {
    let most = chart.meta.floor;
    const n = at.length, from = at[n - 1] - rangeMs;
    for (let i = 0; i < n; i += 1) {
      if (at[i] < from) { continue; }
      let v = 0;
      for (const rule of chart.meta.series) {
        const y = values[rule.key][i] || 0;
        v = chart.meta.stacked ? v + y : Math.max(v, y);
      }
      if (v > most) { most = v; }
    }
    return most * 1.08;
  }
  function flags(chart, first) {
    const shapes = [], notes = [], end = at[at.length - 1];
    const width = Math.max(1, chart.el.clientWidth - LEFT - RIGHT), perPx = rangeMs / width;
    const shown = Array.from(document.querySelectorAll('#marks [data-at]'), (m) => ({ x: Number(m.dataset.at), letter: m.dataset.letter }))
      .filter((m) => m.x >= end - rangeMs && m.x <= end);
    /* letters keep 17 pixels apart and inside the plot; the lines stay where they belong */
    const places = shown.map((m) => (m.x - end + rangeMs) / perPx);
    for (let i = 1; i < places.length; i += 1) { places[i] = Math.max(places[i], places[i - 1] + 17); }
    for (let i = places.length - 1, most = width - 8; i >= 0; i -= 1) { places[i] = Math.min(places[i], most); most = places[i] - 17; }
    shown.forEach((m, i) => {
      shapes.push({ type: 'line', x0: m.x, x1: m.x, yref: 'paper', y0: 0, y1: 1, line: { color: colour('--text-3'), width: 1, dash: '2px,3px' } });
      if (first && places[i] > 0) {          /* no <b> in plotly's text: it sets a style attribute, which the policy refuses */
        notes.push({ x: m.x, xshift: places[i] - (m.x - end + rangeMs) / perPx, yref: 'paper', y: 1, yanchor: 'top', xanchor: 'center', text: m.letter,
          showarrow: false, font: { size: 10, weight: 700, color: colour('--surface') }, bgcolor: colour('--text-2'), borderpad: 2 });
      }
    });
    if (chart.meta.stacked) {              /* plotly draws a hole in stacked areas as zero: cover it, a gap is a gap */
      at.forEach((x, i) => {
        if (i && i < at.length - 1 && chart.meta.series.every((r) => values[r.key][i] === null) && at[i + 1] > end - rangeMs) {
          shapes.push({ type: 'rect', x0: at[i - 1], x1: at[i + 1], yref: 'paper', y0: 0, y1: 1, line: { width: 0 }, fillcolor: colour('--surface') });
        }
      });
    }
    return { shapes: shapes, annotations: notes };
  }
  function lineStyle(rule, trace) {      /* the outlier is the only backend in colour: the label column knows which */
    const li = box.querySelector('[data-key="' + CSS.escape(rule.key) + '"] .key-line');
    if (!li || rule.field !== 'kv_ratio') { return trace.line; }
    return li.classList.contains('bad') ? Object.assign({}, trace.line, { color: colour('--bad'), width: 2.4 }) : trace.line;
  }
  function draw() {
    if (!loaded || !at.length || document.hidden) { return; }
    const end = at[at.length - 1];
    charts.forEach((chart, i) => {
      if (chart.el.hidden) { return; }
      const figure = resolved({ data: chart.figure.data, layout: chart.figure.layout });
      figure.data.forEach((trace, k) => {
        const rule = chart.meta.series[k];
        trace.x = at; trace.y = values[rule.key];
        trace.line = lineStyle(rule, trace);
      });
      figure.layout.xaxis.range = [end - rangeMs, end];
      figure.layout.xaxis.nticks = chart.el.clientWidth < 520 ? 4 : 9;
      if (!chart.meta.fixed) { figure.layout.yaxis.range = [0, top(chart)]; }
      figure.layout.font.family = getComputedStyle(document.body).fontFamily;
      Object.assign(figure.layout, flags(chart, i === 0), { datarevision: end });
      window.Plotly.react(chart.el, figure.data, figure.layout, { displayModeBar: false, responsive: true, scrollZoom: false, staticPlot: true });
    });
  }
  let last = 0;
  function maybe() {       /* reduced motion: every five seconds; a resting pointer: not at all */
    const now = performance.now();
    if (paused || box.matches(':hover') || now - last < (window.SG.still ? 5000 : 700)) { return; }
    last = now;
    draw();
  }

  /* ---- history ---- */
  function load() {
    if (asking && performance.now() - asking < 3000) { return; }
    asking = performance.now();
    fetch(box.dataset.history, { headers: { Accept: 'application/json' } }).then((answer) => {
      if (!answer.ok || answer.redirected) { throw new Error('history: ' + answer.status); }
      return answer.json();
    }).then((told) => {
      const found = [];
      told.figures.forEach((figure) => {
        const el = box.querySelector('[data-chart="' + figure.meta.name + '"]');
        if (el) { found.push({ el: el, meta: figure.meta, figure: figure }); }
      });
      charts = found;
      at = told.at; values = told.values; loaded = true;
      queue.forEach(append);
      queue = [];
      box.dataset.points = String(at.length);
      draw();
    }).catch(() => { setTimeout(load, 3200); });
  }
  const shape = () => (document.getElementById('series-head') || { dataset: {} }).dataset.shape || '';
  function isOther() { return loaded && shape() !== rules().map((r) => r.key).join(' '); }

  if (!window.Plotly) {
    box.querySelectorAll('.plot').forEach((el) => { el.classList.add('muted'); el.textContent = NODATA; });
    return;
  }
  document.addEventListener('sg:frame', (ev) => {
    queue.push(ev.detail);
    if (queue.length > 120) { queue.shift(); }
    if (!loaded) { return; }
    queue.forEach(append);
    queue = [];
    box.dataset.points = String(at.length);
  });
  document.addEventListener('sg:morphed', () => { if (isOther()) { load(); } maybe(); if (box.matches(':hover')) { under(); } });
  document.addEventListener('sg:rejoined', load);
  document.addEventListener('sg:pause', (ev) => { paused = ev.detail; maybe(); });
  function repaint() { known.clear(); draw(); }
  document.addEventListener('sg:theme', repaint);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) { draw(); } });

  /* ---- hairline ---- */
  const hair = document.createElement('div');
  hair.className = 'crosshair';
  hair.setAttribute('data-keep', '');
  box.append(hair);
  let pointer = null;
  function formatted(rule, chart, v) {
    if (v === null || v === undefined) { return NODATA; }
    return v.toFixed(chart.meta.digits) + (chart.meta.unit === ' %' ? '\u00a0%' : '');
  }
  function under() {
    if (pointer === null || !at.length) { return; }
    const end = at[at.length - 1], when = end - rangeMs + pointer * rangeMs;
    let i = at.length - 1;
    while (i > 0 && at[i] > when) { i -= 1; }
    charts.forEach((chart) => chart.meta.series.forEach((rule) => {
      const out = box.querySelector('[data-key="' + CSS.escape(rule.key) + '"] b');
      if (out) { out.textContent = formatted(rule, chart, values[rule.key][i]); }
    }));
    const stamp = panel.querySelector('.asof .at');
    if (stamp) { stamp.textContent = document.body.dataset.tAt.replace('{at}', new Date(at[i]).toISOString().slice(11, 19) + '\u00a0UTC'); }
  }
  box.addEventListener('pointermove', (ev) => {
    const p = box.querySelector('.plot').getBoundingClientRect(), b = box.getBoundingClientRect();
    const x = (ev.clientX - p.left - LEFT) / (p.width - LEFT - RIGHT);
    const inside = loaded && x >= 0 && x <= 1 && !box.querySelector('.plot[hidden]');
    hair.classList.toggle('on', inside);
    pointer = inside ? x : null;
    if (inside) { hair.style.transform = 'translateX(' + (ev.clientX - b.left) + 'px)'; under(); }
  });
  box.addEventListener('pointerleave', () => { pointer = null; hair.classList.remove('on'); });

  /* ---- view as table ---- */
  function table(chart) {
    const wrap = document.createElement('div');
    wrap.className = 'datatable'; wrap.tabIndex = 0;
    wrap.setAttribute('role', 'region'); wrap.setAttribute('aria-label', chart.el.getAttribute('aria-label'));
    const made = document.createElement('table');
    made.className = 'table';
    const head = made.createTHead().insertRow();
    [document.body.dataset.tTime].concat(chart.figure.data.map((d) => d.name)).forEach((name, i) => {
      const th = document.createElement('th'); th.scope = 'col'; th.textContent = name; if (i) { th.className = 'num'; } head.append(th);
    });
    const rows = made.createTBody();
    for (let i = at.length - 1, minute = -1; i >= 0; i -= 1) {
      const m = Math.floor(at[i] / 60000);
      if (m === minute) { continue; }
      minute = m;
      const row = rows.insertRow();
      row.insertCell().textContent = new Date(at[i]).toISOString().slice(11, 19);
      chart.meta.series.forEach((rule) => { const c = row.insertCell(); c.className = 'num'; c.textContent = formatted(rule, chart, values[rule.key][i]); });
    }
    wrap.append(made);
    return wrap;
  }
  document.addEventListener('click', (ev) => {
    const button = ev.target.closest('[data-table]');
    if (!button || !loaded) { return; }
    const shown = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', String(shown));
    charts.forEach((chart) => {
      const old = chart.el.parentNode.querySelector(':scope > .datatable');
      if (old) { old.remove(); }
      chart.el.hidden = shown;
      if (shown) { chart.el.after(table(chart)); }
    });
    if (!shown) { draw(); }
  });

  load();
}());
