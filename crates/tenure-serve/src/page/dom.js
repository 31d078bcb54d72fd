// Elements, made from data without ever becoming markup: names and metadata are written by strangers,
// so they only ever become text nodes and attribute values.

/** `el('p.note', { id: 'x' }, 'text', child)`: an element with classes, attributes, listeners, children. */
export function el(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name || 'div');
  if (classes.length) element.className = classes.join(' ');
  return furnish(element, attributes, children);
}

/** The same for drawings. */
export function svg(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  if (classes.length) element.setAttribute('class', classes.join(' '));
  return furnish(element, attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Writes a text, and touches the page only if it is another one. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or takes away an attribute, and touches the page only if that changes something. */
export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A term and what it is, for a list of definitions. */
export function pair(term, ...what) {
  return el('div', {}, el('dt', {}, term), el('dd', {}, ...what));
}

/** Whether the user prefers reduced motion. */
export const isCalm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

/** Offers a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A button that copies what a function says. */
export function copyButton(text, label = 'Copy') {
  const button = el('button.small', { type: 'button', onclick: copy }, label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text());
      write(button, 'Copied');
    } catch {
      write(button, 'Select and copy it yourself');
    }
    setTimeout(() => write(button, label), 2_000);
  }
  return button;
}
