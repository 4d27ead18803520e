// --- all charts, the explorer, and printing

for (const figure of document.querySelectorAll("figure.chart")) {
  const source = figure.querySelector("script");
  if (source) showChart(figure.querySelector(".plot"), JSON.parse(source.textContent));
}
startExplorer();

// Charts in closed folds have no width until then.
addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll(".plot")) if (!place.drawnWidth) fitChart(place, PRINTED);
});
