"use strict";
// Candidate calls: a filtered list of them, and the document of the chosen one with all of its calls in place.

class Candidates {
  constructor(data) {
    this.data = data;
    const at = (name) => document.getElementById(`candidates-${name}`);
    this.controls = Object.fromEntries(["tool", "status", "least", "most", "order", "text", "all"].map((name) => [name, at(name)]));
    this.count = at("count");
    this.reader = at("reader");
    this.byDocument = new Map();
    for (const row of data.rows) {
      if (!this.byDocument.has(row.document)) this.byDocument.set(row.document, []);
      this.byDocument.get(row.document).push(row);
    }
    this.words = data.documents.map((one) => `${one.id}\n${one.text || ""}`.toLowerCase());
    this.list = new VirtualList(at("list"), { height: 62, fill: (row, item) => this.fill(row, item), choose: (item) => this.read(item) });
    this.offer();
    for (const name of ["tool", "status", "order"]) this.controls[name].addEventListener("change", () => this.apply());
    const typed = soon(() => this.apply());
    for (const name of ["least", "most", "text"]) this.controls[name].addEventListener("input", typed);
    this.controls.all.addEventListener("change", () => this.read(this.chosen));
    this.apply();
  }

  offer() {
    const counted = (values) => {
      const counts = new Map();
      for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
      return counts;
    };
    const tools = counted(this.data.rows.map((row) => row.tool));
    choices(this.controls.tool, [["", "all"], ...this.data.tools.map((name, tool) => [String(tool), `${name} (${tools.get(tool) || 0})`])]);
    const reasons = [...counted(this.data.rows.filter((row) => row.reason).map((row) => row.reason))].sort((a, b) => b[1] - a[1]);
    const kept = this.data.rows.filter((row) => row.kept).length;
    choices(this.controls.status, [
      ["", "all"], ["kept", `kept (${kept})`], ["dropped", `not kept (${this.data.rows.length - kept})`],
      ...reasons.map(([reason, count]) => [`=${reason}`, `${reason} (${count})`]),
    ]);
  }

  apply() {
    const { tool, status, least, most, order, text } = this.controls;
    const wanted = text.value.trim().toLowerCase();
    const low = least.value === "" ? null : Number(least.value);
    const high = most.value === "" ? null : Number(most.value);
    const there = wanted && this.words.map((words) => words.includes(wanted));
    const fits = (row) =>
      (tool.value === "" || row.tool === Number(tool.value)) &&
      (status.value === "" || (status.value === "kept" ? row.kept : status.value === "dropped" ? !row.kept : `=${row.reason}` === status.value)) &&
      (low === null || (row.gain !== null && row.gain >= low)) &&
      (high === null || (row.gain !== null && row.gain <= high)) &&
      (!wanted || there[row.document] || `${row.call}\n${row.result || ""}`.toLowerCase().includes(wanted));
    const found = this.data.rows.filter(fits);
    const last = (value) => (value === null ? -Infinity : value);
    const sorts = {
      best: (a, b) => last(b.gain) - last(a.gain) || 0,
      worst: (a, b) => (a.gain === null) - (b.gain === null) || a.gain - b.gain,
      start: (a, b) => last(b.start) - last(a.start) || 0,
    };
    if (sorts[order.value]) found.sort(sorts[order.value]);
    const all = this.data.rows.length;
    const drawn = this.data.drawn ? `, ${this.data.drawn}` : "";
    this.count.textContent = `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")} candidates${drawn}`;
    this.list.show(found);
  }

  fill(row, item) {
    row.append(
      make("span", { class: "gain", text: signed(item.gain) }),
      make("span", { class: "words" },
        make("bdi", { class: "call-text", text: flat(item.call) }),
        make("span", { class: "under" },
          make("span", { class: item.kept ? "chip kept" : "chip", text: item.kept ? "kept" : item.reason }),
          make("bdi", { text: this.data.documents[item.document].id }))),
    );
    tint(row.firstChild, item.gain);
  }

  read(item) {
    this.chosen = item;
    if (!item) {
      this.reader.replaceChildren(make("p", { class: "empty", text: "No candidate fits these filters." }));
      return;
    }
    const about = this.data.documents[item.document];
    const from = [about.date, about.url].filter(Boolean).join(" · ");
    this.reader.replaceChildren(
      make("header", {}, make("h2", {}, make("bdi", { text: about.id })), from ? make("p", { class: "from" }, make("bdi", { text: from })) : null),
      this.details(item),
      about.text === null
        ? make("p", { class: "empty", text: "The run does not hold the text of this document, since it kept no call in it." })
        : this.text(about, item),
    );
    this.reveal();
  }

