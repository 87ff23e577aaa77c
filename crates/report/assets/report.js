// The report in a browser: theme, opening rows, printing; figures.js draws the figures.
// The page is complete without it: drawings and tables, all rows open.
(function () {
  'use strict';

  const root = document.documentElement;
  const data = JSON.parse(document.getElementById('data').textContent);
  const live = document.getElementById('live');
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const say = (text) => { live.textContent = ''; setTimeout(() => { live.textContent = text; }, 30); };
  root.classList.add('js');

  const figures = all('figure[data-figure]').map(kelvinFigures(data, say));

  /** Draws figures as they scroll near; until then, and if the library cannot be unpacked, the static drawings are shown. */
  async function startWhenNear() {
    try {
      await kelvinLibrary();
    } catch (refused) {
      say('The figures are static: ' + refused.message);
      return;
    }
    root.classList.add('draws');
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        watcher.unobserve(entry.target);
        figures.find((one) => one.element === entry.target).start();
      }
    }, { rootMargin: '800px' });
    for (const figure of figures) watcher.observe(figure.element);
  }

  // ---- Rows
  /** Rows that are cards on a phone need roles, or some screen readers see no table. */
  function roles() {
    const are = (selector, role) => { for (const one of all('.results' + selector)) one.setAttribute('role', role); };
    are('', 'table');
    are(' > :is(thead, tbody)', 'rowgroup');
    are(' > * > tr', 'row');
    are(' > thead > tr > th', 'columnheader');
    are(' > tbody > tr > th', 'rowheader');
    are(' > tbody > tr > td', 'cell');
  }

  function rows() {
    for (const name of all('[data-expand]')) {
      const detail = document.getElementById(name.dataset.expand);
      const link = name.querySelector('.to-figure');
      const button = document.createElement('button');
      button.type = 'button';
      button.setAttribute('aria-controls', detail.id);
      button.append(...Array.from(name.childNodes).filter((node) => node !== link));
      name.prepend(button);
      const open = (on) => {
        detail.hidden = !on;
        button.setAttribute('aria-expanded', String(on));
      };
      open(false);
      button.addEventListener('click', () => open(detail.hidden));
      button.openDetail = open;
    }
    for (const button of all('[data-action="expand-all"]')) {
      button.addEventListener('click', () => {
        const on = button.getAttribute('aria-expanded') !== 'true';
        button.setAttribute('aria-expanded', String(on));
        button.textContent = on ? 'Hide all derivations' : 'Show all derivations';
        for (const row of all('[data-expand] > button', button.closest('section'))) row.openDetail(on);
      });
    }
  }

  /** A link to a method also opens it. */
  function methods() {
    for (const link of all('.to-method a')) {
      link.addEventListener('click', () => { document.getElementById(link.hash.slice(1)).open = true; });
    }
    const named = location.hash.startsWith('#method-') && document.getElementById(location.hash.slice(1));
    if (named) named.open = true;
  }

  // ---- Theme
  const THEMES = ['automatic', 'light', 'dark'];

  function theme() {
    const button = document.getElementById('theme');
    const kept = () => { try { return localStorage.getItem('kelvin-theme'); } catch (refused) { return null; } };
    const keep = (name) => { try { localStorage.setItem('kelvin-theme', name); } catch (refused) { /* For this visit only. */ } };
    const set = (name) => {
      if (name === 'automatic') delete root.dataset.theme; else root.dataset.theme = name;
      button.textContent = 'Theme: ' + name;
    };
    let now = THEMES.includes(kept()) ? kept() : 'automatic';
    set(now);
    button.addEventListener('click', () => {
      now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
      keep(now);
      set(now);
    });
  }

  // ---- Where the reader is, and paper
  function navigation() {
    const links = all('nav a');
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        for (const link of links) {
          if (link.hash === '#' + entry.target.id) link.setAttribute('aria-current', 'true');
          else link.removeAttribute('aria-current');
        }
      }
    }, { rootMargin: '-15% 0px -75% 0px' });
    for (const section of all('main > section')) watcher.observe(section);
  }

  function paper() {
    let closed = [];
    addEventListener('beforeprint', () => {
      closed = all('details:not([open]):not(.menu)');
      for (const one of closed) one.open = true;
    });
    addEventListener('afterprint', () => { for (const one of closed) one.open = false; });
  }

  roles();
  rows();
  methods();
  theme();
  navigation();
  paper();
  root.classList.add('ready');
  startWhenNear();
}());
