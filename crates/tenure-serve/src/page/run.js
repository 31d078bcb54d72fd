// One way to sell, and its last run: the curve of the stock, what was sold, and whether the books agree.

import { el, mark, pair, write } from './dom.js';
import { NONE, count, millis, rate, words } from './format.js';
import { chart } from './plot.js';

export const MODES = {
  naive: { name: 'Naive', does: 'read the stock, wait, write it back' },
  lock: { name: 'Lock', does: 'the same with a lock, and the write checks its fence' },
  script: { name: 'Script', does: 'check and subtract in one step on the server' },
};

export const isRunning = (run) => run?.state === 'running';

/** What became of it, in a word or two. */
export function verdict(run) {
  if (!run) return { state: 'none', text: 'not run yet' };
  if (run.oversold > 0) return { state: 'bad', text: `OVERSOLD by ${count(run.oversold)}` };
  if (isRunning(run)) return { state: 'running', text: 'selling…' };
  if (run.state === 'failed') return { state: 'bad', text: `failed: ${run.detail ?? 'no reason given'}` };
  if (run.state === 'stopped') return { state: 'stopped', text: 'stopped' };
  return run.holds ? { state: 'good', text: 'EXACT' } : { state: 'bad', text: 'does not add up' };
}

/** The line that must hold, with a sign. */
export function invariant(run) {
  if (!run?.invariant) return '';
  return isRunning(run) ? run.invariant : `${run.holds ? '✔' : '✘'} ${run.invariant}`;
}

/** A card for a mode. `render(run)` with its last run, or nothing. */
export function runCard(mode) {
  const plot = el('div.plot');
  const [result, sum, facts, faults, state] = [el('p.verdict'), el('p.invariant'), el('dl.figures'), el('ul.faults'), el('span.quiet')];
  const element = el('section.card.run', { 'data-mode': mode, 'aria-label': MODES[mode].name },
    el('h2', {}, MODES[mode].name, state), el('p.quiet.does', {}, MODES[mode].does), result, sum, plot, facts, faults);
  let drawing = null;
  let drawn = '';

  async function redraw() {
    (await drawing)?.close();
    drawn = '';
    drawing = chart(plot, { height: 130, isTime: false, show: count, isWhole: true, atLeast: 10,
      lines: [{ label: 'Stock minus sold', colour: '--accent', fill: '--accent-soft' }, { colour: '--red', fill: '--red-soft' }] });
    return drawing;
  }

  return {
    element,
    redraw,
    render(run) {
      const { state: kind, text } = verdict(run);
      mark(element, 'data-verdict', kind);
      write(result, text);
      write(state, run ? (isRunning(run) ? 'running' : `${run.state}, ${millis(run.took_ms)}`) : '');
      write(sum, invariant(run));
      facts.replaceChildren(...figures(run));
      faults.replaceChildren(...(run?.faults ?? []).map(({ at_ms: at, fault, told }) => el('li', {}, el('strong', {}, `${millis(at)} ${words(fault)}`), ` ${told ?? ''}`)));
      const curve = run?.curve ?? [];
      const key = `${run?.id} ${run?.state} ${curve.length}`;
      if (key === drawn) return;
      drawn = key;
      drawing?.then((plot) => plot.set(columns(curve, run)));
    },
    close: async () => (await drawing)?.close(),
  };
}

function figures(run) {
  const figure = (term, value) => pair(term, value ?? NONE);
  const shares = (run?.by_instance ?? []).map((one) => (typeof one === 'object' ? one.sold : one));
  return [figure('Sold', run && `${count(run.sold)} of ${count(run.stock)}`), figure('Counter', run && `${count(run.left)} left`),
    figure('Stale writes refused', run && count(run.refused_stale)), figure('Leases lost', run && count(run.lost)),
    figure('Sold / s', run && rate(run.sold_per_s)), figure('p50 / p99', run && `${millis(run.p50_ms)} / ${millis(run.p99_ms)}`),
    figure('By instance', shares.length ? shares.map(count).join(' · ') : null)];
}

/** The curve, and its part below zero. */
function columns(curve, run) {
  const points = crossed(run ? whole(curve, run) : []);
  const isBelow = (index) => (points[index]?.[1] ?? 0) < 0;
  const below = points.map(([, left], index) => (isBelow(index) || (left === 0 && (isBelow(index - 1) || isBelow(index + 1))) ? left : null));
  return [points.map(([ms]) => ms), points.map(([, left]) => left), below];
}

/** The curve from the first moment, and to the last once that is over: a short run has hardly a point between. */
function whole(curve, run) {
  const isBegun = curve[0]?.[0] === 0;
  const isEnded = isRunning(run) || !run.took_ms || curve.at(-1)?.[0] >= run.took_ms;
  return [...(isBegun ? [] : [[0, run.stock]]), ...curve, ...(isEnded ? [] : [[run.took_ms, run.stock - run.sold]])];
}

/** The curve with a point where it goes through zero, so that no part has the other's colour. */
function crossed(curve) {
  return curve.flatMap(([ms, left], index) => {
    const [msBefore, leftBefore] = curve[index - 1] ?? [ms, left];
    if (leftBefore <= 0 || left >= 0) return [[ms, left]];
    return [[msBefore + ((ms - msBefore) * leftBefore) / (leftBefore - left), 0], [ms, left]];
  });
}

/** A row of the comparison. */
export function runRow(run) {
  const { state, text } = verdict(run);
  const number = (value) => el('td.number', {}, value);
  return el('tr', { 'data-verdict': state },
    el('th', { scope: 'row' }, MODES[run.mode]?.name ?? run.mode), el('td', {}, el('span.tag', {}, text)),
    number(count(run.stock)), number(count(run.buyers)), number(count(run.sold)), number(count(run.oversold)), number(count(run.refused_stale)),
    number(rate(run.sold_per_s)), number(millis(run.p50_ms)), number(millis(run.p99_ms)), number(millis(run.took_ms)),
    el('td.quiet', {}, (run.faults ?? []).map(({ fault }) => words(fault)).join(', ') || 'none'), number(String(run.seed ?? NONE)));
}