  // The chosen call comes into sight where the reader scrolls by itself; on a narrow page nothing may jump.
  reveal() {
    const call = this.reader.querySelector(".call.chosen");
    if (!call) return;
    const below = call.getBoundingClientRect().bottom - this.reader.getBoundingClientRect().bottom;
    this.reader.scrollTop = Math.max(0, below + 80);
  }

  details(item) {
    const threshold = this.data.thresholds[item.tool];
    const [result, noResult, none] = item.losses;
    const verdict = make("span", { class: item.kept ? "chip kept" : "chip", text: item.kept ? "kept" : item.reason });
    return facts([
      [this.data.tools[item.tool], make("bdi", { class: "mono", text: item.call })],
      item.result === null ? null : ["result", item.result],
      ["decision", verdict],
      item.gain === null ? null : [`gain ${this.data.gain}`, `${signed(item.gain)} nats${threshold === null ? "" : `, threshold ${shown(threshold)}`}`],
      result === null ? null : ["losses", `with result ${shown(result)}, call alone ${shown(noResult)}, no call ${shown(none)}`],
      ["place", `character ${item.position.toLocaleString("en")}, start probability ${shown(item.start)}, sample ${item.sample + 1}`],
    ]);
  }

  text(about, item) {
    const characters = Array.from(about.text); // positions count characters, not the halves of pairs
    const body = make("p", { class: "document", dir: "auto" });
    let from = 0;
    const add = (group) => group.forEach((one) => body.append(this.call(one, item), " "));
    const places = this.places(about, item);
    const beyond = ([position]) => about.cut && position > characters.length; // in what is not shown
    for (const [position, group] of places.filter((one) => !beyond(one))) {
      const end = Math.min(position, characters.length);
      body.append(characters.slice(from, end).join(""));
      from = end;
      add(group);
    }
    body.append(characters.slice(from).join(""));
    if (about.cut) body.append(make("span", { class: "empty", text: " … the rest is not shown" }));
    const later = places.filter(beyond);
    if (later.length) body.append(make("span", { class: "empty beyond", text: "; in it: " }));
    for (const [, group] of later) add(group);
    if (about.left) body.append(make("span", { class: "empty left", text: ` … ${about.left.toLocaleString("en")} more calls in this document are not shown` }));
    return body;
  }

  // The calls of a document by position, those that say the same once.
  places(about, item) {
    const places = new Map();
    for (const row of this.byDocument.get(item.document)) {
      if (!places.has(row.position)) places.set(row.position, new Map());
      const group = places.get(row.position);
      const key = JSON.stringify([row.tool, row.call, row.result]);
      if (!group.has(key)) group.set(key, { row, times: 0 });
      const same = group.get(key);
      same.times += 1;
      if (row === item || (row.kept && same.row !== item)) same.row = row;
    }
    return [...places].sort((a, b) => a[0] - b[0]).map(([position, group]) => [position, [...group.values()]]);
  }

  call({ row, times }, item) {
    const whole = row === item || row.kept || this.controls.all.checked;
    const written = row.result === null ? row.call : `${row.call.replace(/\]$/, "")} → ${row.result}]`;
    const button = make("button", {
      type: "button",
      class: `call${row === item ? " chosen" : ""}${row.kept ? " is-kept" : ""}`,
      title: `${this.data.tools[row.tool]}: ${row.kept ? "kept" : row.reason}`,
      "aria-pressed": String(row === item),
      on: { click: () => this.jump(row) },
    }, make("bdi", { text: whole ? written : this.data.tools[row.tool] }),
    make("span", { class: "amount", text: `${row.gain === null ? row.reason : signed(row.gain)}${times > 1 ? ` ×${times}` : ""}` }));
    tint(button, row.gain);
    return button;
  }

  jump(row) {
    const number = this.list.items.indexOf(row);
    if (number >= 0) this.list.pick(number);
    else this.read(row);
    this.reader.querySelector(".call.chosen")?.focus({ preventScroll: true });
  }
}

// The colour of a gain: green helps, red harms, stronger the further from 0; two nats are the full colour.
function tint(element, gain) {
  element.dataset.sign = gain === null || gain === 0 ? "none" : gain > 0 ? "plus" : "minus";
  element.style.setProperty("--strength", `${gain === null ? 0 : Math.round(100 * Math.min(1, 0.15 + Math.abs(gain) / 2))}%`);
}
