// uPlot, loaded when the first chart is shown, and in the colours of the page.

import { el } from './dom.js';

let loading = null;

/** uPlot itself. */
export function load() {
  loading ??= new Promise((resolve, reject) => {
    document.head.append(el('link', { rel: 'stylesheet', href: 'assets/uplot.css' }),
      el('script', { src: 'assets/uplot.js', onload: () => resolve(window.uPlot), onerror: () => reject(new Error('the charts could not be loaded')) }));
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

/** A chart that fills its place and follows its width. `lines`: `[{ label, colour, dash, fill, show }]`. */
export async function chart(place, { lines, height, isTime = true, sync, show = (value) => value, axis = show, legend = true }) {
  const Plot = await load();
  const ink = colour('--quiet');
  const grid = { stroke: colour('--line'), width: 1 };
  const axisOf = (more) => ({ stroke: ink, grid, ticks: { show: false }, font: '11px system-ui, sans-serif', ...more });
  const options = {
    width: Math.max(place.clientWidth, 100),
    height,
    legend: { show: legend, live: legend },
    cursor: { sync: sync ? { key: sync } : undefined, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: isTime }, y: { range: (plot, least, most) => [Math.min(least ?? 0, 0), Math.max(most ?? 0, 0) * 1.08 || 1] } },
    axes: [axisOf({ size: 26, values: isTime ? undefined : (plot, ticks) => ticks.map((ms) => (ms >= 1_000 ? `${ms / 1_000} s` : `${ms} ms`)) }),
      axisOf({ size: 52, values: (plot, ticks) => ticks.map(axis) })],
    series: [{ value: isTime ? undefined : (plot, ms) => (ms === null ? '–' : `${Math.round(ms)} ms`) }, ...lines.map((line) => ({
      label: line.label,
      stroke: colour(line.colour),
      width: 1.75,
      dash: line.dash,
      fill: line.fill ? colour(line.fill) : undefined,
      paths: line.isStep ? Plot.paths.stepped({ align: 1 }) : undefined,
      points: { show: false },
      spanGaps: false,
      value: (plot, value) => (value === null || value === undefined ? '–' : show(value)),
    }))],
  };
  const plot = new Plot(options, [[], ...lines.map(() => [])], place);
  const observer = new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height });
  });
  observer.observe(place);
  return { set: (data) => plot.setData(data), close: () => { observer.disconnect(); plot.destroy(); } };
}
