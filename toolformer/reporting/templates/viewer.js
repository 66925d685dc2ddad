"use strict";
// The page: two tabs, each made when it is first opened.
(() => {
  const data = JSON.parse(document.getElementById("data-samples").textContent);
  const makers = { candidates: () => new Candidates(data.candidates), questions: () => new Questions(data.questions) };
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const opened = new Set();

  function open(tab) {
    for (const one of tabs) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
    }
    const name = tab.dataset.name;
    if (!opened.has(name)) {
      opened.add(name);
      makers[name]();
    }
  }

  for (const [number, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const places = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: tabs.length - 1 };
      if (!(event.key in places)) return;
      event.preventDefault();
      const next = tabs[(places[event.key] + tabs.length) % tabs.length];
      next.focus();
      open(next);
    });
  }
  open(tabs[0]);
})();
