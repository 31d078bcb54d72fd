// One lock: holder, waiters, history, forced release.

import { Refusal, ask, get, part, said } from './api.js';
import { board, now } from './board.js';
import { endLine, isHere, showLine } from './commands.js';
import { copyButton, el, mark, pair, write } from './dom.js';
import { NONE, clock, count, length, pairs, words } from './format.js';
import { leaseBar } from './lease.js';
import { timeline } from './timeline.js';

const EVENTS_SHOWN = 100;
/** A lock that changes hands all the time is asked about once a second. */
const RECALL_EVERY_MS = 1_000;

export const title = ({ rest }) => rest;

export function open(root, { rest: name }) {
  const history = { holds: [], events: [], hold: undefined };
  const card = holderCard(name);
  const [queue, drawing, events] = [el('div'), el('div'), el('div')];
  const state = el('span.state');
  root.append(
    el('p.trail', {}, el('a', { href: '#/locks' }, 'Locks'), ' / '),
    el('h1.title', {}, el('span', { title: name }, name), state),
    el('div.columns', {},
      el('section.card', { 'aria-label': 'Holder' }, el('h2', {}, 'Holder'), card.element),
      el('section.card', { 'aria-label': 'Queue' }, el('h2', {}, 'Queue'), queue)),
    el('section.card', { 'aria-label': 'Timeline' }, el('h2', {}, 'Holders over time'), drawing),
    el('section.card', { 'aria-label': 'Events' }, el('h2', {}, 'Last events'), events),
  );
  let drawnAt = -Infinity;
  let recalledAt = -Infinity;
  let isStale = true;
  let told = -1;

  async function recall() {
    isStale = false;
    recalledAt = performance.now();
    try {
      Object.assign(history, await get(`locks/${part(name)}/history`));
    } catch {
      // Nothing was seen of it yet, or the stream says what is wrong.
    }
    drawnAt = -Infinity;
    const lived = board.events.filter((event) => event.name === name);
    events.replaceChildren(eventList(history.events, lived));
  }

  function render() {
    const lock = board.locks.get(name);
    card.render(lock);
    showState(state, lock);
    queue.replaceChildren(waiters(lock));
    const last = board.events.findLast((event) => event.name === name) ?? null;
    // The id is hidden from those who may not end it.
    const hold = `${lock?.lease_id} ${lock?.fence}`;
    if (hold === history.hold && last === told) return;
    history.hold = hold;
    told = last;
    isStale = true;
  }

  return {
    render,
    tick(moment) {
      card.tick(moment);
      if (isStale && performance.now() - recalledAt >= RECALL_EVERY_MS) recall();
      if (performance.now() - drawnAt < 250) return;
      drawnAt = performance.now();
      const holds = withCurrent(history.holds ?? [], board.locks.get(name));
      drawing.replaceChildren(holds.length ? timeline(holds, moment) : el('p.quiet', {}, 'This instance has not seen a holder yet.'));
    },
    close: () => card.close(),
  };
}

/** The current hold, if the history does not have it. */
function withCurrent(holds, lock) {
  if (!lock?.held || holds.some((hold) => hold.lease_id === lock.lease_id && hold.fence === lock.fence && !hold.to)) return holds;
  const from = lock.since ?? new Date(now()).toISOString();
  return [...holds, { lease_id: lock.lease_id, fence: lock.fence, who: lock.who, from, to: null, end: null }];
}

function showState(element, lock) {
  const state = lock?.held ? 'held' : lock?.waiting ? 'has waiters' : 'free';
  write(element, state);
  mark(element, 'data-state', state);
}

function holderCard(name) {
  const bar = leaseBar();
  const facts = el('dl.facts');
  const actions = el('div.ending');
  const element = el('div', {}, facts, actions);
  let [lock, shown] = [undefined, undefined];
  const held = el('span');
  const release = forceRelease(name);
  element.append(release.dialog);
  function renderFacts() {
    if (!lock?.held) {
      facts.replaceChildren(pair('Holder', 'none'));
      actions.replaceChildren();
      return;
    }
    const { holder } = lock;
    facts.replaceChildren(pair('Holder', el('strong', {}, lock.who ?? NONE)), pair('Lease', bar.element),
      pair('Fence', el('span.mono', {}, String(lock.fence ?? NONE))), pair('Held for', held),
      ...(lock.lease_id ? [pair('Lease id', el('span.mono.long', {}, lock.lease_id))] : []), pair('ttl', lock.ttl_ms ? length(lock.ttl_ms) : NONE),
      ...(holder ? [pair('Client', el('span.mono.long', {}, `${holder.client}, tenure ${holder.version}`))] : []),
      ...(holder && pairs(holder.about) ? [pair('About', pairs(holder.about))] : []),
      ...(pairs(lock.meta) ? [pair('Meta', pairs(lock.meta))] : []));
    actions.replaceChildren(...ending(name, lock.lease_id),
      ...(board.about?.admin ? [el('button.danger', { type: 'button', 'data-testid': 'force', onclick: () => release.open(lock) }, 'Force release…')] : []));
  }
  return {
    element,
    render(next) {
      lock = next;
      // Not what a renewal changes: a button must not be replaced under the pointer.
      const key = JSON.stringify([lock?.held, lock?.lease_id, lock?.fence, lock?.who, lock?.ttl_ms, lock?.holder, lock?.meta, board.about?.admin, board.about?.locks]);
      if (key === shown) return;
      shown = key;
      renderFacts();
    },
    tick(moment) {
      if (!lock?.held) return;
      bar.tick(lock, moment);
      write(held, lock.from === null ? NONE : `${length(moment - lock.from)}, since ${clock(lock.from)}`);
    },
    close: () => release.dialog.close(),
  };
}

