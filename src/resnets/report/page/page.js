"use strict";

const PRINTED = 640; // pixels, which A4 and letter both have

// plotly.js lies in the page packed.
async function unpack() {
  const bytes = Uint8Array.from(atob(document.getElementById("library").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

function draw(figure) {
  if (figure.classList.contains("drawn")) return;
  figure.classList.add("drawn");
  const touch = matchMedia("(pointer: coarse)").matches;
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  if (touch) layout.dragmode = false; // a finger on a figure scrolls the page; its buttons zoom
  const place = figure.querySelector("div");
  place.replaceChildren();
  Plotly.newPlot(place, data, layout, {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? true : "hover",
    // named one by one, as some of the usual ones would send the figure away
    modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]],
  });
}

// Figures are drawn when they come near, as there are many; before printing, all the others. Paper is narrower than
// a screen and asks nobody to lay out anew.
unpack().then(() => {
  const figures = [...document.querySelectorAll("figure.plot")];
  const resize = (size) => figures.forEach((f) => Plotly.relayout(f.querySelector("div"), size));
  const seen = (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => draw(e.target));
  const near = new IntersectionObserver(seen, { rootMargin: "400px" });
  figures.forEach((figure) => near.observe(figure));
  addEventListener("beforeprint", () => {
    figures.forEach(draw);
    resize({ width: PRINTED, autosize: false });
  });
  addEventListener("afterprint", () => resize({ width: null, autosize: true }));
});
