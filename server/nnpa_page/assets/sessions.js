// SPDX-License-Identifier: Apache-2.0
// Sessions as they run: a list, or one of them with its tensors and last calls.

import { read, repeat } from "./data.js";
import { count, element, facts, table } from "./dom.js";

const OK = "ZDNN_OK";

function statusesOf(session) {
  const names = Object.keys(session.statuses).sort();
  return names.map((name) => `${name} ${count(session.statuses[name])}`).join(", ") || "none yet";
}

function number(value) {
  return element("td", { class: "number" }, value);
}

function lineOf(session) {
  return element("tr", {}, element("th", { scope: "row" }, element("a", { href: `#/sessions/${session.session}`, class: "code" }, session.session)),
    element("td", {}, session.holder || "-"), element("td", {}, session.machine), number(count(session.calls)),
    number(count(session.operations)), number(count(session.tensors)), number(count(session.bytes)),
    element("td", {}, session.running || `idle ${session.idle} s`), element("td", {}, statusesOf(session)));
}

const HEADINGS = ["session", "holder", "machine", "calls", "operations", "tensors", "bytes", "runs", "statuses since you look"];

async function showList(main, { say, signal }) {
  const body = element("div");
  main.append(element("p", { class: "quiet" }, "Sessions of your token, by the hash of their names, once a second."), body);
  await repeat(1, signal, async () => {
    try {
      const sessions = await read("sessions", {}, signal);
      const rows = sessions.map(lineOf);
      update(body, rows.length ? table(HEADINGS, rows, "lines") : element("p", {}, "There is no session."));
      say();
    } catch (error) {
      say(error);
    }
  });
}

/** Puts a new state in place of the old one, unless somebody is at a link in it. */
function update(body, ...children) {
  const href = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const scrolled = [...body.querySelectorAll(".wide")].map((box) => box.scrollLeft);
  body.replaceChildren(...children);
  body.querySelectorAll(".wide").forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
  if (href !== null) body.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
}

function tensorRow(session, tensor) {
  return element("tr", {},
    element("th", { scope: "row" }, element("a", { href: `#/sticks/${session.session}/${tensor.id}` }, tensor.id)),
    element("td", {}, tensor.user), element("td", {}, tensor.sticks), number(count(tensor.bytes)),
    element("td", {}, tensor.transformed ? "yes" : "no"));
}

function callRow(call) {
  const tensors = Object.entries(call.tensors).map(([name, id]) => `${name} ${id}`).join(", ");
  return element("tr", { class: call.status === OK ? undefined : "refused" },
    element("th", { scope: "row" }, call.op), number(`${(1e6 * call.seconds).toFixed(0)} us`), number(`${call.ago} s ago`),
    element("td", {}, call.status), element("td", {}, tensors));
}

async function showSession(main, { path, say, signal }) {
  const body = element("div");
  main.append(element("p", {}, element("a", { href: "#/sessions" }, "all sessions")), element("h2", { class: "code" }, path[0]), body);
  await repeat(1, signal, async () => {
    try {
      const session = await read("session", { session: path[0] }, signal);
      const listed = session.tensors.length < session.tensor_count ? `, the first ${session.tensors.length} of them` : "";
      update(body,
        facts([["machine", session.machine], ["holder", session.holder || "-"], ["runs", session.running || `idle ${session.idle} s`],
          ["calls", count(session.calls)], ["operations", count(session.operations)], ["bytes", count(session.bytes)],
          ["statuses since you look", statusesOf(session)]]),
        element("h2", {}, `Tensors: ${count(session.tensor_count)}${listed}`),
        table(["id", "user's", "sticks", "bytes", "transformed"], session.tensors.map((tensor) => tensorRow(session, tensor)), "lines"),
        element("h2", {}, "Last calls"),
        table(["function", "took", "began", "status", "tensors"], session.recent.map(callRow), "lines"));
      say();
    } catch (error) {
      say(error);
    }
  });
}

export async function show(main, context) {
  await (context.path.length === 1 && context.path[0] ? showSession(main, context) : showList(main, context));
}
