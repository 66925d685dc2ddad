"use strict";
// Draws the figures of the report in the page's colours, anew when the reader's system turns light or dark.
(() => {
  const figures = JSON.parse(document.getElementById("data-figures").textContent);
  // Drag to look closer, click twice to come back; a tool bar over every figure would only be in the way.
  const options = { displaylogo: false, displayModeBar: false, responsive: true };

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    return { ink: named("ink"), soft: named("soft"), line: named("line"), sheet: named("sheet"), font: named("sans"),
      series: [0, 1, 2, 3, 4, 5].map((number) => named(`c${number}`)) };
  }

  function traces(panel, theme) {
    return panel.data.map((trace) => {
      const colour = theme.series[trace.meta % theme.series.length];
      const found = { ...trace, marker: { ...trace.marker, color: colour } };
      if (trace.line) found.line = { ...trace.line, color: colour };
      for (const error of ["error_x", "error_y"]) {
        if (trace[error]) found[error] = { ...trace[error], color: colour };
      }
      return found;
    });
  }

  function layout(panel, theme) {
    const axis = (given) => ({
      gridcolor: theme.line, zerolinecolor: theme.line, linecolor: theme.soft, tickcolor: theme.line, ...given,
    });
    const entries = panel.layout.showlegend ? panel.data.length : 0;
    return {
      ...panel.layout,
      title: panel.layout.title && { ...panel.layout.title, x: 0, xref: "paper", font: { size: 14, color: theme.ink } },
      font: { family: theme.font, size: 12, color: theme.soft },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: panel.layout.title ? 44 : 18, b: 48 + (entries ? 26 : 0) },
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { color: theme.ink } },
      hoverlabel: { bgcolor: theme.sheet, bordercolor: theme.soft, font: { color: theme.ink, family: theme.font } },
      xaxis: axis(panel.layout.xaxis),
      yaxis: axis(panel.layout.yaxis),
      shapes: (panel.layout.shapes || []).map((one) => ({ ...one, line: { ...one.line, color: theme.soft } })),
      annotations: (panel.layout.annotations || []).map((one) => ({ ...one, font: { ...one.font, color: theme.soft } })),
    };
  }

  function draw() {
    const theme = colours();
    for (const place of document.querySelectorAll(".plot")) {
      const panel = figures[place.dataset.figure][Number(place.dataset.panel)];
      place.style.minHeight = `${panel.layout.height}px`;
      Plotly.react(place, traces(panel, theme), layout(panel, theme), options);
    }
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
