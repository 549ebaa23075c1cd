// SPDX-License-Identifier: Apache-2.0
// The frame: which views there are, and the one that is shown.

import { keepToken, read, takeToken } from "./data.js";
import { element, field } from "./dom.js";

const TITLES = { machines: "Machines", sticks: "Sticks", sessions: "Sessions", traces: "Traces", models: "Models" };
const main = document.querySelector("main");
const status = document.getElementById("status");
let shown = new AbortController(); // ends what the view before does

function say(error) {
  if (error?.name !== "AbortError") status.textContent = error ? error.message : "";
}

function askForToken(error) {
  const input = element("input", { type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    keepToken(input.value);
    begin();
  };
  main.replaceChildren(element("h1", {}, "This page has a token"), element("p", {}, error.message),
    element("form", { onsubmit: submit }, field("token", input), element("button", {}, "Open")));
}

async function show(views) {
  const [name, ...path] = location.hash.slice(2).split("/").map(decodeURIComponent);
  const view = views.includes(name) ? name : views[0];
  shown.abort();
  shown = new AbortController();
  say();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const module = await import(`./${view}.js`);
  const heading = element("h1");
  const entitle = (text) => {
    heading.textContent = text;
    document.title = `${text} - nnpa`;
  };
  entitle(TITLES[view]);
  main.replaceChildren(heading);
  await module.show(main, { path, say, entitle, signal: shown.signal });
}

async function begin() {
  try {
    const views = (await read("views")).filter((name) => name in TITLES);
    const links = views.map((name) => element("a", { href: `#/${name}` }, TITLES[name]));
    document.querySelector("nav").replaceChildren(...links);
    const change = () => show(views).catch(say);
    window.onhashchange = change;
    change();
  } catch (error) {
    if (error.code === 401) askForToken(error);
    else say(error);
  }
}

takeToken();
begin();
