// Numbers, lengths of time and moments as people read them.

const GROUPED = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const PRECISE = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

export const NONE = '–';

/** `5,000`. */
export const count = (number) => (number === null || number === undefined ? NONE : GROUPED.format(number));

/** `1 lock`, `5,000 locks`. */
export const many = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;

/** `0.25`, `12.5`, `1,240`. */
export function rate(number) {
  if (number === null || number === undefined) return NONE;
  return Math.abs(number) >= 100 ? GROUPED.format(number) : PRECISE.format(number);
}

/** A short length: `0.42 ms`, `12 ms`, `1.3 s`. */
export function millis(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms >= 1_000) return length(ms);
  return `${ms >= 10 ? Math.round(ms) : PRECISE.format(ms)} ms`;
}

/** A length that people wait for: `0.4 s`, `12.3 s`, `4 min 05 s`, `3 h 12 min`, `2 d 4 h`. */
export function length(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return NONE;
  const seconds = Math.max(ms, 0) / 1_000;
  if (seconds < 60) return `${(Math.floor(seconds * 10) / 10).toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3_600), Math.floor(whole / 86_400)];
  const two = (number) => String(number).padStart(2, '0');
  if (minutes < 60) return `${minutes} min ${two(whole % 60)} s`;
  if (hours < 24) return `${hours} h ${two(minutes % 60)} min`;
  return `${days} d ${hours % 24} h`;
}

/** A moment of today as `14:03:07.120`, of another day with its date. */
export function clock(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return NONE;
  const time = date.toLocaleTimeString('en-GB', { hour12: false });
  const shown = `${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? shown : `${date.toLocaleDateString('en-CA')} ${shown}`;
}

/** `3.5 MiB`. */
export const bytes = (number) => (Number.isFinite(number) ? `${PRECISE.format(number / 2 ** 20)} MiB` : NONE);

/** `key=value, other=value`. */
export const pairs = (map) => Object.entries(map ?? {}).map(([key, value]) => `${key}=${value}`).join(', ');

/**
 * A text as a shell takes it for one word. A terminal would act on control characters in what is pasted,
 * and format characters hide what it is: they are written as their bytes, in `$'…'`, which bash, zsh, ksh
 * and busybox understand.
 */
export function quoted(text) {
  if (/^[\w@%+:,./][\w@%+=:,./-]*$/.test(text)) return text;
  if (!ACTING.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const byte = (number) => `\\${number.toString(8).padStart(3, '0')}`;
  const bytes = (letter) => Array.from(new TextEncoder().encode(letter), byte).join('');
  // Quotes and backslashes too: other shells take the name wrongly then, but still as one word.
  const written = (letter) => (ACTING.test(letter) || `'\\`.includes(letter) ? bytes(letter) : letter);
  return `$'${Array.from(text, written).join('')}'`;
}
const ACTING = /[\p{C}\p{Zl}\p{Zp}]/u;

/** Several of them behind the options of a command, none of which can be taken for an option. */
export const operands = (...texts) => `${texts.some((text) => text.startsWith('-')) ? '-- ' : ''}${texts.map(quoted).join(' ')}`;

/** `handed_on` as `handed on`. */
export const words = (name) => String(name ?? '').replaceAll('_', ' ');
