// The flash sale: one stock, many buyers, three ways to sell, and faults while they do.

import { get, part, post, said } from './api.js';
import { board } from './board.js';
import { sellLine } from './commands.js';
import { download, el, mark, write } from './dom.js';
import { count, many, words } from './format.js';
import { MODES, isRunning, runCard, runRow } from './run.js';

const FAULTS = {
  pause_holder: ['Pause holder', 'The holder pauses longer than its lease, as in a long garbage collection'],
  drop_renewals: ['Drop renewals', 'Renewals are lost'],
  kill_holder: ['Kill holder', 'The holder dies without releasing'],
};
const INPUTS = [
  ['stock', 'Stock', 100, 1], ['buyers', 'Buyers', 500, 1], ['concurrency', 'Concurrency', 50, 1], ['instances', 'Instances', 4, 1],
  ['work_ms', 'Work, ms', 5, 0], ['ttl_ms', 'Lease, ms', 2_000, 100],
];
const HEADS = ['Way', 'Result', 'Stock', 'Buyers', 'Sold', 'Oversold', 'Stale refused', 'Sold / s', 'p50', 'p99', 'Took', 'Faults', 'Seed'];

export const title = () => 'Flash sale';

export function open(root, { query }) {
  const cards = Object.fromEntries(Object.keys(MODES).map((mode) => [mode, runCard(mode)]));
  const answer = el('p.answer', { role: 'alert' });
  const controls = makeControls(query.get('mode'), answer);
  const table = makeComparison();
  const items = makeItems();
  root.append(el('h1', {}, 'Flash sale'), el('p.lead', {}, 'One stock, many buyers, several instances. Watch the naive way oversell, and two ways that do not.'),
    items.pointer, controls.element, el('div.runs', {}, Object.values(cards).map(({ element }) => element)), items.element, table.element);
  const asked = new Set();
  const redraw = () => Promise.all(Object.values(cards).map((card) => card.redraw())).then(render).catch((error) => write(answer, error.message));

  function render() {
    const runs = [...board.runs.values()];
    for (const [mode, card] of Object.entries(cards)) {
      const last = runs.findLast((run) => run.mode === mode);
      card.render(last);
      recall(last);
    }
    controls.render(runs.find(isRunning));
    table.render(runs);
    items.render();
  }

  /** The whole curve of a run that was over before this page was opened. */
  async function recall(run) {
    if (!run || isRunning(run) || run.curve.length > 1 || asked.has(run.id)) return;
    asked.add(run.id);
    try {
      board.runs.set(run.id, await get(`playground/runs/${part(run.id)}`));
      board.version += 1;
    } catch {
      // It is too old, and its figures are all that is left.
    }
  }

  addEventListener('themechange', redraw);
  redraw();
  return {
    render,
    close() {
      removeEventListener('themechange', redraw);
      controls.close();
      for (const card of Object.values(cards)) card.close();
    },
  };
}

function makeControls(mode, answer) {
  const inputs = Object.fromEntries(INPUTS.map(([key, , value, min]) => [key, el('input', { type: 'number', name: key, value, min, required: true, inputmode: 'numeric' })]));
  const seed = el('input', { name: 'seed', placeholder: 'any', inputmode: 'numeric', pattern: '[0-9]*', autocomplete: 'off' });
  const fault = el('select', { name: 'fault' }, el('option', { value: '' }, 'none'), Object.entries(FAULTS).map(([key, [name]]) => el('option', { value: key }, name.toLowerCase())));
  const modes = el('div.choices', { role: 'group', 'aria-label': 'How to sell' }, Object.entries(MODES).map(([key, { name }], index) => el('label', {},
    el('input', { type: 'radio', name: 'mode', value: key, checked: Object.hasOwn(MODES, mode) ? key === mode : index === 0 }), el('span', {}, name))));
  const run = el('button.primary', { type: 'submit', 'data-testid': 'run' }, 'Run');
  const all = el('button', { type: 'button', 'data-testid': 'compare', onclick: () => attempt(compare) }, 'Run all three and compare');
  const stop = el('button', { type: 'button', disabled: true, onclick: () => attempt(() => post(`playground/runs/${part(running.id)}/stop`)) }, 'Stop');
  const faults = el('div.fault-buttons', { role: 'group', 'aria-label': 'Faults' }, el('span.quiet', {}, 'While it runs:'),
    Object.entries(FAULTS).map(([key, [name, what]]) => el('button.small', { type: 'button', title: what, disabled: true, 'data-fault': key,
      onclick: () => attempt(() => post(`playground/runs/${part(running.id)}/faults`, { fault: key })) }, name)));
  const reason = el('p.quiet', { hidden: true }, 'Runs are off: the service is read-only (--read-only).');
  const form = el('form.card.controls', { autocomplete: 'off', onsubmit: (event) => {
    event.preventDefault();
    attempt(() => begin(new FormData(form).get('mode')));
  } }, modes, el('div.inputs', {}, INPUTS.map(([key, label]) => el('label', {}, el('span', {}, label), inputs[key])),
    el('label', {}, el('span', {}, 'Fault'), fault), el('label', {}, el('span', {}, 'Seed'), seed)), el('div.actions', {}, run, all, stop, faults), reason, answer);
  let running;
  let isComparing = false;
  let isClosed = false;

  const begin = (chosen) => post('playground/runs', { mode: chosen, ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, Number(input.value)])),
    ...(fault.value && { fault: fault.value }), ...(seed.value && { seed: Number(seed.value) }) });

  async function compare() {
    if (!form.reportValidity()) return;
    isComparing = true;
    render(running);
    try {
      for (const chosen of Object.keys(MODES)) {
        const begun = await begin(chosen);
        const ended = await over(begun.id, () => isClosed);
        if (ended?.state !== 'done') return;
      }
    } finally {
      isComparing = false;
      render(running);
    }
  }

  async function attempt(action) {
    write(answer, '');
    try {
      await action();
    } catch (error) {
      write(answer, said(error));
    }
  }

  function render(now) {
    running = now;
    const isReadOnly = board.about?.read_only ?? false;
    run.disabled = all.disabled = isReadOnly || isComparing || Boolean(running);
    stop.disabled = !running;
    for (const button of faults.querySelectorAll('button')) button.disabled = !running;
    reason.hidden = !isReadOnly;
  }

  return { element: form, render, close: () => { isClosed = true; } };
}

