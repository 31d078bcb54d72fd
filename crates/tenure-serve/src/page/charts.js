// The last five minutes, hour or day, from what this instance remembers; no other system is needed.

import { get, said } from './api.js';
import { board, rows } from './board.js';
import { el } from './dom.js';
import { count, millis, rate } from './format.js';
import { chart } from './plot.js';

const WINDOWS = { '5m': '5 minutes', '1h': '1 hour', '24h': '24 hours' };
const REFRESH_MS = 15_000;
const CHARTS = [
  { title: 'Held and waiting', show: count, lines: [['held', 'Held', '--accent'], ['waiting', 'Waiting', '--amber', [6, 4]]], isStep: true, isWhole: true, atLeast: 4 },
  { title: 'Acquired and busy per second', show: rate, lines: [['acquired', 'Acquired', '--green'], ['busy', 'Busy', '--amber', [6, 4]]] },
  { title: 'Time to acquire', show: millis, lines: [['wait_p99_ms', 'p99', '--accent'], ['wait_p50_ms', 'p50', '--quiet', [6, 4]]] },
  { title: 'Hold time', show: millis, lines: [['hold_p99_ms', 'p99', '--accent'], ['hold_p50_ms', 'p50', '--quiet', [6, 4]]] },
  { title: 'Redis round trip', show: millis, lines: [['store_ms', 'Redis', '--green']] },
  { title: 'Expired per second', show: rate, lines: [['lost', 'Expired', '--amber']] },
];

export const title = () => 'Charts';

export function open(root, { query }) {
  const window = Object.hasOwn(WINDOWS, query.get('window')) ? query.get('window') : '5m';
  const problem = el('p.quiet', { role: 'status' });
  const places = CHARTS.map(({ title: name }) => ({ name, place: el('div.plot') }));
  const choices = el('div.choices', { role: 'group', 'aria-label': 'Time window' }, Object.entries(WINDOWS).map(([value, label]) => el('label', {},
    el('input', { type: 'radio', name: 'window', checked: value === window, onchange: () => { location.hash = `#/charts?window=${value}`; } }), el('span', {}, label))));
  root.append(el('h1', {}, 'Charts'), el('div.filters', {}, choices, problem),
    el('div.charts', {}, places.map(({ name, place }) => el('section.card', {}, el('h2', {}, name), place))));
  let charts = [];
  let past = [];
  let isOpen = true;

  async function draw() {
    charts.forEach((one) => one.close());
    charts = [];
    const made = CHARTS.map(({ lines, show, isStep, isWhole, atLeast }, index) => chart(places[index].place, {
      height: 180, sync: 'tenure', show, isWhole, atLeast,
      lines: lines.map(([, label, colour, dash]) => ({ label, colour, dash, isStep })),
    }));
    charts = await Promise.all(made);
    if (!isOpen) charts.forEach((one) => one.close());
    fill();
  }

  function fill() {
    const known = window === '5m' ? board.stats : past;
    const at = known.map((row) => row.at / 1_000);
    charts.forEach((one, index) => one.set([at, ...CHARTS[index].lines.map(([name]) => known.map((row) => row[name] ?? null))]));
  }

  async function recall() {
    if (window === '5m') return;
    try {
      past = rows(await get(`stats?window=${window}`));
      problem.textContent = '';
    } catch (error) {
      problem.textContent = said(error);
    }
    fill();
  }

  const recolour = () => draw();
  addEventListener('themechange', recolour);
  const timer = setInterval(recall, REFRESH_MS);
  draw().catch((error) => { problem.textContent = error.message; });
  recall();
  let drawnFor = null;
  return {
    render() {
      const last = board.stats.at(-1)?.at;
      if (window !== '5m' || last === drawnFor) return;
      drawnFor = last;
      fill();
    },
    close() {
      isOpen = false;
      clearInterval(timer);
      removeEventListener('themechange', recolour);
      charts.forEach((one) => one.close());
    },
  };
}
