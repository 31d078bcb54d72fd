// About the service, with links.

import { board } from './board.js';
import { isHere } from './commands.js';
import { el, pair } from './dom.js';
import { NONE, bytes, clock, words } from './format.js';

export const title = () => 'About';

export function open(root) {
  const [service, limits, store] = [el('dl.facts'), el('dl.facts'), el('dl.facts')];
  root.append(el('h1', {}, 'About'),
    el('div.columns', {}, el('section.card', {}, el('h2', {}, 'This service'), service),
      el('div', {}, el('section.card', {}, el('h2', {}, 'Store'), store), el('section.card', {}, el('h2', {}, 'Limits'), limits))),
    el('section.card', {}, el('h2', {}, 'Links'), links()), promise());
  let shown = null;
  return {
    render() {
      const { about } = board;
      if (!about || about === shown) return;
      shown = about;
      service.replaceChildren(...facts(about));
      limits.replaceChildren(...told(about.limits));
      store.replaceChildren(...(about.store ? told(about.store) : [pair('Store', isHere() ? 'in this process' : 'not responding')]));
    },
  };
}

function facts(about) {
  const yes = (is) => (is ? 'yes' : 'no');
  const { instance } = about;
  return [pair('Version', about.version), pair('Instance', instance ? `${instance.host}:${instance.port}, pid ${instance.pid}` : NONE),
    pair('Since', instance ? clock(instance.started_at) : NONE), pair('Locks', el('span.mono.long', {}, about.locks)),
    pair('Ledger', el('span.mono.long', {}, about.ledger ?? 'none, sales are off')),
    pair('Administration', about.admin ? 'allowed' : 'off; start with --allow-admin'), pair('Read-only', yes(about.read_only)),
    pair('Token', about.token ? 'required' : 'none'), pair('Demo paths', yes(about.demo))];
}

const told = (map) => Object.entries(map ?? {}).map(([name, value]) => pair(words(name), name === 'used_memory' ? bytes(value) : String(value ?? NONE)));

function links() {
  const link = (href, name, what) => el('li', {}, el('a', { href }, name), ` ${what}`);
  return el('ul', {}, link('openapi.json', 'openapi.json', 'describes the API'),
    link('metrics', 'metrics', 'for Prometheus'), link('readyz', 'readyz', 'shows whether the service is ready'));
}

function promise() {
  return el('section.card', {}, el('h2', {}, 'Guarantees'),
    el('p', {}, 'A lease makes double work rare. Only a fence that the resource checks makes it harmless.'),
    el('p.quiet', {}, 'docs/guarantees.md lists for each deployment and fault what is guaranteed, and the test that proves it.'));
}
