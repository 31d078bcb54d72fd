// What the page knows: filled by the stream, read by the views. Nothing here touches the page.

import { get } from './api.js';

const EVENTS_MAX = 5_000;
/** Five minutes, a value each second. */
const STATS_MAX = 300;
const RUNS_MAX = 20;
const LEARN_AGAIN_MS = 2_000;

export const board = {
  about: null,
  /** By name. */
  locks: new Map(),
  /** Why the store does not answer, or null. */
  away: null,
  /** The newest last. Another array once the past has been filled in. */
  events: [],
  stats: [],
  /** Runs of the playground by id, the newest last. */
  runs: new Map(),
  /** Items on sale by name. */
  items: new Map(),
  /** `connecting`, `open` or `lost`. */
  connection: 'connecting',
  trouble: '',
  /** Whether a first picture of the locks has come. */
  isFilled: false,
  isPaused: false,
  /** When the stream last gave a sign of life, by this page's own clock. */
  heardAt: performance.now(),
  /** Grows with every change, so that views know whether to draw. */
  version: 0,
};

/** This computer's clock less the service's: the smallest difference seen, since messages take time. */
let skew = Infinity;

/** The service's clock, in milliseconds since 1970. */
export const now = () => Date.now() - (Number.isFinite(skew) ? skew : 0);

/** A message of the stream. */
export function hear(event, data) {
  if (data.at) skew = Math.min(skew, Date.now() - Date.parse(data.at));
  const known = HEARD[event];
  if (!known) return;
  known(data);
  board.version += 1;
}

/** A new stream has begun: clocks may have been set meanwhile. */
export function opened() {
  skew = Infinity;
  board.connection = 'open';
  board.version += 1;
  learn();
}

export function heard() {
  board.heardAt = performance.now();
}

export function lost(error, pause) {
  board.connection = 'lost';
  board.trouble = `${error.message}; retrying in ${Math.max(pause / 1_000, 0.1).toFixed(1)} s`;
  board.version += 1;
}

const HEARD = {
  'locks.snapshot': ({ locks, away }) => {
    const known = board.locks;
    board.locks = new Map(locks.map((lock) => [lock.name, take(lock, known.get(lock.name))]));
    board.away = away ?? null;
    board.isFilled = true;
  },
  'lock.changed': ({ lock }) => {
    board.locks.set(lock.name, take(lock, board.locks.get(lock.name)));
  },
  'lock.gone': ({ name }) => board.locks.delete(name),
  'lock.event': (event) => {
    board.events.push(event);
    if (board.events.length > EVENTS_MAX) board.events.splice(0, EVENTS_MAX / 10);
  },
  'store.away': ({ detail }) => { board.away = detail ?? 'no response'; },
  'store.back': () => { board.away = null; },
  stats: (stats) => {
    board.stats.push({ ...stats, at: Date.parse(stats.at) });
    if (board.stats.length > STATS_MAX) board.stats.shift();
  },
  'playground.snapshot': ({ runs }) => {
    const known = board.runs;
    const ordered = [...runs].sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
    board.runs = new Map(ordered.map((run) => [run.id, withCurve(run, known.get(run.id))]));
  },
  'playground.run': (run) => {
    board.runs.set(run.id, withCurve(run, board.runs.get(run.id)));
    if (board.runs.size > RUNS_MAX) board.runs.delete(board.runs.keys().next().value);
  },
  'sale.snapshot': ({ items }) => {
    board.items = new Map(items.map((item) => [item.item, item]));
  },
  'sale.item': (item) => board.items.set(item.item, item),
};

/** A lock with its moments read once, and when it last changed hands or its queue did. */
function take(lock, before) {
  lock.expires = lock.expires_at ? Date.parse(lock.expires_at) : null;
  lock.from = lock.since ? Date.parse(lock.since) : null;
  const isSame = before && before.lease_id === lock.lease_id && before.fence === lock.fence && before.waiting === lock.waiting;
  lock.changedAt = isSame ? before.changedAt : performance.now();
  lock.isNew = !before;
  return lock;
}

/** A run with all of its curve: messages bring only what is new of it. */
function withCurve(run, before) {
  const curve = run.curve ?? before?.curve ?? [];
  const last = curve.length ? curve[curve.length - 1][0] : -1;
  const added = (run.curve_tail ?? []).filter(([ms]) => ms > last);
  return { ...run, curve: added.length ? [...curve, ...added] : curve };
}

/** What is asked for once a stream is open, again if it does not come. */
async function learn() {
  try {
    const [about, past, { events }] = await Promise.all([get('about'), get('stats?window=5m'), get('history')]);
    board.about = about;
    board.events = merged(events, board.events);
    const first = board.stats[0]?.at ?? Infinity;
    board.stats = [...rows(past).filter((row) => row.at < first), ...board.stats].slice(-STATS_MAX);
    board.version += 1;
  } catch {
    setTimeout(() => { if (board.connection === 'open') learn(); }, LEARN_AGAIN_MS);
  }
}

/** What the service remembers and what the stream sent, each event once, the newest last. */
function merged(past, lived) {
  const key = ({ at, event, name, fence, waiting }) => JSON.stringify([at, event, name, fence, waiting]);
  const known = new Set(lived.map(key));
  const all = [...past.filter((event) => !known.has(key(event))), ...lived];
  return all.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)).slice(-EVENTS_MAX);
}

/** Columns as rows. */
export function rows({ at, step_ms: step, ...columns }) {
  const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
  return at.map((moment, index) => {
    const row = { at: moment, step };
    for (const name of names) row[name] = columns[name][index];
    return row;
  });
}
