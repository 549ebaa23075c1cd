// SPDX-License-Identifier: Apache-2.0
// A tensor of a session as it is now: its values as a heat map, and a cell's bits.

import { read } from "./data.js";
import { element, facts, legend } from "./dom.js";
import { describeCell, pageOf, pager, sizesOf } from "./sticks.js";

const NINF = 0x7fff; // source: DLFLOAT16 of the zDNN API Reference, "NINF": NaN or infinity
const FLOAT = "ZDNN_DLFLOAT16";

function fp32Bits(value) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return view.getUint32(0);
}

function bitRow(label, bits, widths) {
  const kinds = ["sign", "exponent", "fraction"];
  let at = 0;
  const cells = widths.flatMap((width, kind) => {
    const part = bits.slice(at, at + width);
    at += width;
    return element("td", { class: kinds[kind], title: kinds[kind] }, part);
  });
  return element("tr", {}, element("th", { scope: "row" }, label), cells);
}

/** The bits of a DLFLOAT16 code, and those of the same value in FP32. */
export function bitsOf(code, value) {
  const fp32 = value === null ? 0x7fc00000 : fp32Bits(value);
  const exponent = (code >> 9) & 0x3f;
  const ulp = (code & NINF) === NINF ? "none" : `2^${exponent - 31 - 9} = ${2 ** (exponent - 31 - 9)}`;
  return element("div", {},
    element("div", { class: "wide" }, element("table", { class: "bits" },
      bitRow("DLFLOAT16", code.toString(2).padStart(16, "0"), [1, 6, 9]),
      bitRow("FP32", fp32.toString(2).padStart(32, "0"), [1, 8, 23]))),
    facts([
      ["value", value === null ? "NINF: not a number, or infinity" : String(value)],
      ["code", `0x${code.toString(16).toUpperCase().padStart(4, "0")}, FP32 0x${fp32.toString(16).toUpperCase().padStart(8, "0")}`],
      ["last place (ulp)", ulp],
    ]));
}

function integerOf(tensor, value) {
  const real = tensor.rec_scale ? String((value - tensor.offset) / tensor.rec_scale) : "not quantized";
  return facts([["value", String(value)], ["dequantized", real]]);
}

function painter(tensor) {
  const numbers = tensor.type === FLOAT ? tensor.values : tensor.cell_values;
  const largest = numbers.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0) || 1;
  return (box, index) => {
    const value = numbers[index];
    box.classList.add("heat");
    box.classList.toggle("negative", value < 0);
    box.classList.toggle("violation", value === null);
    box.style.setProperty("--heat", String(value === 0 ? 0 : 0.12 + 0.88 * Math.abs(value ?? 0) / largest));
  };
}

function keyOf(tensor) {
  const numbers = (tensor.type === FLOAT ? tensor.values : tensor.cell_values).filter((value) => value !== null);
  const least = numbers.reduce((low, value) => Math.min(low, value), Infinity);
  const most = numbers.reduce((high, value) => Math.max(high, value), -Infinity);
  const violations = tensor.values.filter((value) => value === null).length;
  const range = numbers.length ? `whose cells are ${least} to ${most}` : "which has no number";
  return legend([["", "positive"], ["negative", "negative"], ["violation", `range violation: ${violations} of this page, ${range}`]]);
}

export async function showTensor(main, { path, say, signal }) {
  const [session, id] = path;
  const body = element("div");

  async function update(page) {
    try {
      const tensor = await read("tensor", { session, id, page }, signal);
      const where = element("p", { role: "status", class: "chosen" });
      const bits = element("div", { class: "cell-bits" });
      const choose = (stick, cell) => {
        const index = stick * tensor.cells * tensor.rows + cell;
        where.textContent = describeCell(tensor, stick, cell);
        bits.replaceChildren(tensor.type === FLOAT
          ? bitsOf(tensor.cell_values[index], tensor.values[index]) : integerOf(tensor, tensor.cell_values[index]));
      };
      const again = element("button", { type: "button", onclick: () => update(page) }, "Read again");
      const state = tensor.is_transformed ? "" : "The tensor is not transformed: nobody has filled its sticks.";
      body.replaceChildren(element("p", {}, tensor.user), sizesOf(tensor), element("p", { class: "bad" }, state),
        pager(tensor, update), again, keyOf(tensor), where, bits, pageOf(tensor, choose, painter(tensor)));
      say();
    } catch (error) {
      say(error);
    }
  }

  main.append(element("p", {}, element("a", { href: `#/sessions/${session}` }, `session ${session}`), `, tensor ${id}`), body);
  await update(0);
}
