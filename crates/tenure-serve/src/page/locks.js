// All locks: the figures, and the table with a bar for each lease.

import { board } from './board.js';
import { takeHint } from './commands.js';
import { el, isCalm, mark, svg, write } from './dom.js';
import { NONE, count, length, many, millis, pairs, rate } from './format.js';
import { leaseBar } from './lease.js';
import { Rows } from './rows.js';

const COLUMNS = [
  { key: 'name', title: 'Lock', of: (lock) => lock.name },
  { key: 'holder', title: 'Holder', of: (lock) => lock.who ?? '' },
  { key: 'fence', title: 'Fence', of: (lock) => lock.fence ?? 0, isNumber: true },
  { key: 'held', title: 'Held for', of: (lock) => lock.from ?? Infinity, isNumber: true },
  { key: 'lease', title: 'Lease', of: (lock) => lock.expires ?? Infinity },
  { key: 'waiting', title: 'Waiting', of: (lock) => -lock.waiting, isNumber: true },
  { key: 'meta', title: 'Meta', of: (lock) => pairs(lock.meta) },
];
/** Sorting thousands again and again costs more than it tells. */
const SORT_EVERY_MS = (locks) => (locks > 1_000 ? 500 : 0);

export const title = () => 'Locks';

export function open(root, { query }) {
  const wanted = {
    q: query.get('q') ?? '',
    prefix: query.get('prefix') ?? '',
    state: ['held', 'waiting'].includes(query.get('state')) ? query.get('state') : '',
    sort: query.get('sort') ?? 'name',
  };
  const tiles = makeTiles();
  const filters = makeFilters(wanted, changed);
  const table = makeTable(wanted, changed);
  const empty = makeEmpty();
  root.append(el('h1.hidden', {}, 'Locks'), tiles.element, filters.element, table.element, empty.element);
  let sortedAt = -Infinity;
  let isPending = false;

  function changed() {
    const kept = new URLSearchParams();
    for (const [key, value] of Object.entries(wanted)) if (value && !(key === 'sort' && value === 'name')) kept.set(key, value);
    history.replaceState(null, '', `#/locks${kept.size ? `?${kept}` : ''}`);
    sortedAt = -Infinity;
    render();
  }

  function render() {
    tiles.render();
    if (performance.now() - sortedAt < SORT_EVERY_MS(board.locks.size)) {
      isPending = true;
      return;
    }
    sortedAt = performance.now();
    isPending = false;
    const shown = select(wanted);
    table.render(shown);
    filters.render(shown.length);
    empty.render(shown.length);
  }

  return {
    render,
    tick(now) {
      table.rows.tick(now);
      if (isPending) render();
    },
    close: () => table.rows.close(),
  };
}

/** The locks that are wanted, in the order that is wanted. */
function select({ q, prefix, state, sort }) {
  const text = q.toLowerCase();
  const found = [...board.locks.values()].filter((lock) => {
    if (prefix && !lock.name.startsWith(prefix)) return false;
    if (state === 'held' && !lock.held) return false;
    if (state === 'waiting' && !lock.waiting) return false;
    return !text || `${lock.name}\n${lock.who}\n${lock.lease_id}\n${lock.fence}\n${pairs(lock.meta)}`.toLowerCase().includes(text);
  });
  const isDown = sort.startsWith('-');
  const column = COLUMNS.find(({ key }) => key === sort.replace('-', '')) ?? COLUMNS[0];
  const compare = (a, b) => {
    const [left, right] = [column.of(a), column.of(b)];
    if (left !== right) return (left < right ? -1 : 1) * (isDown ? -1 : 1);
    return a.name < b.name ? -1 : 1;
  };
  return found.sort(compare);
}

