// SPDX-License-Identifier: Apache-2.0
// How the elements of a tensor lie in pages, sticks and cells.

import { latest } from "./data.js";
import { showTensor } from "./tensor.js";
import { count, element, facts, field, legend, select } from "./dom.js";

const NAMES = { NHWC: ["N", "H", "W", "C"], NCHW: ["N", "C", "H", "W"], HWCK: ["H", "W", "C", "K"] };

/** The element in a cell of a stick, as (dim4, dim3, dim2, dim1); null for padding. */
export function elementAt(tensor, stick, cell) {
  const [dim4, dim3, row, column] = tensor.first;
  const place = [dim4, dim3, row + stick * tensor.rows + (cell % tensor.rows), column + Math.floor(cell / tensor.rows)];
  return place[2] < tensor.dims[2] && place[3] < tensor.dims[3] ? place : null;
}

/** One page as 32 sticks of cells, of which the arrow keys choose one; `paint` colours a cell. */
export function pageOf(tensor, choose, paint = () => {}) {
  const width = tensor.cells * tensor.rows;
  const cells = [];
  const sticks = Array.from({ length: 32 }, (_, stick) => {
    const row = Array.from({ length: width }, (_unused, cell) => {
      const place = elementAt(tensor, stick, cell);
      const kind = place === null ? "cell padding" : place[2] % 2 ? "cell" : "cell even";
      const box = element("div", { class: kind, role: "gridcell", tabindex: "-1", "aria-label": labelOf(place) });
      paint(box, stick * width + cell, place);
      cells.push(box);
      return box;
    });
    const label = elementAt(tensor, stick, 0);
    return element("div", { class: "stick", role: "row" }, element("span", { "aria-hidden": "true" },
      label === null ? `stick ${stick}` : `row ${label[2]}`), row);
  });
  const grid = element("div", { class: "sticks", role: "grid", "aria-label": `page ${tensor.page}` }, sticks);
  chooseByKeys(grid, cells, width, choose);
  return element("div", { class: "wide" }, grid);
}

function chooseByKeys(grid, cells, width, choose) {
  let at = 0;
  const move = (next, focus) => {
    if (next < 0 || next >= cells.length) return;
    cells[at].tabIndex = -1;
    cells[at].removeAttribute("aria-selected");
    at = next;
    cells[at].tabIndex = 0;
    cells[at].setAttribute("aria-selected", "true");
    if (focus) cells[at].focus();
    choose(Math.floor(at / width), at % width);
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width };
  grid.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    move(at + steps[event.key], true);
  });
  grid.addEventListener("click", (event) => {
    const next = cells.indexOf(event.target);
    if (next >= 0) move(next, true);
  });
  move(0, false);
}

export function labelOf(place) {
  return place === null ? "padding" : `dim4 ${place[0]}, dim3 ${place[1]}, dim2 ${place[2]}, dim1 ${place[3]}`;
}

/** The number of a page, with its neighbours. */
export function pager(tensor, turn) {
  const input = element("input", { type: "number", min: 0, max: tensor.pages - 1, value: tensor.page, onchange: () => turn(input.value) });
  return element("form", { onsubmit: (event) => event.preventDefault() },
    element("button", { type: "button", disabled: tensor.page === 0, onclick: () => turn(tensor.page - 1) }, "Page before"),
    field(`page, of ${count(tensor.pages)}`, input),
    element("button", { type: "button", disabled: tensor.page + 1 >= tensor.pages, onclick: () => turn(tensor.page + 1) }, "Next page"));
}

/** What a tensor is and takes. */
export function sizesOf(tensor) {
  const share = (100 * tensor.padding / (tensor.padding + tensor.elements)).toFixed(1);
  return facts([
    ["transformed", `${tensor.dims.join(" x ")}, ${tensor.layout}, ${tensor.format}, ${tensor.type}`],
    ["sticks", `${count(tensor.bytes)} bytes, ${count(tensor.pages)} pages of 32 sticks of ${tensor.cells * tensor.rows} cells`],
    ["elements", `${count(tensor.elements)}, and ${count(tensor.padding)} cells of padding (${share} %)`],
  ]);
}

function axesOf(tensor, layout) {
  const name = (axis) => NAMES[layout]?.[axis] ?? `axis ${axis}`;
  const dims = ["dim4", "dim3", "dim2", "dim1"];
  const text = dims.map((dim, index) => `${dim} = ${tensor.axes[index].map(name).join(" by ") || "1"}`);
  return element("p", { class: "quiet" }, `${text.join(", ")}.`);
}

/** Says where a cell is, and of what. */
export function describeCell(tensor, stick, cell) {
  const byte = count(offsetOf(tensor, stick, cell));
  return `byte ${byte}, stick ${stick}, cell ${cell}: ${labelOf(elementAt(tensor, stick, cell))}`;
}

function offsetOf(tensor, stick, cell) {
  return tensor.page * 4096 + stick * 128 + cell * (128 / (tensor.cells * tensor.rows));
}

export async function show(main, context) {
  const { path, say, signal } = context;
  if (path.length === 2) return showTensor(main, context);
  const body = element("div");
  const question = latest(signal);
  const shape = element("input", { size: 18, value: "2, 3, 20, 70", autocomplete: "off", oninput: () => update(0) });
  const layout = select(["1D", "2D", "2DS", "3D", "3DS", "4D", "4DS", "NHWC", "NCHW", "HWCK"], "NHWC", () => update(0));
  const kind = select(["FP32", "INT32", "INT8", "WEIGHTS_INT8"], "FP32", () => update(0));

  async function update(page) {
    try {
      const fields = { shape: shape.value, layout: layout.value, kind: kind.value, page };
      const tensor = await question("sticks", fields);
      const chosen = element("p", { role: "status", class: "chosen" });
      const choose = (stick, cell) => {
        chosen.textContent = describeCell(tensor, stick, cell);
      };
      const key = legend([["", "odd row"], ["even", "even row"], ["padding", "padding"]]);
      body.replaceChildren(sizesOf(tensor), axesOf(tensor, layout.value), pager(tensor, update), key, chosen, pageOf(tensor, choose));
      say();
    } catch (error) {
      say(error);
    }
  }

  main.append(
    element("p", { class: "quiet" }, "Type a shape and choose its layout: how its elements lie in pages of 4096 bytes, 32 sticks each. Arrow keys go from cell to cell."),
    element("form", { onsubmit: (event) => event.preventDefault() },
      field("shape", shape), field("layout", layout), field("user's data, or quantized", kind)),
    body);
  await update(0);
}
