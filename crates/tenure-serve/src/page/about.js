// What this service is, and where to read on.

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
    el('section.card', {}, el('h2', {}, 'Read on'), links()), promise());
  let shown = null;
  return {
    render() {
      const { about } = board;
      if (!about || about === shown) return;
      shown = about;
      service.replaceChildren(...facts(about));
      limits.replaceChildren(...told(about.limits));
      store.replaceChildren(...(about.store ? told(about.store) : [pair('Store', isHere() ? 'in this process' : 'says nothing of itself')]));
    },
  };
}

function facts(about) {
  const yes = (is) => (is ? 'yes' : 'no');
  const { instance } = about;
  return [pair('Version', about.version), pair('Instance', instance ? `${instance.host}:${instance.port}, pid ${instance.pid}` : NONE),
    pair('Since', instance ? clock(instance.started_at) : NONE), pair('Locks', el('span.mono.long', {}, about.locks)),
    pair('Ledger', el('span.mono.long', {}, about.ledger ?? 'none, so there are no sales')),
    pair('Administration', about.admin ? 'allowed' : 'off; start with --allow-admin'), pair('Only shows', yes(about.read_only)),
    pair('Token', about.token ? 'needed' : 'none'), pair('Demo paths', yes(about.demo))];
}

const told = (map) => Object.entries(map ?? {}).map(([name, value]) => pair(words(name), name === 'used_memory' ? bytes(value) : String(value ?? NONE)));

function links() {
  const link = (href, name, what) => el('li', {}, el('a', { href }, name), ` ${what}`);
  return el('ul', {}, link('openapi.json', 'openapi.json', 'describes every path of the API'),
    link('metrics', 'metrics', 'for Prometheus'), link('readyz', 'readyz', 'whether locks can be served'));
}

function promise() {
  return el('section.card', {}, el('h2', {}, 'What is promised'),
    el('p', {}, 'A lease makes double work rare. Only a fence that the resource checks makes it harmless.'),
    el('p.quiet', {}, 'docs/guarantees.md says for each deployment and each fault what holds and what does not, with the test that shows it.'));
}
