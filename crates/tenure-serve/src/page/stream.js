// The one stream of events that all views share. Read by fetch, since the browser's own reader of
// event streams cannot bring a token.

import { ask } from './api.js';

const OF_LOCKS = /^(lock|store)\./;
const TOPICS = 'locks,stats,playground,sales';
/** The service says something every second, and at the latest every ten. */
const SILENCE_MAX_MS = 25_000;
/** How long a hidden page keeps reading. */
const HIDDEN_MAX_MS = 30_000;
const PAUSE_MIN_MS = 300;
const PAUSE_MAX_MS = 5_000;

/** The id of the last message about locks: the service resumes from there if it can. */
let lastId = null;
/** Whether the page is hidden. A browser has six connections per service; a hidden page must not keep one. */
let isResting = false;
let stopReading = () => {};
let resumeNow = () => {};

/** Follows the stream forever: `hear(event, data)` for each message, `heard()` for any sign of life. */
export async function follow({ opened, hear, heard, lost }) {
  minimise();
  for (let failures = 0; ; failures += 1) {
    try {
      await read({ opened: () => { failures = 0; opened(); }, hear, heard });
      throw new Error('the service closed the stream');
    } catch (error) {
      const isCalled = new Promise((resolve) => { resumeNow = resolve; });
      const pause = Math.min(PAUSE_MIN_MS * 2 ** failures, PAUSE_MAX_MS) * (0.75 + Math.random() / 2);
      if (!isResting) lost(error, pause);
      const isOver = isResting ? new Promise(() => {}) : new Promise((resolve) => setTimeout(resolve, pause));
      await Promise.race([isCalled, isOver]);
    }
  }
}

/** Gives the connection back when the page is left or has been out of sight for a while. */
function minimise() {
  let timer;
  const rest = () => {
    isResting = true;
    stopReading();
  };
  const wake = () => {
    clearTimeout(timer);
    isResting = false;
    resumeNow();
  };
  addEventListener('pagehide', rest);
  addEventListener('pageshow', wake);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) timer = setTimeout(rest, HIDDEN_MAX_MS);
    else wake();
  });
}

async function read({ opened, hear, heard }) {
  const controller = new AbortController();
  stopReading = () => controller.abort(new Error('the page is hidden'));
  let watchdog;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => controller.abort(new Error('the stream timed out')), SILENCE_MAX_MS);
    heard();
  };
  try {
    const response = await ask(`events?topics=${TOPICS}`, { signal: controller.signal, headers: lastId === null ? {} : { 'last-event-id': lastId } });
    opened();
    alive();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(hear);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      parse(value);
    }
  } finally {
    clearTimeout(watchdog);
    controller.abort();
  }
}

/** Takes text in pieces and passes on whole messages. */
function parser(hear) {
  // Pieces of a line that has no end yet: a snapshot can be megabytes, so they are joined once.
  let pieces = [];
  let event = 'message';
  let id = null;
  let data = [];
  const line = (text) => {
    if (text === '') {
      if (data.length) hear(event, JSON.parse(data.join('\n')));
      if (id !== null && OF_LOCKS.test(event)) lastId = id;
      event = 'message';
      id = null;
      data = [];
    } else if (text.startsWith('event:')) event = text.slice(6).trim();
    else if (text.startsWith('id:')) id = text.slice(3).trim();
    else if (text.startsWith('data:')) data.push(text.slice(text[5] === ' ' ? 6 : 5));
  };
  return (text) => {
    let from = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      pieces.push(text.slice(from, end));
      line(pieces.length === 1 ? pieces[0] : pieces.join(''));
      pieces = [];
      from = end + 1;
    }
    if (from < text.length) pieces.push(text.slice(from));
  };
}
