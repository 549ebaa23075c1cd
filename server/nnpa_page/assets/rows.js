// SPDX-License-Identifier: Apache-2.0
// A list of any length that scrolls: only the lines in sight are in the document.

import { element } from "./dom.js";

const ONE_ROW = 24, TWO_ROWS = 44; // pixels of a line
const NARROW = 1024; // pixels of a list below which a line has two rows
const TALLEST = 15e6; // pixels of an element that every browser scrolls over
const CHUNK = 500; // lines of an answer
const AROUND = 10; // lines above and below what is in sight
const KEYS = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };

/** Lines by their index, asked for in chunks of which each comes once. */
function chunked(ask) {
  const chunks = new Map();
  return async (index) => {
    const from = index - index % CHUNK;
    if (!chunks.has(from)) chunks.set(from, ask(from));
    try {
      return (await chunks.get(from))[index - from];
    } catch (error) {
      chunks.delete(from);
      throw error;
    }
  };
}

/**
 * A list of `count` lines: `ask` reads those from an index on, `lineOf` makes an element of each,
 * and `head`, which names their parts, stays above them.
 * A click or the arrow keys choose one; `move(index)` does so by script, `mark(index)` silently.
 */
export function rowsOf({ name, count, ask, head, lineOf, choose, say }) {
  const at = chunked(ask);
  const rows = element("div", { class: "rows" });
  const box = element("div", { class: "timeline", role: "listbox", tabindex: "0", "aria-label": name }, head, rows);
  const prefix = `line-${Math.random().toString(36).slice(2)}`;
  let chosen = -1;
  let turn = 0;
  let height = ONE_ROW;

  const tall = () => Math.min(count * height, TALLEST);
  /** Pixels of lines that are in sight. */
  const sight = () => box.clientHeight - height;
  /** How many pixels of lines a pixel of the scroll bar is. */
  const ratio = () => Math.max(1, (count * height - sight()) / Math.max(1, tall() - sight()));

  function resize() {
    const isNarrow = box.offsetWidth < NARROW;
    box.classList.toggle("narrow", isNarrow);
    height = isNarrow ? TWO_ROWS : ONE_ROW;
    rows.style.height = `${tall()}px`;
    draw();
  }

  async function draw() {
    const mine = ++turn;
    const hidden = box.scrollTop * ratio();
    const first = Math.max(0, Math.floor(hidden / height) - AROUND);
    const last = Math.min(count, Math.ceil((hidden + sight()) / height) + AROUND);
    try {
      const lines = await Promise.all(Array.from({ length: last - first }, (_, step) => at(first + step)));
      if (mine !== turn) return;
      rows.replaceChildren(...lines.map((line, step) => placed(line, first + step, hidden)));
      say();
      for (const near of [last + CHUNK, first - CHUNK]) if (near >= 0 && near < count) await at(near);
    } catch (error) {
      if (mine === turn) say(error);
    }
  }

  function placed(line, index, hidden) {
    const row = lineOf(line);
    row.id = `${prefix}-${index}`;
    row.style.top = `${box.scrollTop + height * index - hidden}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === chosen));
    row.setAttribute("aria-setsize", count);
    row.setAttribute("aria-posinset", index + 1);
    row.addEventListener("click", () => move(index));
    return row;
  }

  function mark(index) {
    chosen = index;
    box.setAttribute("aria-activedescendant", `${prefix}-${index}`);
    const top = height * index, hidden = box.scrollTop * ratio();
    if (top < hidden) box.scrollTop = top / ratio();
    if (top + height > hidden + sight()) box.scrollTop = (top + height - sight()) / ratio();
    draw();
  }

  function move(index) {
    const next = Math.min(Math.max(index, 0), count - 1);
    if (next < 0) return;
    mark(next);
    choose(next);
  }

  box.addEventListener("scroll", draw);
  box.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    move(chosen + KEYS[event.key]);
  });
  new ResizeObserver(resize).observe(box);
  return { box, move, mark, chosen: () => chosen };
}
