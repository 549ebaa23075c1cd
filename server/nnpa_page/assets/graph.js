// SPDX-License-Identifier: Apache-2.0
// The graph of a model as boxes: a node lies below all that it takes values from.

import { drawn } from "./dom.js";

const WIDTH = 172, HEIGHT = 40, ACROSS = 14, DOWN = 22; // pixels of a box, and between boxes
const BOW = 40; // pixels beside the boxes
const LETTERS = 24; // that fit into a box
const LEAST = 1e-8; // the relative error that has no bar
const DECADES = 8;

function cut(text) {
  return text.length <= LETTERS ? text : `${text.slice(0, LETTERS - 1)}\u2026`;
}

/** The places of boxes: ranks from above, in a rank by the middle of their sources. */
function placesOf(nodes) {
  const ranks = [];
  nodes.forEach((node, place) => (ranks[node.rank] ??= []).push(place));
  const wide = Math.max(...ranks.map((rank) => rank.length)) * (WIDTH + ACROSS);
  const places = [];
  for (const [depth, rank] of ranks.entries()) {
    const middle = (place) => {
      const xs = nodes[place].sources.map((source) => places[source].x);
      return xs.length ? xs.reduce((sum, x) => sum + x, 0) / xs.length : wide / 2;
    };
    const ordered = rank.map((place) => [middle(place), place]).sort(([a, first], [b, second]) => a - b || first - second);
    const left = (wide - rank.length * (WIDTH + ACROSS) + ACROSS) / 2;
    ordered.forEach(([, place], at) => { places[place] = { x: left + at * (WIDTH + ACROSS), y: DOWN / 2 + depth * (HEIGHT + DOWN) }; });
  }
  return { places, wide, tall: ranks.length * (HEIGHT + DOWN) };
}

/** A curve from box to box; one that would run behind the boxes between bows out beside them. */
function curve(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y];
  const middle = (y1 + y2) / 2;
  if (to.y - from.y > HEIGHT + DOWN && Math.abs(x1 - x2) < WIDTH) {
    const [right, y] = [Math.max(from.x, to.x) + WIDTH, to.y + HEIGHT / 2];
    const d = `M${from.x + WIDTH},${y1 - HEIGHT / 2} C${right + BOW},${y1} ${right + BOW},${y2} ${to.x + WIDTH},${y}`;
    return drawn("path", { class: "edge", d });
  }
  return drawn("path", { class: "edge", d: `M${x1},${y1} C${x1},${middle} ${x2},${middle} ${x2},${y2}` });
}

/** The largest error after a node, null where nobody measured it. */
function errorOf(node) {
  return node.errors.reduce((worst, error) => (error.l2r === null ? worst : Math.max(worst ?? 0, error.l2r)), null);
}

function boxOf(node, { x, y }, id) {
  const error = errorOf(node);
  const label = [node.op_type, error === null ? "" : error.toExponential(1)].filter(Boolean).join("  ");
  const share = error === null ? 0 : Math.min(1, Math.max(0, 1 + Math.log10(Math.max(error, LEAST)) / DECADES));
  const device = node.device === "accelerator" ? "accelerator" : "host";
  return drawn("g", { class: `box ${device}`, role: "option", id, transform: `translate(${x},${y})`, "aria-selected": "false",
    "aria-label": `${node.op_type} ${node.name}, ${node.device}${error === null ? "" : `, error ${error.toExponential(1)}`}` },
    drawn("title", {}, `${node.name || node.op_type}, ${node.device}`),
    drawn("rect", { class: "body", width: WIDTH, height: HEIGHT, rx: 4 }),
    drawn("text", { x: 8, y: 16 }, cut(label)), drawn("text", { x: 8, y: 31, class: "small" }, cut(node.name)),
    drawn("rect", { class: "error", y: HEIGHT - 4, width: WIDTH * share, height: 4 }));
}

/** A graph that arrow keys walk: up and down in the order of the model, left and right in a rank. */
export function graphOf(nodes, choose) {
  const prefix = `node-${Math.random().toString(36).slice(2)}`;
  const { places, wide, tall } = nodes.length ? placesOf(nodes) : { places: [], wide: 0, tall: 0 };
  const boxes = nodes.map((node, place) => boxOf(node, places[place], `${prefix}-${place}`));
  const edges = nodes.flatMap((node, place) => node.sources.map((source) => curve(places[source], places[place])));
  const room = wide + 2 * BOW;
  const svg = drawn("svg", { width: room, height: tall, viewBox: `${-BOW} 0 ${room} ${Math.max(1, tall)}`,
    role: "listbox", tabindex: 0, "aria-label": "nodes" }, edges, boxes);
  const frame = document.createElement("div");
  frame.className = "graph";
  frame.append(svg);
  let chosen = 0;

  function move(place) {
    boxes[chosen].setAttribute("aria-selected", "false");
    chosen = Math.min(Math.max(place, 0), nodes.length - 1);
    boxes[chosen].setAttribute("aria-selected", "true");
    svg.setAttribute("aria-activedescendant", `${prefix}-${chosen}`);
    boxes[chosen].scrollIntoView({ block: "nearest", inline: "nearest" });
    choose(chosen);
  }

  function beside(step) {
    const rank = nodes.map((_, place) => place).filter((place) => nodes[place].rank === nodes[chosen].rank)
      .sort((a, b) => places[a].x - places[b].x);
    return rank[rank.indexOf(chosen) + step] ?? chosen;
  }

  const keys = {
    ArrowDown: () => chosen + 1, ArrowUp: () => chosen - 1, Home: () => 0, End: () => nodes.length - 1,
    ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
  };
  svg.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || !nodes.length) return;
    event.preventDefault();
    move(keys[event.key]());
  });
  boxes.forEach((box, place) => box.addEventListener("click", () => move(place)));
  return frame;
}
