// The page's entry: which view is shown, and the loop that keeps it up to date.

import * as about from './about.js';
import * as activity from './activity.js';
import * as charts from './charts.js';
import * as lock from './lock.js';
import * as locks from './locks.js';
import * as sale from './sale.js';
import * as top from './top.js';
import { board, hear, heard, lost, now, opened } from './board.js';
import { isCalm, mark } from './dom.js';
import { follow } from './stream.js';

/** Each has `title(route)` and `open(root, route)`, which gives `{ render, tick, close }`. */
const VIEWS = { locks, lock, activity, charts, sale, about };
const RENDER_EVERY_MS = 100;
const TICK_EVERY_MS = 40;

const main = document.getElementById('main');
let view = null;
let drawn = -1;
let renderedAt = 0;
let tickedAt = 0;

/** `#/lock/order%3A1?tab=x` as `{ name: 'lock', rest: 'order:1', query }`. */
function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [name, ...rest] = path.split('/');
  // A typed address may be the name of a lock.
  const isOne = name === 'locks' && rest.some(Boolean);
  return { name: isOne ? 'lock' : Object.hasOwn(VIEWS, name) ? name : 'locks', rest: decoded(rest.join('/')), query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const to = route();
  view?.close?.();
  main.replaceChildren();
  view = VIEWS[to.name].open(main, to);
  document.title = `${VIEWS[to.name].title(to)} · Tenure`;
  for (const link of document.querySelectorAll('nav a')) {
    const of = link.getAttribute('href').slice(2);
    mark(link, 'aria-current', of === to.name || (of === 'locks' && to.name === 'lock') ? 'page' : null);
  }
  drawn = -1;
}

function frame(time) {
  requestAnimationFrame(frame);
  if (time - tickedAt >= (isCalm() ? 1_000 : TICK_EVERY_MS)) {
    tickedAt = time;
    if (!board.isPaused) view.tick?.(now());
  }
  if (time - renderedAt < RENDER_EVERY_MS) return;
  renderedAt = time;
  top.tick();
  if (drawn === board.version || (board.isPaused && drawn >= 0)) return;
  drawn = board.version;
  view.render?.();
}

function keys(event) {
  const isTyping = event.target.closest('input, select, textarea, dialog');
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = main.querySelector('input[type=search]');
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
}

addEventListener('hashchange', () => {
  // The link that skips to the content is no view.
  if (location.hash === '#main') return;
  show();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
addEventListener('keydown', keys);
top.begin();
show();
requestAnimationFrame(frame);
follow({ opened, hear, heard, lost });
