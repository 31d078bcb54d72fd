// Asking the service. Where it wants a token, the page asks for it and keeps it in this variable only.

const ROOT = 'api/v1/';
const TOKEN_NEEDED = 'This service requires a token. Ask its operator.';
const TOKEN_WRONG = 'Invalid token. Try again.';

let token = null;
/** The dialog that is open, if one is: all requests that were refused wait for the same answer. */
let asking = null;

/** What the service refused, in its words. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? problem?.title ?? `the service returned ${status}`);
    this.status = status;
    this.problem = problem ?? {};
  }
}

/** The response, if successful. Throws `Refusal`, or the browser's error if there was no response. */
export async function ask(path, { method = 'GET', body, signal, headers: more = {} } = {}) {
  for (;;) {
    const used = token;
    const headers = { accept: 'application/json, text/event-stream', ...more };
    if (used !== null) headers.authorization = `Bearer ${used}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(ROOT + path, { method, headers, body: sent, signal, cache: 'no-store' });
    if (response.ok) return response;
    const problem = await response.json().catch(() => null);
    if (response.status !== 401) throw new Refusal(response.status, problem);
    // Another request may have set the token meanwhile.
    if (used === token) await askForToken(used === null ? TOKEN_NEEDED : TOKEN_WRONG);
  }
}

export const get = async (path) => (await ask(path)).json();

export async function post(path, body = {}) {
  const response = await ask(path, { method: 'POST', body });
  return response.status === 204 ? null : response.json().catch(() => null);
}

/** A part of a path or of a query. */
export const part = encodeURIComponent;

/** What an error says to people. */
export function said(error) {
  if (error instanceof Refusal) return error.message;
  return `the service is unreachable (${error.message})`;
}

function askForToken(detail) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById('token-dialog');
    const input = document.getElementById('token');
    document.getElementById('token-detail').textContent = detail;
    input.value = '';
    const keepOpen = (event) => event.preventDefault();
    dialog.addEventListener('cancel', keepOpen);
    dialog.querySelector('form').onsubmit = (event) => {
      event.preventDefault();
      token = input.value.trim();
      input.value = '';
      dialog.removeEventListener('cancel', keepOpen);
      dialog.close();
      asking = null;
      resolve();
    };
    dialog.showModal();
    input.focus();
  });
  return asking;
}
