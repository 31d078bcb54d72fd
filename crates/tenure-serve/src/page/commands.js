// Shell commands for these locks.

import { part } from './api.js';
import { board } from './board.js';
import { el, write } from './dom.js';
import { operands, quoted } from './format.js';

/** Whether the locks are in the service's own process, where no other command reaches them. */
export const isHere = () => (board.about?.locks ?? '').startsWith('memory:');

/** Takes a lock for half a minute. */
export const takeLine = () => (isHere()
  ? `${curl('POST', 'locks/demo')} -H 'content-type: application/json' -d '{"ttl_ms": 30000}'`
  : `tenure run ${at()}demo -- sleep 30`);

/** Shows the holder and the lease id of a lock. */
export const showLine = (name) => `tenure show ${at()}${operands(name)}`;

/** Releases a lock of another client. */
export const endLine = (name, lease) => (isHere()
  ? curl('DELETE', `locks/${part(name)}?lease_id=${part(lease)}&force=true`)
  : `tenure force-unlock ${at()}${operands(name, lease)}`);

/** Puts an item on sale. */
export function sellLine() {
  const { ledger, admin } = board.about ?? {};
  if (admin) return `${curl('POST', 'items')} -H 'content-type: application/json' -d '{"item": "sku-7", "units": 100, "open": true}'`;
  if (isHere() || !ledger || ledger.includes('***') || ledger.includes('memory:')) return '';
  return `tenure sale item create ${at()}--ledger ${quoted(ledger)} sku-7 --stock 100 --open`;
}

/** How to take a lock, so that there is something to see; nothing where that is refused. */
export function takeHint() {
  const [code, remark] = [el('code'), el('p.quiet')];
  const way = el('div', {}, el('p', {}, 'Acquire one, and it appears here:'), el('pre', {}, code));
  return {
    element: el('div', {}, way, remark),
    render() {
      const isRefused = isHere() && board.about.read_only;
      way.hidden = isRefused;
      write(code, takeLine());
      write(remark, isRefused ? 'These locks live in this service, which is read-only (--read-only).'
        : isHere() ? 'These locks live in this service. Start it with --url redis://… to see those of tenure run too.'
          : 'Locks that are held for less than half a second are not listed.');
    },
  };
}

/** With a trailing space. Empty if the URL has a hidden password: then the environment must have it. */
function at() {
  const places = (board.about?.locks ?? '').split(' ').filter(Boolean);
  return places.some((place) => place.includes('***')) ? '' : places.map((place) => `--url ${quoted(place)} `).join('');
}

function curl(method, path) {
  const token = board.about?.token ? ' -H "authorization: Bearer $TENURE_TOKEN"' : '';
  return `curl -X ${method}${token} ${quoted(new URL(`api/v1/${path}`, document.baseURI).href)}`;
}
