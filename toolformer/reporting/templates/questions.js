"use strict";
// Answers of evaluations: a filtered list of questions, and two runs' answers to the chosen one side by side.

class Questions {
  constructor(data) {
    this.data = data;
    const at = (name) => document.getElementById(`questions-${name}`);
    this.controls = Object.fromEntries(["task", "first", "second", "outcome", "calls", "text"].map((name) => [name, at(name)]));
    this.count = at("count");
    this.reader = at("reader");
    this.list = new VirtualList(at("list"), { height: 62, fill: (row, item) => this.fill(row, item), choose: (item) => this.read(item) });
    choices(this.controls.task, data.map((one, number) => [String(number), `${one.task} (${one.rows.length.toLocaleString("en")})`]));
    this.controls.task.addEventListener("change", () => this.open());
    for (const name of ["first", "second", "outcome", "calls"]) this.controls[name].addEventListener("change", () => this.apply());
    this.controls.text.addEventListener("input", soon(() => this.apply()));
    this.open();
  }

  // A benchmark: its runs, Toolformer beside the model it is made of where both were asked.
  open() {
    this.task = this.data[Number(this.controls.task.value)];
    this.shared = sharedStart(this.task.rows.map((row) => row.prompt));
    const runs = this.task.runs.map((one, number) => [String(number), `${one.title} · ${one.run}`]);
    choices(this.controls.first, runs);
    choices(this.controls.second, runs);
    const second = Math.max(this.task.runs.findIndex((one) => one.system === "Toolformer"), 0);
    const first = this.task.runs.findIndex((one, number) => number !== second);
    this.controls.first.value = String(Math.max(first, 0));
    this.controls.second.value = String(second);
    this.apply();
  }

  pair(row) {
    return [row.answers[Number(this.controls.first.value)], row.answers[Number(this.controls.second.value)]];
  }

  apply() {
    const { outcome, calls, text } = this.controls;
    const wanted = text.value.trim().toLowerCase();
    const right = (answer) => Boolean(answer) && answer.score > 0;
    const outcomes = {
      both: (a, b) => right(a) && right(b), neither: (a, b) => !right(a) && !right(b),
      first: (a, b) => right(a) && !right(b), second: (a, b) => !right(a) && right(b), differ: (a, b) => right(a) !== right(b),
    };
    const called = {
      called: (a, b) => Boolean(a?.tool || b?.tool), none: (a, b) => !a?.tool && !b?.tool,
      failed: (a, b) => Boolean(a?.failed || b?.failed),
    };
    const found = this.task.rows.filter((row) => {
      const [a, b] = this.pair(row);
      if (!a && !b) return false;
      if (outcome.value && !outcomes[outcome.value](a, b)) return false;
      if (calls.value && !called[calls.value](a, b)) return false;
      if (!wanted) return true;
      const words = [row.id, row.prompt, ...row.target, a?.completion, b?.completion];
      return words.some((one) => (one || "").toLowerCase().includes(wanted));
    });
    const all = this.task.rows.length;
    const drawn = this.task.drawn ? `, ${this.task.drawn}` : "";
    this.count.textContent = `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")} questions${drawn}`;
    this.list.show(found);
  }

  fill(row, item) {
    const marks = this.pair(item).map((answer) => {
      const state = !answer ? "absent" : answer.score > 0 ? "right" : "wrong";
      return make("span", { class: `mark ${state}`, title: state, role: "img", "aria-label": state, text: { absent: "·", right: "✓", wrong: "✗" }[state] });
    });
    const tools = [...new Set(this.pair(item).map((answer) => answer?.tool).filter(Boolean))];
    row.append(
      make("span", { class: "marks" }, ...marks),
      make("span", { class: "words" },
        make("bdi", { class: "call-text plain", text: flat(item.prompt.slice(this.shared)) }),
        make("span", { class: "under" }, ...tools.map((tool) => make("span", { class: "chip kept", text: tool })), make("bdi", { text: item.id }))),
    );
  }

  read(item) {
    if (!item) {
      this.reader.replaceChildren(make("p", { class: "empty", text: "No question fits these filters." }));
      return;
    }
    const targets = item.target.map((target) => make("bdi", { class: "target", text: target }));
    if (item.more) targets.push(make("span", { class: "empty", text: `and ${item.more} more` }));
    const names = [this.controls.first, this.controls.second].map((select) => select.selectedOptions[0]?.textContent || "");
    this.reader.replaceChildren(
      make("header", {}, make("h2", {}, make("bdi", { text: item.id }))),
      make("p", { class: "document question", dir: "auto", text: item.prompt }),
      make("p", { class: "targets" }, make("span", { class: "label", text: "accepted" }), ...targets),
      make("div", { class: "pair" }, ...this.pair(item).map((answer, number) => this.answer(answer, names[number]))),
    );
  }

  answer(answer, name) {
    if (!answer) return make("section", {}, make("h3", { text: name }), make("p", { class: "empty", text: "This run was not asked." }));
    const right = answer.score > 0;
    const verdict = answer.score > 0 && answer.score < 100 ? `score ${shown(answer.score)}` : right ? "right" : "wrong";
    const cost = [answer.tokens === null ? null : `${answer.tokens} tokens`, answer.seconds === null ? null : `${shown(answer.seconds)} s`];
    return make("section", {},
      make("h3", {}, make("span", { text: name }), make("span", { class: right ? "chip kept" : "chip bad", text: verdict })),
      this.completion(answer),
      facts([
        answer.tool ? ["call", make("bdi", { class: "mono", text: `${answer.tool}(${answer.input || ""})` })] : ["call", answer.failed ? "taken back" : "none"],
        answer.tool ? ["result", answer.result || ""] : null,
        answer.failed ? ["fault", answer.failed] : null,
        ["prediction", answer.prediction || "–"],
        ["cost", cost.filter(Boolean).join(", ") || "–"],
      ]));
  }

  // The completion with its executed call marked.
  completion(answer) {
    const whole = answer.completion || "";
    const body = make("p", { class: "document completion", dir: "auto" });
    const start = answer.tool ? whole.indexOf(`[${answer.tool}(`) : -1;
    const result = start < 0 ? -1 : whole.indexOf(answer.result || "", start + answer.tool.length + 2 + (answer.input || "").length);
    const end = result < 0 ? -1 : whole.indexOf("]", result + (answer.result || "").length);
    if (end < 0) body.append(whole);
    else body.append(whole.slice(0, start), make("mark", { text: whole.slice(start, end + 1) }), whole.slice(end + 1));
    return body;
  }
}

// How many characters all questions of a benchmark begin with, up to the end of a word.
function sharedStart(texts) {
  if (texts.length < 2) return 0;
  const [first, ...others] = texts;
  let length = first.length;
  for (const text of others) {
    let same = 0;
    while (same < length && same < text.length && first[same] === text[same]) same += 1;
    length = same;
  }
  return first.lastIndexOf(" ", length - 1) + 1;
}
