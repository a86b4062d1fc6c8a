/* Live data. One stream of server-sent events per page; panels come as markup and are grafted onto the page, so that
   focus, open menus and the plots stay. What is old is called old: three seconds after the last frame at the latest. */
(function () {
  'use strict';
  const body = document.body;
  const STALE_MS = 2800;                        /* the slow loop may lag by a little; the promise is three seconds */
  const t = (name, values) => (body.dataset['t' + name] || '').replace(/\{(\w+)\}/g, (_, k) => values[k]);
  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19) + '\u00a0UTC';
  const words = (s) => (s < 120 ? Math.floor(s) + '\u00a0s' : Math.floor(s / 60) + '\u00a0min');

  /* ---- when the last frame was ---- */
  let at = body.dataset.at ? Number(body.dataset.at) : null;              /* its own time, epoch seconds */
  let seenAt = performance.now() - 1000 * Number(body.dataset.age || 0);   /* when it was new, on our clock */
  let down = body.dataset.up === '0' ? Date.now() / 1000 : null;
  let offline = false, refusedN = 0, paused = false, pending = null;
  const ageS = () => (performance.now() - seenAt) / 1000;

  function showAge() {
    const live = document.getElementById('live'), say = document.getElementById('live-words');
    if (!live || !say) { return; }
    const stale = at === null || down !== null || ageS() * 1000 > STALE_MS;
    let text = '';
    if (refusedN) { text = t('Many', { n: refusedN }); }
    else if (down !== null) { text = t('Down', { at: clock(at === null ? down : at) }); }
    else if (at === null) { text = t('Never', {}); }
    else if (stale) { text = offline ? t('Offline', {}) : t('Lost', { n: words(ageS()) }); }
    else { text = t(paused ? 'Paused' : 'Live', { at: clock(at) }); }
    if (say.textContent !== text) { say.textContent = text; }
    live.classList.toggle('lost', stale || refusedN > 0);
    live.classList.toggle('paused', paused && !stale);
    if (at === null) { return; }
    document.querySelectorAll('[data-live]').forEach((p) => p.classList.toggle('is-stale', stale));
    if (!stale) { document.querySelectorAll('.last-known').forEach((el) => { el.hidden = true; }); return; }
    const n = words(Math.max(0, ageS()));
    document.querySelectorAll('.stale-words').forEach((el) => { el.textContent = t('Stale', { n: n }); });
    document.querySelectorAll('.last-known').forEach((el) => { el.hidden = false; el.textContent = t('Last', { n: n }); });
  }
  setInterval(showAge, 250);

  /* ---- grafting: make `have` like `want`, keep what is the same ---- */
  const key = (el) => (el.nodeType === 1 ? el.id || el.dataset.id || el.dataset.key || '' : '');
  function attributes(have, want) {
    for (const a of Array.from(have.attributes)) { if (!want.hasAttribute(a.name) && a.name !== 'open') { have.removeAttribute(a.name); } }
    for (const a of want.attributes) { if (have.getAttribute(a.name) !== a.value) { have.setAttribute(a.name, a.value); } }
  }
  function graft(have, want) {
    if (have.nodeType === 1 && have.hasAttribute('data-keep')) { return; }
    if (have.nodeType !== 1) { if (have.data !== want.data) { have.data = want.data; } return; }
    attributes(have, want);
    const keyed = new Map();
    for (const child of have.children) { if (key(child)) { keyed.set(key(child), child); } }
    let place = have.firstChild;
    for (const wanted of Array.from(want.childNodes)) {
      const k = key(wanted);
      let match = k ? keyed.get(k) : null;
      if (!match && !k && place && place.nodeName === wanted.nodeName && !key(place)) { match = place; }
      if (!match) { have.insertBefore(document.importNode(wanted, true), place); continue; }
      if (match !== place) { have.insertBefore(match, place); } else { place = place.nextSibling; }
      graft(match, wanted);
    }
    while (place) { const next = place.nextSibling; place.remove(); place = next; }
  }
  function show(markup) {
    const box = document.createElement('template');
    box.innerHTML = markup;
    for (const part of Array.from(box.content.children)) {
      const have = document.getElementById(part.id);
      if (have) { graft(have, part); }
    }
    document.dispatchEvent(new Event('sg:morphed'));
  }

  /* ---- the stream ---- */
  let stream = null, opened = 0;
  const overview = body.dataset.page === 'overview';
  function address() {
    const asked = new URLSearchParams(location.search), more = new URLSearchParams({ page: body.dataset.page });
    ['pool', 'by'].forEach((name) => { if (asked.get(name)) { more.set(name, asked.get(name)); } });
    return body.dataset.stream + '?' + more;
  }
  const later = (least) => setTimeout(open, least + Math.random() * least);
  function open() {
    stream = new EventSource(address());
    stream.addEventListener('frame', (ev) => {
      const frame = JSON.parse(ev.data), first = at === null;
      if (at !== null && frame.at <= at) { seenAt = Math.max(seenAt, performance.now() - 1000 * Math.max(0, window.SG.serverNow() - frame.at)); }
      else { seenAt = performance.now() - 1000 * Math.min(60, Math.max(0, window.SG.serverNow() - frame.at)); }
      if (at === null || frame.at > at) { down = null; }       /* the last known frame again is no sign of life */
      at = frame.at; offline = false; refusedN = 0;
      document.dispatchEvent(new CustomEvent('sg:frame', { detail: frame }));
      if (first && overview) { location.reload(); return; }         /* the page had nothing to show: now it has */
      showAge();
    });
    stream.addEventListener('page', (ev) => {
      pending = ev.data;
      if (!paused && !document.hidden) { show(pending); pending = null; showAge(); }
    });
    stream.addEventListener('idle', (ev) => {
      const said = JSON.parse(ev.data);
      offline = false; refusedN = 0;
      down = said.is_up ? null : said.since;
      if (said.age_s !== null && said.at === at) { seenAt = Math.min(seenAt, performance.now() - 1000 * said.age_s); }
      showAge();
    });
    stream.addEventListener('bye', (ev) => {
      if (ev.data === 'signed-out') { stream.close(); location.reload(); }
    });
    stream.onopen = () => {
      opened += 1;
      if (opened > 1) { document.dispatchEvent(new Event('sg:rejoined')); }
    };
    stream.onerror = () => {
      offline = true;
      if (stream.readyState !== EventSource.CLOSED) { return; }        /* the browser tries again by itself */
      stream.close();
      const stop = new AbortController();
      fetch(address(), { signal: stop.signal, headers: { Accept: 'text/event-stream' } }).then((answer) => {
        stop.abort();
        if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
        if (answer.status === 429) { refusedN = 5; showAge(); later(5000); return; }
        later(answer.ok ? 200 : 2000);
      }).catch(() => later(2000));
    };
  }
  document.addEventListener('sg:pause', (ev) => {
    paused = ev.detail;
    if (!paused && pending) { show(pending); pending = null; }
    showAge();
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && pending && !paused) { show(pending); pending = null; showAge(); }
  });
  addEventListener('pagehide', () => { if (stream) { stream.close(); } });
  addEventListener('pageshow', (ev) => { if (ev.persisted) { open(); } });
  showAge();
  open();
}());