/** How to end a lease whose holder is gone. Its id is shown only to those who may. */
function ending(name, lease) {
  if (!board.about) return [];
  const copied = (line) => el('div.copy', {}, el('code', {}, line), copyButton(() => line));
  const wish = 'To release it if its holder is gone';
  if (lease) return [el('p.quiet', {}, `${wish}:`), copied(endLine(name, lease))];
  const admin = ['start the service with ', el('code', {}, '--allow-admin')];
  if (isHere()) return [el('p.quiet', {}, `${wish}, `, admin, '.')];
  return [el('p.quiet', {}, `${wish}, `, admin, ', or look up the lease id for ', el('code', {}, 'tenure force-unlock'), ':'), copied(showLine(name))];
}

/** Ends the lease that was shown when the dialog opened, and no later one. */
function forceRelease(name) {
  const typed = el('input', { 'aria-label': 'The name of the lock', autocomplete: 'off', spellcheck: 'false', 'data-testid': 'force-name' });
  const lease = el('code.long');
  const answer = el('p.answer', { role: 'alert' });
  const go = el('button.danger', { type: 'submit', disabled: true, 'data-testid': 'force-go' }, 'Force release');
  const cancel = el('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  const form = el('form', { method: 'dialog', autocomplete: 'off' },
    el('h2', {}, 'Force-release this lock?'),
    el('p', {}, 'Its holder is notified, but may keep working for a moment. Its late writes are refused only where fences are checked.'),
    el('p', {}, 'Lease ', lease), el('label', {}, 'Type the name of the lock to confirm: ', el('strong', {}, name), typed), answer,
    el('div.actions', {}, cancel, go));
  const dialog = el('dialog.force', {}, form);
  let target = null;
  typed.addEventListener('input', () => { go.disabled = typed.value !== name; });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (typed.value !== name) return;
    go.disabled = true;
    try {
      await ask(`locks/${part(name)}?lease_id=${part(target)}&force=true`, { method: 'DELETE' });
      dialog.close();
    } catch (error) {
      const isStale = error instanceof Refusal && error.status === 409;
      write(answer, `Refused: ${said(error)}${isStale ? ' Nothing was changed.' : ''}`);
    }
  });
  return {
    dialog,
    open(lock) {
      target = lock.lease_id;
      write(lease, target);
      write(answer, '');
      typed.value = '';
      go.disabled = true;
      dialog.showModal();
      typed.focus();
    },
  };
}

function waiters(lock) {
  if (!lock?.waiters?.length) return el('p.quiet', {}, 'No waiters.');
  const who = (waiter) => {
    const about = waiter.about ?? {};
    const more = [waiter.name, about.user, about.command].filter(Boolean);
    return `${waiter.host}:${waiter.pid}${more.length ? ` (${more.join(', ')})` : ''}`;
  };
  const owners = (waiter) => (waiter.owners?.length ? el('span.quiet', { 'data-testid': 'owners' }, ` for ${waiter.owners.join(', ')}`) : null);
  return el('ul.queue', {}, lock.waiters.map((waiter) => el('li', {},
    el('span', {}, who(waiter), owners(waiter)), el('span.badge', { 'data-some': '' }, `${count(waiter.waiting)} waiting`))));
}

function eventList(past, lived) {
  const first = lived[0]?.at ?? '';
  const all = [...(past ?? []).filter((event) => !first || event.at < first), ...lived].slice(-EVENTS_SHOWN).reverse();
  if (!all.length) return el('p.quiet', {}, 'This instance has not seen any events yet.');
  return el('ol.events', {}, all.map(eventLine));
}

/** One event, also for the list of all. */
export function eventLine(event) {
  const details = [event.fence && `fence ${event.fence}`, event.waiting && `${event.waiting} waiting`, event.held_ms && `held ${length(event.held_ms)}`];
  return el('li', { 'data-event': event.event },
    el('time', { datetime: event.at, title: event.at }, clock(event.at)),
    el('span.what', {}, words(event.event)),
    el('a.name', { href: `#/lock/${part(event.name)}` }, event.name),
    el('span.who', {}, event.who ?? ''),
    el('span.details', {}, details.filter(Boolean).join(' · ')));
}