function makeTiles() {
  const tile = (label, hint) => {
    const value = el('output.value', {}, NONE);
    const line = svg('polyline', { fill: 'none', 'vector-effect': 'non-scaling-stroke' });
    const spark = svg('svg.spark', { viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, line);
    return { element: el('div.tile', { title: hint }, el('span.label', {}, label), value, spark), value, line };
  };
  const [held, waiting, acquired, wait, expired] = [
    tile('Held', 'Held locks'), tile('Waiting', 'Callers waiting for a lock'),
    tile('Acquired / s', 'Locks acquired through this instance in the last second'), tile('Wait p99', '99th percentile of their wait'),
    tile('Expired, 5 min', 'Leases of this instance that expired or were force-released'),
  ];
  return {
    element: el('section.tiles', { 'aria-label': 'Figures' }, [held, waiting, acquired, wait, expired].map(({ element }) => element)),
    render() {
      let [holding, queued] = [0, 0];
      for (const lock of board.locks.values()) {
        holding += lock.held ? 1 : 0;
        queued += lock.waiting;
      }
      const last = board.stats.at(-1);
      const sum = board.stats.reduce((sum, row) => sum + (row.lost ?? 0) * ((row.step ?? 1_000) / 1_000), 0);
      write(held.value, board.isFilled ? count(holding) : NONE);
      write(waiting.value, board.isFilled ? count(queued) : NONE);
      write(acquired.value, rate(last?.acquired));
      write(wait.value, millis(last?.wait_p99_ms));
      write(expired.value, board.stats.length ? count(sum) : NONE);
      mark(expired.element, 'data-some', sum > 0 ? '' : null);
      draw(held.line, 'held');
      draw(waiting.line, 'waiting');
      draw(acquired.line, 'acquired');
      draw(wait.line, 'wait_p99_ms');
      draw(expired.line, 'lost');
    },
  };
}

/** The last five minutes of a figure, as a line. */
function draw(line, name) {
  const most = Math.max(...board.stats.map((row) => row[name] ?? 0), 1e-9);
  const step = 100 / Math.max(board.stats.length - 1, 1);
  const points = board.stats.map((row, index) => `${(index * step).toFixed(1)},${(22.5 - ((row[name] ?? 0) / most) * 18).toFixed(1)}`);
  mark(line, 'points', points.join(' '));
}

function makeFilters(wanted, changed) {
  const set = (key) => (event) => {
    wanted[key] = event.target.value;
    changed();
  };
  const search = el('input', { type: 'search', placeholder: 'Search  /', 'aria-label': 'Search names, holders, leases, metadata', value: wanted.q, oninput: set('q') });
  const prefix = el('select', { 'aria-label': 'Prefix', onchange: set('prefix') });
  const choice = (value, label) => el('label', {},
    el('input', { type: 'radio', name: 'state', value, checked: wanted.state === value, onchange: set('state') }), el('span', {}, label));
  const states = el('div.choices', { role: 'group', 'aria-label': 'Which locks' }, choice('', 'All'), choice('held', 'Held'), choice('waiting', 'With waiters'));
  const shownCount = el('p.quiet.shown', { role: 'status' });
  let offered = '';
  return {
    element: el('div.filters', {}, search, states, prefix, shownCount),
    render(shown) {
      write(shownCount, shown === board.locks.size ? many(shown, 'lock') : `${count(shown)} of ${many(board.locks.size, 'lock')}`);
      const options = prefixes(wanted.prefix);
      const key = options.map(([value, label]) => `${value}\n${label}`).join('\n\n');
      if (key === offered || document.activeElement === prefix) return;
      offered = key;
      prefix.replaceChildren(...options.map(([value, label]) => el('option', { value }, label)));
      prefix.value = wanted.prefix;
    },
  };
}

/** What names begin with, up to the next delimiter after the prefix that is chosen. */
function prefixes(chosen) {
  const counts = new Map();
  for (const name of board.locks.keys()) {
    if (!name.startsWith(chosen)) continue;
    const end = name.slice(chosen.length).search(/[:/.]/);
    if (end < 0) continue;
    const prefix = name.slice(0, chosen.length + end + 1);
    counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
  }
  const offered = [...counts].sort(([, a], [, b]) => b - a).slice(0, 30);
  const options = offered.map(([prefix, number]) => [prefix, `${prefix}… (${number})`]);
  return [['', 'All prefixes'], ...(chosen ? [[chosen, `${chosen}…`]] : []), ...options.filter(([prefix]) => prefix !== chosen)];
}

function makeTable(wanted, changed) {
  const heads = COLUMNS.map((column) => {
    const button = el('button', { type: 'button', onclick: () => {
      wanted.sort = wanted.sort === column.key ? `-${column.key}` : column.key;
      changed();
    } }, column.title);
    return el('th', { scope: 'col', class: column.key + (column.isNumber ? ' number' : '') }, button);
  });
  const body = el('tbody');
  const table = el('table.locks', { 'data-testid': 'locks' },
    el('caption.hidden', {}, 'Live locks with holders and leases'),
    el('thead', {}, el('tr', {}, heads)), body);
  const rows = new Rows(body, makeRow);
  return {
    element: table,
    rows,
    render(locks) {
      COLUMNS.forEach(({ key }, index) => {
        const order = wanted.sort === key ? 'ascending' : wanted.sort === `-${key}` ? 'descending' : null;
        mark(heads[index], 'aria-sort', order);
      });
      mark(table, 'aria-rowcount', locks.length + 1);
      mark(table, 'hidden', locks.length ? null : '');
      rows.show(locks);
    },
  };
}

function makeRow(first) {
  let lock = first;
  const name = el('a', {});
  const below = el('span.below');
  const cell = (kind) => el(`td.${kind}`);
  const [holder, fence, held, meta] = [cell('holder'), cell('fence.number'), cell('held.number'), cell('meta')];
  const waiting = el('span.badge');
  const bar = leaseBar();
  const element = el('tr', {}, el('th.name', { scope: 'row' }, name, below), holder, fence, held,
    el('td.lease', {}, bar.element), el('td.waiting.number', {}, waiting), meta);
  let flashed = first.isNew ? -Infinity : first.changedAt;
  return {
    element,
    update(next) {
      lock = next;
      write(name, lock.name);
      mark(name, 'href', `#/lock/${encodeURIComponent(lock.name)}`);
      mark(name, 'title', lock.name);
      const who = lock.held ? lock.who ?? NONE : 'none';
      for (const place of [below, holder]) write(place, who);
      mark(holder, 'title', who);
      write(fence, lock.fence === null ? NONE : String(lock.fence));
      write(waiting, count(lock.waiting));
      mark(waiting, 'data-some', lock.waiting > 0 ? '' : null);
      mark(held, 'title', lock.since ? `since ${lock.since}` : null);
      // The holder has its own column.
      const { owner, ...others } = lock.meta ?? {};
      const said = pairs(who.includes(owner) ? others : lock.meta);
      write(meta, said);
      mark(meta, 'title', said || null);
      if (lock.changedAt > flashed) flash(element);
      flashed = lock.changedAt;
    },
    tick(now) {
      write(held, lock.from === null ? NONE : length(now - lock.from));
      mark(element, 'data-lease', bar.tick(lock, now).state);
    },
  };
}

function flash(element) {
  if (isCalm()) return;
  const colour = getComputedStyle(document.documentElement).getPropertyValue('--flash');
  element.animate([{ backgroundColor: colour }, { backgroundColor: 'transparent' }], { duration: 1_200, easing: 'ease-out' });
}

function makeEmpty() {
  const words = el('p');
  const hint = takeHint();
  const element = el('section.empty', { hidden: true }, words, hint.element);
  return {
    element,
    render(shown) {
      mark(element, 'hidden', shown && board.isFilled ? '' : null);
      const isFree = board.isFilled && !board.locks.size;
      write(words, !board.isFilled ? 'Loading…' : isFree ? 'No locks are held or waited for.' : 'No locks match the filter.');
      mark(hint.element, 'hidden', isFree ? null : '');
      hint.render();
    },
  };
}
