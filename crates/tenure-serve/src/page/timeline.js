// Who held a lock when: a line for each holder, a bar for each hold, with its fence.

import { el, svg } from './dom.js';
import { clock, length, many, words } from './format.js';

const LINES_MAX = 8;
const LINE = 30;
const TOP = 22;
/** What the drawing is wide inside; the page stretches it. */
const WIDTH = 1_000;
/** The share of the drawing that a bar needs to carry its fence. */
const MARK_MIN = 0.05;
const SPAN_MIN_MS = 10_000;
const SPAN_MAX_MS = 10 * 60_000;
const STATES = { forced: 'bad', expired: 'late' };
const SIGNS = { bad: '✕ ', late: '▲ ' };
const ENDS = { expired: 'expired' };

/** Draws the holds that fit, the newest to the right. */
export function timeline(holds, now) {
  const read = holds.map((hold) => ({ ...hold, start: Date.parse(hold.from), stop: hold.to ? Date.parse(hold.to) : now }));
  const oldest = Math.min(...read.map(({ start }) => start), now - SPAN_MIN_MS);
  const begin = Math.max(oldest, now - SPAN_MAX_MS);
  const seen = read.filter(({ stop }) => stop >= begin);
  const lines = [...new Set(seen.toReversed().map(({ who }) => who))].slice(0, LINES_MAX);
  const x = (at) => ((Math.max(at, begin) - begin) / (now - begin)) * WIDTH;
  const height = TOP + Math.max(lines.length, 1) * LINE;
  const drawing = svg('svg.timeline', { viewBox: `0 0 ${WIDTH} ${height}`, height, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `Holders in the last ${length(now - begin)}: ${many(lines.length, 'holder')}, ${many(seen.length, 'hold')}` },
  ticks(begin, now, x, height), seen.filter(({ who }) => lines.includes(who)).map((hold) => bar(hold, lines.indexOf(hold.who), x)));
  const names = el('ol.lanes', {}, lines.map((who) => el('li', { title: who }, who)));
  const marked = seen.filter(({ who }) => lines.includes(who)).map((hold) => fenceMark(hold, lines.indexOf(hold.who), x));
  return el('div.gantt', {}, names, el('div.drawing', {}, drawing, labels(begin, now), marked));
}

function ticks(begin, now, x, height) {
  return marks(begin, now).map((at) => svg('line.tick', { x1: x(at), x2: x(at), y1: 0, y2: height, 'vector-effect': 'non-scaling-stroke' }));
}

/** Texts are no part of the drawing, which is stretched. */
function labels(begin, now) {
  return marks(begin, now).map((at) => {
    const label = el('span.moment', {}, `−${length(now - at)}`);
    label.style.left = `${((at - begin) / (now - begin)) * 100}%`;
    return label;
  });
}

function marks(begin, now) {
  return [0, 1, 2, 3].map((quarter) => begin + ((now - begin) * quarter) / 4);
}

const stateOf = (hold) => (hold.to ? STATES[hold.end] ?? 'over' : 'now');

/** The fence of a hold, on its bar, if the bar is long enough to carry it. */
function fenceMark(hold, line, x) {
  const width = x(hold.stop) - x(hold.start);
  if (width < WIDTH * MARK_MIN || !hold.fence) return null;
  const mark = el('span.fence-mark', { 'data-state': stateOf(hold) }, `${SIGNS[stateOf(hold)] ?? ''}${hold.fence}`);
  mark.style.left = `${(x(hold.start) / WIDTH) * 100}%`;
  mark.style.width = `${(width / WIDTH) * 100}%`;
  mark.style.top = `${TOP + line * LINE + 4}px`;
  return mark;
}

function bar(hold, line, x) {
  const width = Math.max(x(hold.stop) - x(hold.start), 3);
  const state = stateOf(hold);
  const told = `fence ${hold.fence ?? '?'} · ${hold.who} · ${clock(hold.start)}, ${length(hold.stop - hold.start)}${hold.to ? `, ${ENDS[hold.end] ?? words(hold.end)}` : ', current holder'}`;
  return svg('rect.hold', { x: x(hold.start), y: TOP + line * LINE + 4, width, height: LINE - 10, rx: 3, 'data-state': state }, svg('title', {}, told));
}
