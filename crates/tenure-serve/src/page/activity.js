// Recent and live events.

import { board } from './board.js';
import { takeHint } from './commands.js';
import { download, el, mark, write } from './dom.js';
import { count, many, words } from './format.js';
import { eventLine } from './lock.js';

const SHOWN_MAX = 300;
const KINDS = ['held', 'taken', 'handed_on', 'waiting', 'renewed', 'ended', 'forced'];
/** Locks held before the page opened, and renewals: the most frequent and least important events. */
const QUIET = ['held', 'renewed'];

export const title = () => 'Activity';

export function open(root, { query }) {
  const wanted = {
    q: query.get('q') ?? '',
    kinds: new Set(query.get('kinds')?.split(',') ?? KINDS.filter((kind) => !QUIET.includes(kind))),
  };
  const list = el('ol.events', { 'data-testid': 'events' });
  const shown = el('p.quiet.shown', { role: 'status' });
  const [nothing, hint] = [el('p'), takeHint()];
  const empty = el('div.empty', {}, nothing, hint.element);
  const search = el('input', { type: 'search', placeholder: 'Search  /', 'aria-label': 'Search events', value: wanted.q,
    oninput: () => { wanted.q = search.value; changed(); } });
  const kinds = el('div.choices', { role: 'group', 'aria-label': 'Which events' }, KINDS.map((kind) => el('label', {},
    el('input', { type: 'checkbox', checked: wanted.kinds.has(kind), onchange: (event) => {
      wanted.kinds[event.target.checked ? 'add' : 'delete'](kind);
      changed();
    } }), el('span', {}, words(kind)))));
  const save = el('button', { type: 'button', onclick: () => {
    const lines = found().map((event) => `${JSON.stringify(event)}\n`);
    download('tenure-events.ndjson', 'application/x-ndjson', lines.join(''));
  } }, 'Download NDJSON');
  root.append(el('h1', {}, 'Activity'), el('div.filters', {}, search, kinds, save, shown), el('section.card', {}, list, empty));
  let drawn = { key: '', last: null, of: null };

  function found() {
    const text = wanted.q.toLowerCase();
    return board.events.filter((event) => wanted.kinds.has(event.event)
      && (!text || `${event.name}\n${event.who}\n${event.lease_id}\n${event.fence}`.toLowerCase().includes(text)));
  }

  function changed() {
    const kept = new URLSearchParams();
    if (wanted.q) kept.set('q', wanted.q);
    kept.set('kinds', KINDS.filter((kind) => wanted.kinds.has(kind)).join(','));
    history.replaceState(null, '', `#/activity?${kept}`);
    render();
  }

  function render() {
    const events = found();
    const key = `${wanted.q}\n${[...wanted.kinds]}`;
    const from = key === drawn.key && drawn.of === board.events && drawn.last ? events.lastIndexOf(drawn.last) + 1 : 0;
    if (!from) list.replaceChildren();
    list.prepend(...events.slice(Math.max(from, events.length - SHOWN_MAX)).reverse().map(eventLine));
    while (list.childElementCount > SHOWN_MAX) list.lastChild.remove();
    drawn = { key, last: events.at(-1) ?? null, of: board.events };
    write(shown, `${count(events.length)} of ${many(board.events.length, 'event')}`);
    write(nothing, board.events.length ? 'No events match the filter.' : 'No events yet. They appear here as they happen.');
    mark(hint.element, 'hidden', board.events.length ? '' : null);
    hint.render();
    mark(empty, 'hidden', events.length ? '' : null);
  }

  return { render };
}
