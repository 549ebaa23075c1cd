// SPDX-License-Identifier: Apache-2.0
// Models: a graph by device, estimates of the machine's time, and an accuracy report.

import { read } from "./data.js";
import { count, element, facts, field, legend, select, table } from "./dom.js";
import { graphOf } from "./graph.js";

const figure = (value) => (value === null ? "-" : value === 0 ? "0" : value.toPrecision(3).replace(/e([+-])(\d)$/, "e$10$2"));
const percent = (value) => (value === null ? "-" : `${(100 * value).toFixed(2)} %`);

function number(text) {
  return element("td", { class: "number" }, text);
}

/** Explains the colours of boxes, and the bars of errors. */
function keyOf(machine) {
  const hasErrors = machine.nodes.some((node) => node.errors.length);
  return legend([["accelerator", "runs on the accelerator"], ["host", "runs on the host"], ["chosen", "selected"],
    ...(hasErrors ? [["error", "relative error (L2R) after the node: full width is 1, none is below 1e-8"]] : [])]);
}

function detailOf(node) {
  const lines = [["operator", node.op_type], ["device", node.device], ["output shape", node.shapes.join(", ")]];
  if (node.functions.length) lines.push(["zDNN functions", node.functions.join(", ")]);
  if (node.reason) lines.push(["reason", node.reason]);
  if (node.macc) lines.push(["multiply-accumulates", count(node.macc)]);
  if (node.weights) lines.push(["weights", `${count(node.weights)} bytes`]);
  if (node.time) lines.push(["estimate for the machine", node.time]);
  const errors = node.errors.map((error) => errorRow(error.value, error));
  return [element("h2", { class: "code" }, node.name || node.op_type), facts(lines),
    errors.length ? table(["value", ...ERRORS], errors, "lines") : ""];
}

const ERRORS = ["error before", "own error", "error after", "largest difference", "outside DLFLOAT16"];

function errorRow(title, error, ...before) {
  return element("tr", {}, element("th", { scope: "row" }, title), ...before.map((text) => element("td", {}, text)),
    [figure(error.entering), figure(error.alone), figure(error.l2r), figure(error.max), percent(error.beyond)].map(number));
}

function estimateOf(estimate) {
  if (estimate === null) return [element("p", {}, "There are no published times of this machine to estimate from.")];
  const rows = estimate.lines.map((line) =>
    element("tr", {}, element("th", { scope: "row" }, line.function), number(count(line.calls)), number(line.time), element("td", {}, line.grade)));
  return [element("h2", {}, `Time on the machine, estimated: ${estimate.total}`), element("p", {}, estimate.dominant),
    ...estimate.missing.map((text) => element("p", { class: "quiet" }, text)),
    rows.length ? table(["operation", "calls", "time", "grade"], rows, "lines") : "",
    element("p", { class: "quiet" }, "Estimated from public measurements of single calls on hardware, one thread, warm caches. No time of this emulator is in it.")];
}

function machineOf(machine) {
  const detail = element("section", { class: "detail", "aria-live": "polite" });
  const choose = (place) => detail.replaceChildren(...detailOf(machine.nodes[place]));
  return [element("p", {}, machine.placed), keyOf(machine),
    element("div", { class: "panes graphed" }, graphOf(machine.nodes, choose), detail), ...estimateOf(machine.estimate)];
}

function titleOf(run) {
  return run.numbers === "dlfloat16" ? `${run.machine}, ${run.saturate ? "saturating" : "not saturating"}` : `${run.machine}, ${run.numbers}`;
}

function runRow(run) {
  return element("tr", {}, element("th", { scope: "row" }, titleOf(run)), number(count(run.rows)), number(count(run.changed)),
    number(percent(run.drop)), number(count(run.violations)));
}

function outputRow(run, output) {
  const texts = [percent(output.acc), figure(output.l2r), figure(output.rmse), figure(output.mae), figure(output.max), figure(output.cos), count(output.nans)];
  return element("tr", {}, element("th", { scope: "row" }, output.name), element("td", {}, titleOf(run)), texts.map(number));
}

/** Shows an accuracy report: verdict, runs, outputs, and the nodes of each run. */
function reportOf(name, report) {
  const nodes = report.runs.filter((run) => run.nodes.length).map((run) =>
    element("details", {}, element("summary", {}, `${count(run.nodes.length)} values of nodes on ${titleOf(run)}`),
      table(["node", "operator", "device", "value", ...ERRORS],
        run.nodes.map((node) => errorRow(node.node, node, node.op_type, node.device, node.value)), "lines")));
  return [element("h2", {}, `Accuracy: ${name}`), element("p", { class: "verdict" }, report.verdict),
    facts([["rows", count(report.samples)], ["placement", report.placement], ...Object.entries(report.about)]),
    table(["run", "rows", "answers turned", "accuracy lost", "range violations"], report.runs.map(runRow), "lines"),
    element("h3", {}, "Outputs beside FP32"),
    table(["output", "run", "ACC", "L2R", "RMSE", "MAE", "max", "COS", "NaN"],
      report.runs.flatMap((run) => run.outputs.map((output) => outputRow(run, output))), "lines"),
    element("h3", {}, "Nodes beside FP32"),
    element("p", { class: "quiet" }, "Relative errors (L2R): of a node's inputs in the whole run; of its values when its inputs are FP32's; of its values in the whole run. Outside: the share of FP32's values that DLFLOAT16 has no number for."),
    ...nodes];
}

export async function show(main, { entitle, signal }) {
  const { model, machines, accuracy, report } = await read("models", {}, signal);
  if (machines.length) {
    const body = element("div");
    const plain = machines.map((machine) => machine.machine);
    const names = plain.map((name, at) => (plain.indexOf(name) === at ? name : `${name} ${at + 1}`));
    const update = (name) => {
      const machine = machines[names.indexOf(name)];
      entitle(`Model: ${machine.title}`);
      body.replaceChildren(...machineOf(machine));
    };
    main.append(element("h2", {}, model), element("p", { class: "quiet" }, "A box is a node of the graph. Click a box, or go from box to box with the arrow keys, to see all of it."),
      element("form", { onsubmit: (event) => event.preventDefault() }, field("machine", select(names, names[0], (event) => update(event.target.value)))), body);
    update(names[0]);
  }
  else if (report !== null) entitle(`Accuracy: ${report.title}`);
  if (report !== null) main.append(...reportOf(accuracy, report));
}
