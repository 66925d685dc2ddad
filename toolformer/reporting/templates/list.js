"use strict";
// A list of any length of which only the rows in sight are in the page. Rows are equally high; arrow keys, Page Up and
// Down, Home and End move the chosen one.

class VirtualList {
  // `host`: a scrolling element; `fill(row, item)`: puts an item into an empty row; `choose(item)`: it was chosen.
  constructor(host, { height, fill, choose }) {
    Object.assign(this, { host, height, fill, choose });
    this.items = [];
    this.chosen = -1;
    this.rows = new Map();
    this.room = make("div", { class: "room", role: "presentation" });
    host.replaceChildren(this.room);
    host.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    host.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.drawSoon()).observe(host);
  }

  show(items) {
    const before = this.items[this.chosen];
    this.items = items;
    this.forget();
    this.room.style.height = `${items.length * this.height}px`;
    const still = before === undefined ? -1 : items.indexOf(before);
    if (still < 0) this.host.scrollTop = 0;
    this.pick(items.length ? Math.max(still, 0) : -1);
    this.draw();
  }

  pick(number) {
    this.chosen = number;
    if (number >= 0) {
      const top = number * this.height;
      const { scrollTop, clientHeight } = this.host;
      if (top < scrollTop) this.host.scrollTop = top;
      else if (top + this.height > scrollTop + clientHeight) this.host.scrollTop = top + this.height - clientHeight;
    }
    this.draw();
    this.choose(number >= 0 ? this.items[number] : null);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.host.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey || !this.items.length) return;
    event.preventDefault();
    this.pick(Math.min(this.items.length - 1, Math.max(0, this.chosen + steps[event.key])));
  }

  drawSoon() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  forget() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  draw() {
    const spare = 4;
    const first = Math.max(0, Math.floor(this.host.scrollTop / this.height) - spare);
    const last = Math.min(this.items.length - 1, Math.ceil((this.host.scrollTop + this.host.clientHeight) / this.height) + spare);
    for (const [number, row] of this.rows) {
      if ((number < first || number > last) && number !== this.chosen) {
        row.remove();
        this.rows.delete(number);
      }
    }
    for (let number = first; number <= last; number += 1) this.row(number);
    if (this.chosen >= 0) this.row(this.chosen); // what a screen reader is told of must be there
    for (const [number, row] of this.rows) row.setAttribute("aria-selected", String(number === this.chosen));
    if (this.chosen >= 0) this.host.setAttribute("aria-activedescendant", this.rows.get(this.chosen).id);
    else this.host.removeAttribute("aria-activedescendant");
  }

  row(number) {
    if (this.rows.has(number)) return;
    const row = make("div", {
      class: "row", role: "option", id: `${this.host.id}-${number}`,
      "aria-posinset": number + 1, "aria-setsize": this.items.length,
    });
    row.style.transform = `translateY(${number * this.height}px)`;
    row.style.height = `${this.height}px`;
    row.addEventListener("click", () => {
      this.host.focus({ preventScroll: true });
      this.pick(number);
    });
    this.fill(row, this.items[number]);
    this.rows.set(number, row);
    this.room.append(row);
  }
}
