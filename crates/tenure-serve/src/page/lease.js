// A lease as a bar: full when granted or renewed, empty when it ends.

import { el, mark, write } from './dom.js';
import { length } from './format.js';

/** What is left of a lock's lease, in words and as a share. Renewal comes at two thirds. */
export function leaseOf(lock, now) {
  if (!lock.held) return { state: 'free', text: 'free', share: 0 };
  if (lock.expires === null) return { state: 'endless', text: 'no expiry', share: 1 };
  const left = lock.expires - now;
  if (left < 0) return { state: 'overdue', text: `✕ overdue ${length(-left)}`, share: 0 };
  const share = lock.ttl_ms ? Math.min(left / lock.ttl_ms, 1) : 1;
  if (lock.ttl_ms && share < 1 / 3) return { state: 'low', text: `▲ ${length(left)}`, share };
  return { state: 'held', text: length(left), share };
}

/** The element, and `tick` to bring it up to date. */
export function leaseBar() {
  const fill = el('span.fill');
  const text = el('span.left');
  const bar = el('span.bar', { 'aria-hidden': 'true' }, fill);
  const element = el('span.lasting', {}, bar, text);
  return {
    element,
    tick(lock, now) {
      const lease = leaseOf(lock, now);
      fill.style.width = `${(lease.share * 100).toFixed(2)}%`;
      write(text, lease.text);
      mark(element, 'data-state', lease.state);
      mark(element, 'title', lock.expires_at ? `expires ${lock.expires_at} unless renewed` : null);
      return lease;
    },
  };
}
