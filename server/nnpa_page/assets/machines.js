// SPDX-License-Identifier: Apache-2.0
// What machines can, side by side; a row that differs is marked, and says what a program meets.

import { latest } from "./data.js";
import { element, field, table } from "./dom.js";

const CUSTOM = {
  max_dim_idx_size: "any dim, at most", max_dim4: "dim4, at most", max_dim3: "dim3, at most",
  max_dim2: "dim2, at most", max_dim1: "dim1, at most", max_tensor_size: "bytes, at most",
  removed_functions: "without functions", added_functions: "with functions",
};

function rowsOf(comparison, differing) {
  const rows = [];
  let group = "";
  for (const row of comparison.rows.filter((candidate) => candidate.differs || !differing)) {
    const width = comparison.machines.length + 2;
    if (row.group !== group) rows.push(element("tr", { class: "group" }, element("th", { colspan: width }, row.group)));
    group = row.group;
    rows.push(element("tr", { class: row.differs ? "differs" : undefined },
      element("th", { scope: "row" }, row.name), row.values.map((text) => element("td", { class: "number" }, text)),
      element("td", {}, row.constraint)));
  }
  return rows;
}

function headings(machines) {
  return ["", ...machines.map((machine) => [machine.name, ...machine.aliases].join(", ")), "without it, or beyond it"];
}

export async function show(main, { say, signal }) {
  const body = element("div");
  const question = latest(signal);
  const differing = element("input", { type: "checkbox", onchange: () => update() });
  const model = element("select", { onchange: () => update() });
  const inputs = Object.keys(CUSTOM).map((name) => element("input", {
    name, size: name.endsWith("functions") ? 24 : 9, autocomplete: "off", oninput: () => update(),
    inputmode: name.startsWith("max") ? "numeric" : "text",
    placeholder: name.endsWith("functions") ? "NNPA_ADD, NNPA_EXP" : "",
  }));

  async function update() {
    try {
      const fields = Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
      const isCustom = Object.values(fields).some((text) => text !== "");
      const comparison = await question("machines", isCustom ? { ...fields, model: model.value } : {});
      if (!isCustom && model.options.length === 0) {
        model.append(...comparison.machines.map(({ name }) => element("option", { value: name }, name)).reverse());
      }
      body.replaceChildren(table(headings(comparison.machines), rowsOf(comparison, differing.checked)));
      say();
    } catch (error) {
      say(error);
    }
  }

  main.append(
    element("p", { class: "quiet" }, "What NNPA-QAF answers. Rows that differ are marked; on the right what a program meets where a machine lacks it, by the constraint's number."),
    element("label", { class: "check" }, differing, "only what differs"),
    element("h2", {}, "A custom machine"),
    element("form", { onsubmit: (event) => event.preventDefault() }, field("made of", model),
      inputs.map((input) => field(CUSTOM[input.name], input))),
    body);
  await update();
}
