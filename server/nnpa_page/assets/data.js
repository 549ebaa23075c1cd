// SPDX-License-Identifier: Apache-2.0
// Data of the page's own server, with the token: it comes in the URL's fragment, which no request
// carries, and stays in this tab.

const KEY = "nnpa token";

export function takeToken() {
  const match = /^#token=([^&]+)/.exec(location.hash);
  if (match === null) return;
  sessionStorage.setItem(KEY, decodeURIComponent(match[1]));
  history.replaceState(null, "", location.pathname);
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export class Refused extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** Reads what a view answers; a view that refuses the fields answers with an error, too. */
export async function read(view, fields = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, text]) => text !== ""));
  const token = sessionStorage.getItem(KEY) ?? "";
  const answer = await fetch(`data/${view}?${query}`, { headers: { Authorization: `Bearer ${token}` }, signal });
  const body = await answer.json();
  if ("error" in body) throw new Refused(answer.status, body.error);
  return body;
}

/** Returns a `read` whose next call ends the one before: answers come in the order of questions. */
export function latest(signal) {
  let running = new AbortController();
  return (view, fields) => {
    running.abort();
    running = new AbortController();
    return read(view, fields, AbortSignal.any([signal, running.signal]));
  };
}

/** Asks again and again, `seconds` apart, while the page is visible and `signal` does not end it. */
export async function repeat(seconds, signal, ask) {
  while (!signal.aborted) {
    if (document.visibilityState === "visible") await ask();
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  }
}
