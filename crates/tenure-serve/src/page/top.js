// The top bar: servers, freshness, pause, theme and problems.

import { mark, write } from './dom.js';
import { bytes, length } from './format.js';
import { board } from './board.js';

const find = (id) => document.getElementById(id);
const [place, beacon, freshness, pause, theme, notice, footer] =
  ['place', 'beacon', 'freshness', 'pause', 'theme', 'notice', 'footer'].map(find);

export function begin() {
  pause.addEventListener('click', () => {
    board.isPaused = !board.isPaused;
    board.version += 1;
  });
  theme.addEventListener('click', () => {
    const isDark = getComputedStyle(document.documentElement).colorScheme === 'dark'
      || (!document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
    choose(isDark ? 'light' : 'dark');
  });
}

/** A second choice that equals the system's is no choice: the page follows the system again. */
function choose(name) {
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const root = document.documentElement;
  try {
    if (name === system) localStorage.removeItem('tenure.theme');
    else localStorage.setItem('tenure.theme', name);
  } catch {
    // Then it lasts as long as this page.
  }
  if (name === system) delete root.dataset.theme;
  else root.dataset.theme = name;
  dispatchEvent(new Event('themechange'));
}

/** Several times a second. */
export function tick() {
  const ago = performance.now() - board.heardAt;
  const isLost = board.connection !== 'open';
  const state = isLost ? board.connection : board.isPaused ? 'paused' : ago > 5_000 ? 'late' : 'open';
  mark(beacon, 'data-state', state);
  write(freshness, {
    connecting: 'connecting',
    lost: 'connection lost',
    paused: 'paused',
  }[state] ?? `updated ${length(ago)} ago`);
  write(pause, board.isPaused ? 'Resume' : 'Pause');
  mark(pause, 'aria-pressed', board.isPaused);
  write(place, board.about?.locks ?? '');
  tellTrouble();
  const { store, version, instance } = board.about ?? {};
  const facts = [version && `tenure ${version}`, instance && `${instance.host}:${instance.port}`,
    store?.version && `Redis ${store.version}`, store?.role, store?.used_memory && `${bytes(store.used_memory)} used`,
    store?.clients && `${store.clients} clients`];
  write(footer, facts.filter(Boolean).join(' · '));
}

function tellTrouble() {
  const [kind, text] = board.connection === 'lost'
    ? ['lost', `Connection lost: ${board.trouble}. Showing the last known state.`]
    : board.away !== null
      ? ['away', `Redis is not responding: ${board.away}. Showing the last known state.`]
      : ['', ''];
  mark(notice, 'hidden', kind ? null : '');
  mark(notice, 'data-kind', kind || null);
  write(notice, text);
}
