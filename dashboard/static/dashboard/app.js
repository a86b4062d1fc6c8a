/* Small behaviours of every page: theme, countdowns, dialogs, undo, toasts, shortcuts. No inline handlers anywhere. */
(function () {
  'use strict';
  const root = document.documentElement;
  const body = document.body;
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const HEADERS = { 'X-Requested-With': 'dialog' };

  /* Countdowns run on the server's clock: the difference to ours is known from when the page was made. */
  const skewMs = body.dataset.now ? Number(body.dataset.now) * 1000 - Date.now() : 0;
  const serverNow = () => (Date.now() + skewMs) / 1000;

  /* ---- theme ---- */
  function isDark() {
    return root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  }
  function toggleTheme() {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    try { localStorage.setItem('sg-theme', root.dataset.theme); } catch (e) { /* private mode: the choice lasts for this page */ }
    document.dispatchEvent(new Event('sg:theme'));
  }

  /* ---- countdowns: <time data-until="epoch seconds"> ---- */
  function left(s) {
    const m = Math.floor(s / 60), h = Math.floor(m / 60), two = (n) => String(n).padStart(2, '0');
    if (h) { return h + '\u00a0h\u00a0' + two(m % 60) + '\u00a0min'; }
    return m ? m + ':' + two(s % 60) : s + '\u00a0s';
  }
  function countDown() {
    const now = serverNow();
    document.querySelectorAll('time[data-until]').forEach((el) => {
      const words = left(Math.max(0, Math.ceil(Number(el.dataset.until) - now)));
      if (el.textContent !== words) { el.textContent = words; }
    });
  }
  setInterval(countDown, still ? 5000 : 1000);
  document.addEventListener('sg:morphed', countDown);
  countDown();

  /* ---- toasts ---- */
  function toast(words, undoUrl) {
    const box = document.getElementById('toasts');
    if (!box) { return; }
    const t = document.createElement('div');
    t.className = 'toast';
    t.append(words);
    if (undoUrl) {
      const b = document.createElement('button');
      b.className = 'btn small';
      b.type = 'button';
      b.textContent = body.dataset.tUndo;
      b.addEventListener('click', () => { t.remove(); undo(undoUrl); });
      t.append(b);
    }
    box.replaceChildren(t);
    setTimeout(() => t.remove(), 12000);
  }
  const failed = () => toast(body.dataset.tFailed);

  /* Sent to sign in: the session has ended. The page itself then asks for it. */
  function isGone(answer) {
    if (answer.redirected || answer.status === 401) { location.reload(); return true; }
    return false;
  }
  function undo(url) {
    fetch(url, { method: 'POST', headers: HEADERS, body: new FormData(document.getElementById('undo')) })
      .then((answer) => {
        if (isGone(answer)) { return null; }
        return answer.ok ? answer.json().then((said) => toast(said.words)) : failed();
      })
      .catch(failed);
  }

  /* ---- the override dialog: a plain page without this script ---- */
  const dialog = document.getElementById('dialog');
  function sayEnd(form) {      /* "until 14:21:32 UTC" beside the choice, as long as it is one */
    const out = form.querySelector('[data-lasting]'), chosen = form.querySelector('input[name="lifetime"]:checked');
    if (!out || !chosen) { return; }
    const minutes = { '15m': 15, '1h': 60, '4h': 240 }[chosen.value] || Number(form.querySelector('[name="minutes"]').value);
    const valid = minutes >= 1 && minutes <= 1440;
    const at = new Date((serverNow() + minutes * 60) * 1000);
    out.textContent = valid ? out.dataset.words.replace('{at}', at.toISOString().slice(11, 19) + '\u00a0UTC') : '';
  }
  document.addEventListener('input', (ev) => { if (ev.target.closest('[data-dialog-form]')) { sayEnd(ev.target.closest('form')); } });
  document.querySelectorAll('[data-dialog-form]').forEach(sayEnd);
  function fill(markup) {
    dialog.innerHTML = markup;
    countDown();
    dialog.querySelectorAll('[data-dialog-form]').forEach(sayEnd);
    const wrong = dialog.querySelector('[aria-invalid="true"], [role="alert"]');
    if (wrong) {
      if (!wrong.matches('input, textarea')) { wrong.tabIndex = -1; }
      wrong.focus();
    }
  }
  function openDialog(href) {
    fetch(href, { headers: HEADERS })
      .then((answer) => {
        if (isGone(answer)) { return null; }
        if (!answer.ok) { return failed(); }
        return answer.text().then((markup) => {
          fill(markup);
          dialog.showModal();
          const first = dialog.querySelector('input[name="action"]:checked');
          if (first) { first.focus(); }
        });
      })
      .catch(failed);
  }
  function submitDialog(form) {
    const buttons = form.querySelectorAll('button[type="submit"]');
    buttons.forEach((b) => { b.disabled = true; });
    // Not form.action: the field called `action` hides that property.
    fetch(form.getAttribute('action'), { method: 'POST', headers: HEADERS, body: new FormData(form) })
      .then((answer) => {
        if (isGone(answer)) { return null; }
        if ((answer.headers.get('content-type') || '').startsWith('application/json')) {
          return answer.json().then((said) => { dialog.close(); toast(said.words, said.undo); });
        }
        if (answer.status === 422 || answer.status === 409) { return answer.text().then(fill); }
        return failed();
      })
      .catch(failed)
      .finally(() => buttons.forEach((b) => { b.disabled = false; }));
  }

  document.addEventListener('submit', (ev) => {
    const form = ev.target;
    if (form.id === 'undo' && ev.submitter) { ev.preventDefault(); undo(ev.submitter.formAction); }
    if (form.matches('[data-dialog-form]') && dialog && dialog.contains(form)) { ev.preventDefault(); submitDialog(form); }
  });
  document.addEventListener('change', (ev) => {
    if (ev.target.matches('[data-submit]')) { ev.target.form.requestSubmit(); }
    if (ev.target.matches('input[name="lifetime"][value="other"]')) {
      const minutes = ev.target.form.querySelector('input[name="minutes"]');
      if (minutes && ev.target.checked) { minutes.select(); }
    }
  });
  document.addEventListener('click', (ev) => {
    const link = ev.target.closest('a[data-dialog]');
    if (link && dialog && !ev.ctrlKey && !ev.metaKey && !ev.shiftKey) { ev.preventDefault(); openDialog(link.href); return; }
    const el = ev.target.closest('[data-do]');
    if (!el) { if (ev.target === dialog) { dialog.close(); } return; }
    if (el.dataset.do === 'theme') { toggleTheme(); }
    if (el.dataset.do === 'close' && dialog && dialog.contains(el)) { ev.preventDefault(); dialog.close(); }
    if (el.dataset.do === 'pause') {
      const paused = el.getAttribute('aria-pressed') !== 'true';
      el.setAttribute('aria-pressed', String(paused));
      document.dispatchEvent(new CustomEvent('sg:pause', { detail: paused }));
    }
  });

  /* ---- shortcuts ---- */
  let before = '';
  document.addEventListener('keydown', (ev) => {
    if (ev.target.matches('input, textarea, select') || ev.metaKey || ev.ctrlKey || ev.altKey || (dialog && dialog.open)) { return; }
    const go = (path) => { const a = document.querySelector('.nav a[href="' + path + '"]'); if (a) { a.click(); } };
    const pause = document.getElementById('pause'), help = document.getElementById('help');
    if (before === 'g' && ev.key === 'o') { go('/'); }
    else if (before === 'g' && ev.key === 'a') { go('/audit/'); }
    else if (ev.key === 'p' && pause) { pause.click(); }
    else if (ev.key === 't') { toggleTheme(); }
    else if (ev.key === '?' && help && !help.open) { help.showModal(); }
    before = ev.key;
  });

  window.SG = { toast: toast, still: still, serverNow: serverNow };
}());
