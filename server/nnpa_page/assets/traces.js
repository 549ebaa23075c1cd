// SPDX-License-Identifier: Apache-2.0
// Traces: a line for each operation; two traces stand side by side with their differences.

import { read } from "./data.js";
import { count, element, facts, legend, table } from "./dom.js";
import { rowsOf } from "./rows.js";

/** Draws the time of a call between the first call's start and the last one's end. */
function barOf(line, { begin_ns, end_ns }) {
  const percent = 100 / Math.max(1, end_ns - begin_ns);
  const bar = element("i", { class: "bar" });
  bar.style.left = `${percent * (line.start_ns - begin_ns)}%`;
  bar.style.width = `max(2px, ${percent * line.duration_ns}%)`;
  return element("span", { class: "track" }, bar);
}

function lineOf(line, trace) {
  const marks = [...line.differences, ...line.findings].join(", ");
  const parts = [line.index, line.name, marks, line.status, `${line.begins} ms`, barOf(line, trace), `${line.takes} us`, line.tensors, line.place];
  const kinds = [line.valid ? "" : "refused", line.findings.length ? "found" : "", line.differences.length ? "differing" : ""];
  return element("div", { class: ["line", ...kinds].join(" ").trim() },
    parts.map((part) => (part instanceof Node ? part : element("span", { title: part }, part))));
}

/** Names the columns of lines. */
function headingsOf({ begin_ns, end_ns }, isPair) {
  const names = ["#", "function", isPair ? "difference, lint" : "lint", "status", "start", `${(begin_ns / 1e6).toFixed(0)} to ${(end_ns / 1e6).toFixed(0)} ms`, "duration", "tensors", "call"];
  return element("div", { class: "line head", "aria-hidden": "true" }, names.map((name) => element("span", { title: name }, name)));
}

function colours(isPair) {
  return legend([["", "time on the server, between the first call's start and the last one's end"], ["found", "has a lint finding"],
    ...(isPair ? [["differing", "differs from the other trace"]] : []), ["refused", "refused or failed (red text)"], ["chosen", "selected"]]);
}

function listed(title, texts) {
  return texts.length ? [element("h3", {}, title), element("ul", {}, texts.map((text) => element("li", {}, text)))] : [];
}

function operandRow(operand) {
  const name = operand.output ? `${operand.operand}, output` : operand.operand;
  const shape = Array.isArray(operand.shape) ? operand.shape.join(" x ") : operand.shape ?? "unknown";
  const texts = [operand.id || "", shape, operand.type ?? ""];
  return element("tr", {}, element("th", { scope: "row" }, name), texts.map((text) => element("td", {}, text)));
}

function detailOf(trace, operation) {
  const lines = [["trace", trace.name], ["in", operation.place], ["start", `${operation.begins} ms`], ["duration", `${operation.takes} us on the server`], ["status", operation.status]];
  if (operation.why) lines.push(["reason", operation.why]);
  if (operation.estimate) lines.push(["estimate for the machine", operation.estimate]);
  if (!operation.operands.length) lines.push(["tensors", operation.tensors]);
  const messages = JSON.stringify({ message: operation.message, answer: operation.answer }, null, 2);
  return element("section", { class: "pane" }, element("h2", { class: "code" }, operation.name), facts(lines),
    ...listed("Differences from the other trace", operation.differences), ...listed("Lint", operation.findings),
    operation.operands.length ? table(["operand", "id", "shape", "type"], operation.operands.map(operandRow), "lines") : "",
    ...listed("Contents", operation.contents),
    element("details", {}, element("summary", {}, "message and answer"), element("pre", { class: "wide", tabindex: "0" }, messages)));
}

/** Describes a trace; buttons go to the calls with lint findings, and from difference to difference. */
function headOf(trace, list) {
  const step = () => {
    const next = trace.differences.find((row) => row > list.chosen()) ?? trace.differences[0];
    list.move(next);
  };
  const found = trace.findings.map(({ text, row }) =>
    element("li", {}, element("button", { type: "button", class: "link", onclick: () => list.move(row) }, text)));
  return [element("h2", {}, trace.name), ...trace.headings.map((text) => element("p", { class: "quiet" }, text)),
    element("p", {}, trace.summary),
    element("details", { open: found.length > 0 && found.length < 6 }, element("summary", {}, `Lint: ${count(found.length)} ${found.length === 1 ? "finding" : "findings"}`), element("ul", {}, found)),
    trace.differences.length ? element("p", {}, element("button", { type: "button", onclick: step }, `Next of ${count(trace.differences.length)} calls that differ`)) : ""];
}

export async function show(main, { say, entitle, signal }) {
  const { traces, compared } = await read("traces", {}, signal);
  const isPair = traces.length > 1;
  entitle(`${isPair ? "Traces" : "Trace"}: ${traces.map((trace) => trace.title).join("; ")}`);
  const detail = element("div", { class: "panes detail", "aria-live": "polite" });
  let turn = 0;

  async function choose(number, row) {
    const mine = ++turn;
    try {
      const operation = await read("operation", { trace: number, row }, signal);
      const details = [detailOf(traces[number], operation)];
      const beside = 1 - number;
      if (operation.partner !== null) {
        lists[beside].mark(operation.partner);
        const partner = await read("operation", { trace: beside, row: operation.partner }, signal);
        details.splice(beside, 0, detailOf(traces[beside], partner));
      }
      if (mine === turn) detail.replaceChildren(...details);
    } catch (error) {
      say(error);
    }
  }

  const lists = traces.map((trace, number) => rowsOf({
    name: `calls of ${trace.name}`, count: trace.rows, say,
    ask: (from) => read("rows", { trace: number, from }, signal),
    lineOf: (line) => lineOf(line, trace),
    head: headingsOf(trace, isPair),
    choose: (row) => choose(number, row),
  }));
  const panes = traces.map((trace, number) =>
    element("section", { class: "pane" }, ...headOf(trace, lists[number]), lists[number].box));
  main.append(element("p", { class: "quiet" }, "Each line is a call of a function, with the ids and shapes of its tensors: inputs, then > and outputs. Click a line, or go from line to line with the arrow keys, to see all of it below."), colours(isPair),
    ...compared.map((text) => element("p", {}, text)), element("div", { class: "panes" }, panes), detail);
}
