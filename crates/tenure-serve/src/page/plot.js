// uPlot, loaded when the first chart is shown, and in the colours of the page.

import { el, write } from './dom.js';

let loading = null;

/** uPlot itself. */
export function load() {
  loading ??= new Promise((resolve, reject) => {
    document.head.append(el('link', { rel: 'stylesheet', href: 'assets/uplot.css' }),
      el('script', { src: 'assets/uplot.js', onload: () => resolve(window.uPlot), onerror: () => reject(new Error('cannot load the charts')) }));
  });
  return loading;
}

/** A colour of the page by its name, as in `--accent`. */
export function colour(name) {
  const probe = el('span.probe');
  document.body.append(probe);
  probe.style.color = `var(${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const SHORT_CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
/** In seconds: a chart of less would show little more than its own axis. */
const TIME_MIN = 60;
const MINUTE = 60;
/** Between two labels where only whole numbers mean something. */
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const span = (ms) => (ms >= 1_000 ? `${ms / 1_000} s` : `${ms} ms`);

/**
 * A chart that fills its place and follows its width, with its legend above: the newest values, or
 * those under the pointer. `lines`: `[{ label, colour, dash, fill, isStep }]`; without a label, a line is not in it.
 * The scale goes up to `atLeast`, also where there is nothing to show.
 */
export async function chart(place, { lines, height, isTime = true, sync, show, atLeast = 1, isWhole = false }) {
  const Plot = await load();
  const legend = makeLegend(lines, isTime, show);
  place.replaceChildren(legend.element);
  const options = {
    width: Math.max(place.clientWidth, 100),
    height,
    padding: [8, isTime ? 30 : 22, 0, 0],
    legend: { show: false },
    cursor: { sync: sync ? { key: sync } : undefined, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: isTime, range: isTime ? moments : lengths },
      y: { range: (plot, least, most) => [Math.min(least ?? 0, 0) * 1.08, Math.max((most ?? 0) * 1.08, atLeast)] } },
    axes: axes({ isTime, show, isWhole }),
    series: [{}, ...lines.map((line) => ({
      stroke: colour(line.colour),
      width: 1.75,
      dash: line.dash,
      fill: line.fill ? colour(line.fill) : undefined,
      paths: line.isStep ? Plot.paths.stepped({ align: 1 }) : undefined,
      points: { show: false },
    }))],
    hooks: { setCursor: [(plot) => legend.tell(plot.data, plot.cursor.idx)] },
  };
  const plot = new Plot(options, [[], ...lines.map(() => [])], place);
  const observer = new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height });
  });
  observer.observe(place);
  return {
    set(data) {
      plot.setData(data);
      legend.tell(data, plot.cursor.idx);
    },
    close() {
      observer.disconnect();
      plot.destroy();
    },
  };
}

function moments(plot, first, last) {
  const end = last ?? Date.now() / 1_000;
  return [Math.min(first ?? end, end - TIME_MIN), end];
}

const lengths = (plot, first, last) => [0, last || 1_000];

function axes({ isTime, show, isWhole }) {
  const grid = { stroke: colour('--line'), width: 1 };
  const common = { stroke: colour('--quiet'), grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const moment = (step) => (isTime ? (value) => (step < MINUTE ? CLOCK : SHORT_CLOCK).format(value * 1_000) : span);
  const width = (plot, labels) => 18 + 7 * Math.max(3, ...(labels ?? []).map((label) => label?.length ?? 0));
  return [
    { ...common, size: 24, space: 70, values: (plot, ticks, axis, space, step) => ticks.map(moment(step)) },
    { ...common, size: width, ...(isWhole && { incrs: WHOLE }), values: (plot, ticks) => ticks.map(show) },
  ];
}

function makeLegend(lines, isTime, show) {
  const at = el('span.at');
  const values = lines.map(() => el('output'));
  const entries = lines.map(({ label, colour: name, dash }, index) => {
    const sign = el('span.sign', { 'aria-hidden': 'true', 'data-dashed': dash ? '' : null });
    sign.style.color = `var(${name})`;
    return label ? el('span', {}, sign, label, values[index]) : null;
  });
  return {
    element: el('p.legend', {}, entries, at),
    tell([moments, ...columns], index) {
      const chosen = index ?? moments.length - 1;
      columns.forEach((column, line) => write(values[line], show(column[chosen] ?? null)));
      const moment = moments[chosen];
      write(at, index === null || index === undefined || moment === undefined ? '' : isTime ? CLOCK.format(moment * 1_000) : span(Math.round(moment)));
    },
  };
}
