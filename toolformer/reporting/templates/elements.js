"use strict";
// Elements made without markup: every text becomes a text node, so that none of it is ever read as HTML.

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function signed(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
}

function shown(value, digits = 3) {
  return value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toString();
}

// One line of a list; the whole text is in the reader.
function flat(text, longest = 160) {
  const line = (text || "").slice(0, 4 * longest).replace(/\s+/g, " ").trim();
  return line.length > longest ? `${line.slice(0, longest)} …` : line;
}

function choices(select, options) {
  select.replaceChildren(...options.map(([value, label]) => make("option", { value, text: label })));
}

function soon(act, milliseconds = 120) {
  let waiting = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(act, milliseconds);
  };
}

function facts(pairs) {
  const rows = pairs.filter((pair) => pair).map(([name, value]) =>
    make("div", {}, make("dt", { text: name }), make("dd", {}, value instanceof Node ? value : make("bdi", { text: value }))));
  return make("dl", { class: "facts" }, ...rows);
}
