"use strict";
// The samples page: candidate calls, and answers of evaluations; each a filtered list beside a reader.
// Elements are built without markup: every text becomes a text node and is never read as HTML.

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const signed = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`);
const rounded = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));
const oneLine = (text) => text.slice(0, 600).replace(/\s+/g, " ").trim().slice(0, 160);
const contains = (texts, wanted) => texts.some((text) => (text || "").toLowerCase().includes(wanted));
const isolated = (text, name = "plain") => make("bdi", { class: name, text });
const empty = (text) => make("span", { class: "empty", text });

function facts(...pairs) {
  const rows = pairs.filter((pair) => pair).map(([name, value]) =>
    make("div", {}, make("dt", { text: name }), make("dd", {}, value instanceof Node ? value : isolated(value))));
  return make("dl", { class: "facts" }, ...rows);
}

function offer(select, options) {
  select.replaceChildren(...options.map(([value, label]) => make("option", { value, text: label })));
}

function tally(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  return counts;
}

// A list of radio buttons beside a reader. `matching()` returns the items to list and what is counted, `row(item)` what
// stands in an item's row, `read(item)` what the reader shows of it.
class Panel {
  constructor(name) {
    const section = document.getElementById(name);
    this.name = name;
    this.controls = Object.fromEntries([...section.querySelectorAll("[name]")].map((control) => [control.name, control]));
    [this.list, this.reader, this.count] = [".list", ".reader", ".count"].map((selector) => section.querySelector(selector));
    [this.items, this.index] = [[], -1];
    this.list.addEventListener("change", (event) => this.select(Number(event.target.value)));
    section.querySelector(".filters").addEventListener("input", () => this.apply());
  }

  value(name) {
    return this.controls[name].value;
  }

  apply() {
    const before = this.items[this.index];
    const [items, all, counted] = this.matching();
    this.items = items;
    this.list.replaceChildren(...items.map((item, value) => {
      const button = make("input", { type: "radio", name: `${this.name}-row`, value, class: "away" });
      return make("label", { class: "row" }, button, ...this.row(item));
    }));
    this.count.textContent = `${items.length.toLocaleString("en")} of ${all.toLocaleString("en")} ${counted}`;
    this.select(items.length ? Math.max(items.indexOf(before), 0) : -1);
  }

  select(index) {
    this.index = index;
    const row = this.list.children[index];
    if (row) {
      row.control.checked = true;
      row.scrollIntoView({ block: "nearest" });
    }
    this.reader.replaceChildren(...(row ? this.read(this.items[index]) : [empty("Nothing matches these filters.")]));
    this.reader.scrollTop = 0;
    this.selected?.();
  }
}

const words = (text, name, ...under) =>
  make("span", { class: "words" }, isolated(oneLine(text), name), make("span", { class: "under" }, ...under));

// Candidate calls, and the document of the selected one with all of its calls in place.
class Candidates extends Panel {
  constructor(data) {
    super("candidates");
    this.data = data;
    this.texts = data.documents.map((about) => `${about.id}\n${about.text || ""}`.toLowerCase());
    const tools = tally(data.rows.map((row) => row.tool));
    const reasons = [...tally(data.rows.filter((row) => !row.kept).map((row) => row.reason))];
    const kept = data.rows.filter((row) => row.kept).length;
    offer(this.controls.tool, [["", "all"], ...data.tools.map((name, tool) => [tool, `${name} (${tools.get(tool) || 0})`])]);
    offer(this.controls.status, [
      ["", "all"], ["kept", `kept (${kept})`], ["dropped", `not kept (${data.rows.length - kept})`],
      ...reasons.sort((a, b) => b[1] - a[1]).map(([reason, count]) => [`=${reason}`, `${reason} (${count})`]),
    ]);
    this.apply();
  }

  matching() {
    const [tool, status, text] = [this.value("tool"), this.value("status"), this.value("text").trim().toLowerCase()];
    const least = this.value("least") === "" ? -Infinity : Number(this.value("least"));
    const most = this.value("most") === "" ? Infinity : Number(this.value("most"));
    const bounded = least > -Infinity || most < Infinity;
    const statuses = { "": () => true, kept: (row) => row.kept, dropped: (row) => !row.kept };
    const hasStatus = statuses[status] || ((row) => `=${row.reason}` === status);
    const items = this.data.rows.filter((row) =>
      (tool === "" || row.tool === Number(tool)) && hasStatus(row) &&
      (!bounded || (row.gain !== null && row.gain >= least && row.gain <= most)) &&
      (!text || this.texts[row.document].includes(text) || contains([row.call, row.result], text)));
    const last = (value) => (value === null ? -Infinity : value);
    const orders = {
      best: (a, b) => last(b.gain) - last(a.gain) || 0,
      worst: (a, b) => (a.gain === null) - (b.gain === null) || a.gain - b.gain,
      start: (a, b) => last(b.start) - last(a.start) || 0,
      corpus: () => 0,
    };
    return [items.sort(orders[this.value("order")]), this.data.rows.length, `candidates${this.data.drawn}`];
  }

  verdict(item) {
    return make("span", { class: item.kept ? "chip kept" : "chip", text: item.kept ? "kept" : item.reason });
  }

  row(item) {
    const gain = tinted(make("span", { class: "gain", text: signed(item.gain) }), item.gain);
    return [gain, words(item.call, "call-text", this.verdict(item), isolated(this.data.documents[item.document].id))];
  }

  read(item) {
    const about = this.data.documents[item.document];
    const threshold = this.data.thresholds[item.tool];
    const [result, alone, none] = item.losses.map(rounded);
    return [
      make("header", {}, make("h2", {}, isolated(about.id)),
        make("p", { class: "from" }, isolated([about.date, about.url].filter(Boolean).join(" · ")))),
      facts(
        [this.data.tools[item.tool], isolated(item.call, "mono")],
        item.result !== null && ["result", item.result],
        ["decision", this.verdict(item)],
        item.gain !== null && [`gain ${this.data.gain}`, `${signed(item.gain)} nats${threshold === null ? "" : `, threshold ${rounded(threshold)}`}`],
        item.losses[0] !== null && ["losses", `with result ${result}, call alone ${alone}, no call ${none}`],
        ["position", `character ${item.position.toLocaleString("en")}, start probability ${rounded(item.start)}, sample ${item.sample + 1}`],
      ),
      about.text === null ? empty("The run does not store the text of this document, because it kept no call in it.") : this.text(about, item),
    ];
  }

  selected() {
    const call = this.reader.querySelector(".call.selected");
    const below = call ? call.getBoundingClientRect().bottom - this.reader.getBoundingClientRect().bottom : 0;
    this.reader.scrollTop = Math.max(0, below + 80);
  }

  text(about, item) {
    const characters = Array.from(about.text); // positions count characters, not UTF-16 units
    const body = make("p", { class: "document", dir: "auto" });
    let from = 0;
    for (const [position, calls] of this.places(item)) {
      if (about.cut && position > characters.length) continue;
      body.append(characters.slice(from, position).join(""));
      from = Math.min(position, characters.length);
      for (const call of calls) body.append(this.call(call, item), " ");
    }
    body.append(characters.slice(from).join(""));
    if (about.cut) body.append(empty(" … the rest is not shown"));
    if (about.left) body.append(empty(` … ${about.left.toLocaleString("en")} more calls in this document are not shown`));
    return body;
  }

  // [position, calls] of a document in order; equal calls at a position once, with how often they were sampled.
  places(item) {
    const places = new Map();
    for (const row of this.data.rows.filter((other) => other.document === item.document)) {
      const calls = places.get(row.position) || new Map();
      const key = JSON.stringify([row.tool, row.call, row.result]);
      const call = calls.get(key) || { row, times: 0 };
      call.times += 1;
      if (row === item || (row.kept && call.row !== item)) call.row = row;
      places.set(row.position, calls.set(key, call));
    }
    return [...places].sort((a, b) => a[0] - b[0]).map(([position, calls]) => [position, [...calls.values()]]);
  }

  call({ row, times }, item) {
    const written = row.result === null ? row.call : `${row.call.replace(/\]$/, "")} → ${row.result}]`;
    const text = row === item || row.kept ? written : this.data.tools[row.tool];
    const button = make("button", {
      type: "button", class: `call${row === item ? " selected" : ""}${row.kept ? " is-kept" : ""}`, title: written,
    }, isolated(text), make("span", { class: "amount", text: (row.gain === null ? row.reason : signed(row.gain)) + (times > 1 ? ` ×${times}` : "") }));
    button.addEventListener("click", () => {
      const index = this.items.indexOf(row);
      if (index >= 0) this.select(index);
      else this.reader.replaceChildren(...this.read(row)); // filtered out of the list
      this.reader.querySelector(".call.selected")?.focus({ preventScroll: true });
    });
    return tinted(button, row.gain);
  }
}

// Green helps, red harms; full colour from two nats on.
function tinted(element, gain) {
  element.dataset.sign = gain ? (gain > 0 ? "plus" : "minus") : "none";
  element.style.setProperty("--strength", `${gain ? Math.round(100 * Math.min(1, 0.15 + Math.abs(gain) / 2)) : 0}%`);
  return element;
}

// Answers of evaluations: two runs' answers to the selected question side by side.
class Questions extends Panel {
  constructor(data) {
    super("questions");
    this.data = data;
    offer(this.controls.task, data.map((task, index) => [index, `${task.task} (${task.rows.length})`]));
    this.controls.task.addEventListener("input", () => this.open());
    this.open();
    this.apply();
  }

  // Toolformer as B beside another run as A, if there is one.
  open() {
    this.task = this.data[Number(this.value("task"))];
    this.shared = sharedStart(this.task.rows.map((row) => row.prompt));
    const runs = this.task.runs.map((run, index) => [index, `${run.title} · ${run.run}`]);
    const second = Math.max(this.task.runs.findIndex((run) => run.system === "Toolformer"), 0);
    for (const name of ["first", "second"]) offer(this.controls[name], runs);
    this.controls.second.value = second;
    const classes = [...new Set(this.task.rows.flatMap((row) => row.answers.map((answer) => answer?.class)))].filter(Boolean);
    offer(this.controls.class, [["", "all"], ...classes.sort().map((name) => [name, name])]);
    this.controls.class.parentElement.hidden = !classes.length;
    this.controls.first.value = Math.max(runs.findIndex(([index]) => index !== second), 0);
  }

  pair(row) {
    return [row.answers[Number(this.value("first"))], row.answers[Number(this.value("second"))]];
  }

  matching() {
    const [outcome, calls, why, text] = [this.value("outcome"), this.value("calls"), this.value("class"), this.value("text").trim().toLowerCase()];
    const outcomes = {
      "": () => true, both: (a, b) => a && b, neither: (a, b) => !a && !b,
      first: (a, b) => a && !b, second: (a, b) => !a && b, differ: (a, b) => a !== b,
    };
    const called = {
      "": () => true, called: (a, b) => a?.tool || b?.tool, none: (a, b) => !a?.tool && !b?.tool,
      failed: (a, b) => a?.failed || b?.failed,
    };
    const items = this.task.rows.filter((row) => {
      const [a, b] = this.pair(row);
      return (a || b) && outcomes[outcome](a?.score > 0, b?.score > 0) && called[calls](a, b) &&
        (!why || a?.class === why || b?.class === why) &&
        (!text || contains([row.id, row.prompt, ...row.target, a?.completion, b?.completion], text));
    });
    return [items, this.task.rows.length, `questions${this.task.drawn}`];
  }

  row(item) {
    const marks = this.pair(item).map((answer) => {
      const state = answer ? (answer.score > 0 ? "right" : "wrong") : "absent";
      return make("span", { class: `mark ${state}`, role: "img", "aria-label": state, text: { absent: "·", right: "✓", wrong: "✗" }[state] });
    });
    const tools = new Set(this.pair(item).map((answer) => answer?.tool).filter(Boolean));
    const chips = [...tools].map((tool) => make("span", { class: "chip kept", text: tool }));
    return [make("span", { class: "marks" }, ...marks), words(item.prompt.slice(this.shared), "question-text", ...chips, isolated(item.id))];
  }

  read(item) {
    const targets = item.target.map((target) => isolated(target, "target"));
    if (item.more) targets.push(empty(`and ${item.more} more`));
    const names = ["first", "second"].map((name) => this.controls[name].selectedOptions[0].textContent);
    return [
      make("header", {}, make("h2", {}, isolated(item.id))),
      make("p", { class: "document question", dir: "auto", text: item.prompt }),
      make("p", { class: "targets" }, make("span", { class: "label", text: "accepted" }), ...targets),
      make("div", { class: "pair" }, ...this.pair(item).map((answer, index) => this.answer(answer, names[index]))),
    ];
  }

  answer(answer, name) {
    if (!answer) return make("section", {}, make("h3", { text: name }), empty("Not asked in this run."));
    const right = answer.score > 0;
    const verdict = right && answer.score < 100 ? `score ${rounded(answer.score)}` : right ? "right" : "wrong";
    return make("section", {},
      make("h3", {}, make("span", { text: name }), make("span", { class: right ? "chip kept" : "chip bad", text: verdict })),
      this.completion(answer),
      facts(
        ["call", answer.tool ? isolated(`${answer.tool}(${answer.call_input || ""})`, "mono") : answer.failed ? "failed" : "none"],
        answer.tool && ["result", answer.call_result || ""],
        answer.failed && ["reason", answer.failed],
        answer.class && ["why", answer.class],
        ["prediction", answer.prediction || "–"],
        ["cost", `${rounded(answer.tokens)} tokens, ${rounded(answer.seconds)} s`],
      ));
  }

  // The completion with its executed call marked.
  completion(answer) {
    const text = answer.completion || "";
    const body = make("p", { class: "document completion", dir: "auto" });
    const start = answer.tool ? text.indexOf(`[${answer.tool}(`) : -1;
    const result = start < 0 ? -1 : text.indexOf(answer.call_result || "", start + answer.tool.length + 2 + (answer.call_input || "").length);
    const end = result < 0 ? -1 : text.indexOf("]", result + (answer.call_result || "").length);
    if (end < 0) body.append(text);
    else body.append(text.slice(0, start), make("mark", { text: text.slice(start, end + 1) }), text.slice(end + 1));
    return body;
  }
}

// How many characters all prompts begin with, up to the end of a word: the examples of a few-shot prompt.
function sharedStart(texts) {
  const [first, ...others] = texts;
  let length = others.length ? first.length : 0;
  for (const text of others) {
    while (!text.startsWith(first.slice(0, length))) length -= 1;
  }
  return first.lastIndexOf(" ", length - 1) + 1;
}

const data = JSON.parse(document.getElementById("data").textContent);
if (data.candidates) new Candidates(data.candidates);
if (data.questions.length) new Questions(data.questions);