/** Waits until the stream says that a run has ended. */
function over(id, isClosed) {
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      const run = board.runs.get(id);
      if ((!run || isRunning(run)) && !isClosed()) return;
      clearInterval(timer);
      resolve(run);
    }, 50);
  });
}

function makeComparison() {
  const body = el('tbody');
  const save = el('button.small', { type: 'button', onclick: () => download('tenure-runs.json', 'application/json', JSON.stringify([...board.runs.values()], null, 2)) }, 'Download JSON');
  const element = el('section.card', { 'aria-label': 'Comparison', hidden: true }, el('h2', {}, 'Comparison', save),
    el('div.scroll', { tabindex: 0, role: 'region', 'aria-label': 'Comparison of runs' },
      el('table.comparison', { 'data-testid': 'comparison' }, el('caption.hidden', {}, 'The last runs, the newest first'),
        el('thead', {}, el('tr', {}, HEADS.map((head, index) => el(index > 1 && index !== 11 ? 'th.number' : 'th', { scope: 'col' }, head)))), body)));
  return {
    element,
    render(runs) {
      mark(element, 'hidden', runs.length ? null : '');
      body.replaceChildren(...runs.toReversed().map(runRow));
    },
  };
}

/** The items of the real sale, and at the top of the view a word that they are there. */
function makeItems() {
  const body = el('tbody');
  const heads = ['Item', 'State', 'Total', 'Left', 'Queued', 'Sold', ''];
  const table = el('div.scroll', { tabindex: 0, role: 'region', 'aria-label': 'Items on sale' },
    el('table.items', { 'data-testid': 'items' }, el('caption.hidden', {}, 'Items of the real sale'),
      el('thead', {}, el('tr', {}, heads.map((head, index) => el(index > 1 ? 'th.number' : 'th', { scope: 'col' }, head)))), body));
  const line = el('code');
  const advice = el('p.quiet');
  const none = el('div', {}, advice, el('div.copy', {}, line));
  const element = el('section.card', { 'aria-label': 'Items', hidden: true }, el('h2', {}, 'Items of the real sale'), table, none);
  const go = el('button.small', { type: 'button', onclick: () => element.scrollIntoView({ block: 'center' }) }, 'Show');
  const [told, pointer] = [el('span'), el('p.actions.pointer', { hidden: true })];
  pointer.append(told, go);
  return {
    element,
    pointer,
    render() {
      const items = [...board.items.values()];
      write(line, sellLine());
      write(advice, `No items on sale.${board.about?.read_only ? '' : line.textContent ? ' Create one, and it appears here:' : ' To create one here, start the service with --allow-admin.'}`);
      mark(element, 'hidden', items.length || board.about?.sales ? null : '');
      mark(table, 'hidden', items.length ? null : '');
      mark(none, 'hidden', items.length ? '' : null);
      mark(line.parentElement, 'hidden', line.textContent && !board.about?.read_only ? null : '');
      mark(pointer, 'hidden', items.length ? null : '');
      write(told, `Below the playground: ${many(items.length, 'item')} of the real sale.`);
      body.replaceChildren(...items.map(itemRow));
    },
  };
}

function itemRow(item) {
  const limited = (value) => (item.total === null ? '∞' : count(value));
  const numbers = [limited(item.total), limited(item.left), count(item.queued), count(item.sold)].map((value) => el('td.number', {}, value));
  const share = el('progress', { max: item.total || 1, value: item.sold ?? 0, 'aria-label': `sold of ${item.item}` });
  return el('tr', {}, el('th', { scope: 'row' }, item.item), el('td', {}, words(item.state)), numbers, el('td', {}, item.total ? share : null));
}
