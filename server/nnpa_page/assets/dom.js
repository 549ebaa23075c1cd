// SPDX-License-Identifier: Apache-2.0
// Elements whose contents are text: whatever a name holds, it is shown and never parsed.

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a picture. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== undefined) node.setAttribute(key, String(value));
  }
  node.append(...children.flat().map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export function table(headings, rows, kind = "") {
  const head = headings.map((text) => element("th", { scope: "col" }, text));
  return element("div", { class: `wide ${kind}`, tabindex: "0", role: "region", "aria-label": "table" },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)));
}

export function facts(pairs) {
  return element("dl", {}, pairs.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
}

/** What colours mean: a line of pairs of a colour's class and text. */
export function legend(pairs) {
  return element("p", { class: "legend" }, pairs.map(([kind, text]) => element("span", {}, element("i", { class: `key ${kind}` }), text)));
}

export function field(label, control) {
  return element("label", {}, label, control);
}

export function select(options, chosen, change) {
  return element("select", { onchange: change },
    options.map((text) => element("option", { value: text, selected: text === chosen }, text)));
}

export function count(number) {
  return number.toLocaleString("en");
}
