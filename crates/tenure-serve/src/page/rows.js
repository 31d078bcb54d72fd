// A long list in a table, of which only those rows exist that can be seen.

import { el } from './dom.js';

/** Rows beyond the edge of the window, so that scrolling shows no gap. */
const BEYOND = 8;

export class Rows {
  #body;
  #make;
  #items = [];
  #made = new Map();
  #above = el('tr.spacer', { 'aria-hidden': 'true' }, el('td'));
  #below = el('tr.spacer', { 'aria-hidden': 'true' }, el('td'));
  #placeSoon = () => this.place();

  /** `make(item)` gives `{ element, update(item), tick(now) }`; items have a `name`. */
  constructor(body, make) {
    this.#body = body;
    this.#make = make;
    body.append(this.#above, this.#below);
    addEventListener('scroll', this.#placeSoon, { passive: true });
    addEventListener('resize', this.#placeSoon, { passive: true });
  }

  show(items) {
    this.#items = items;
    this.place();
    for (const [name, row] of this.#made) {
      const item = this.#items[row.index];
      if (item?.name === name) row.update(item);
    }
  }

  tick(now) {
    for (const row of this.#made.values()) row.tick(now);
  }

  close() {
    removeEventListener('scroll', this.#placeSoon);
    removeEventListener('resize', this.#placeSoon);
  }

  /** Makes the rows that can be seen now, and removes the others. */
  place() {
    const height = parseFloat(getComputedStyle(this.#body).getPropertyValue('--row'));
    const top = this.#above.getBoundingClientRect().top;
    const total = this.#items.length;
    const first = Math.min(Math.max(Math.floor(-top / height) - BEYOND, 0), total);
    const last = Math.min(Math.max(Math.ceil((innerHeight - top) / height) + BEYOND, first), total);
    const wanted = new Set();
    for (let index = first; index < last; index += 1) wanted.add(this.#items[index].name);
    for (const [name, row] of this.#made) {
      if (wanted.has(name)) continue;
      row.element.remove();
      this.#made.delete(name);
    }
    this.#above.firstChild.style.height = `${first * height}px`;
    this.#below.firstChild.style.height = `${(total - last) * height}px`;
    this.#order(first, last);
  }

  #order(first, last) {
    let after = this.#above;
    for (let index = first; index < last; index += 1) {
      const item = this.#items[index];
      let row = this.#made.get(item.name);
      if (!row) {
        row = this.#make(item);
        row.update(item);
        this.#made.set(item.name, row);
      }
      row.index = index;
      // One for the heading, one because rows are counted from one.
      row.element.setAttribute('aria-rowindex', index + 2);
      if (after.nextSibling !== row.element) after.after(row.element);
      after = row.element;
    }
  }
}
