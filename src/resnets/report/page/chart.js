// --- charts: lines over one or two axes, as SVG

const COLOURS = 6;
const MARKS = ["M-3.2,0a3.2,3.2 0 1,0 6.4,0a3.2,3.2 0 1,0 -6.4,0", "M-3,-3h6v6h-6z", "M0,-4.2L4.2,0L0,4.2L-4.2,0z",
  "M0,-4L4,3.2h-8z", "M0,4L4,-3.2h-8z", "M-3.4,-1.2h2.2v-2.2h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2z",
  "M-4,-2.2h8v4.4h-8z"]; // one more than colours, so that pairs repeat late
const HEIGHT = 250;
const PRINTED = 640; // pixels, which A4 and letter both have

const flat = (lines, key) => lines.flatMap((line) => line[key].filter((v) => v !== null && Number.isFinite(v)));

// A round step that gives about `count` ticks.
function roundStep(span, count) {
  const rough = span / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function linearScale(values, from, to, rounded) {
  let low = Math.min(...values, 0);
  let high = Math.max(...values);
  if (!(high > low)) high = low + 1;
  const step = roundStep(high - low, 5);
  if (rounded) high = Math.ceil(high / step - 1e-9) * step;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) ticks.push(tick);
  const place = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { place, ticks: ticks.map((tick) => [tick, format(Number(tick.toPrecision(12)), 4)]) };
}

// Ticks at powers of ten, a few of them; within three decades at 1, 2 and 5 too.
function logScale(values, from, to) {
  let low = Math.log10(Math.min(...values));
  let high = Math.log10(Math.max(...values));
  if (high - low < 0.3) [low, high] = [low - 0.15, high + 0.15];
  const place = (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
  const every = Math.ceil((high - low) / 6);
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const factor of high - low < 1 ? [1, 1.5, 2, 3, 5, 7] : high - low < 3 ? [1, 2, 5] : [1]) {
      const log = power + Math.log10(factor);
      if (log < low - 1e-9 || log > high + 1e-9 || (high - low >= 3 && power % every)) continue;
      ticks.push([factor * 10 ** power, high - low < 3 ? format(factor * 10 ** power) : `10${raise(power)}`]);
    }
  }
  return { place, ticks };
}

const isDrawn = (value, log) => value !== null && (!log || value > 0);

function makeScales(chart, lines, box) {
  const left = lines.filter((line) => !line.right);
  const right = lines.filter((line) => line.right);
  const own = flat(left, "y").filter((value) => isDrawn(value, chart.log));
  const scales = { x: linearScale(flat(lines, "x"), box.left, box.right, false) };
  if (own.length) scales.left = (chart.log ? logScale : linearScale)(own, box.bottom, box.top, true);
  if (right.length) scales.right = linearScale(flat(right, "y"), box.bottom, box.top, true);
  return scales;
}

function drawAxes(chart, scales, box) {
  const parts = [];
  for (const [value, words] of scales.x.ticks) {
    parts.push(svg("text", { x: scales.x.place(value), y: box.bottom + 16, "text-anchor": "middle" }, words));
  }
  parts.push(svg("text", { x: box.right, y: box.bottom + 31, "text-anchor": "end", class: "title" }, chart.x));
  for (const [value, words] of scales.left?.ticks ?? []) {
    const y = scales.left.place(value);
    parts.push(svg("path", { class: "grid", d: `M${box.left},${y}H${box.right}` }));
    parts.push(svg("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, words));
  }
  for (const [value, words] of scales.right?.ticks ?? []) {
    parts.push(svg("text", { x: box.right + 6, y: scales.right.place(value) + 4 }, words));
  }
  parts.push(svg("text", { x: 2, y: 11, class: "title" }, scales.left ? chart.y : ""));
  parts.push(svg("text", { x: box.right + 40, y: 11, "text-anchor": "end", class: "title" }, scales.right ? chart.right : ""));
  parts.push(svg("path", { class: "axis", d: `M${box.left},${box.top}V${box.bottom}H${box.right}` }));
  return parts;
}

// A path that is broken where a value is missing, and marks at some of its points.
function drawLine(line, chart, scales) {
  const y = line.right ? scales.right : scales.left;
  const log = chart.log && !line.right;
  let path = "";
  let pen = "M";
  const points = [];
  line.y.forEach((value, i) => {
    if (!isDrawn(value, log)) { pen = "M"; return; }
    const at = [scales.x.place(line.x[i]), y.place(value)].map((number) => number.toFixed(1));
    points.push(at);
    path += pen + at;
    pen = "L";
  });
  const every = Math.ceil(points.length / 7);
  const marked = line.thin || line.dash ? [] : points.filter((_, i) => i % every === 0 || points.length < 8);
  const names = ["dash", "thin", "faint", "big"].filter((name) => line[name]);
  return svg("g", { class: ["line", `c${line.number % COLOURS}`, ...names].join(" ") },
    svg("path", { d: path, class: "stroke" }),
    ...marked.map(([x, up]) => svg("path", {
      d: MARKS[line.number % MARKS.length], class: "mark", transform: `translate(${x},${up})${line.big ? "scale(1.6)" : ""}` })));
}

// The entries of the legend are the numbers of the lines; a click hides their lines.
function makeLegend(chart, state, redraw) {
  const entries = new Map(chart.lines.map((line) => [line.number, line.name]));
  return html("ul", { class: "legend" }, ...[...entries].map(([number, name]) => {
    const swatch = svg("svg", { viewBox: "-12 -6 24 12", width: 24, height: 12, class: `c${number % COLOURS}`, "aria-hidden": "true" },
      svg("path", { d: "M-12,0H12", class: "stroke" }), svg("path", { d: MARKS[number % MARKS.length], class: "mark" }));
    const button = html("button", { type: "button", "aria-pressed": !state.hidden.has(number) }, swatch, ` ${name} `);
    button.addEventListener("click", () => {
      if (!state.hidden.delete(number)) state.hidden.add(number);
      button.setAttribute("aria-pressed", !state.hidden.has(number));
      redraw();
    });
    return html("li", {}, button, html("output", { "data-number": number }));
  }));
}

// The values at one x, in the legend: the pointer or the arrow keys choose the x.
function readValues(place, chart, lines, scales, box, x) {
  const cursor = place.querySelector(".cursor");
  const xs = [...new Set(flat(lines, "x"))];
  const nearest = xs.reduce((best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best), xs[0]);
  cursor.setAttribute("d", `M${scales.x.place(nearest)},${box.top}V${box.bottom}`);
  for (const output of place.querySelectorAll("output")) {
    const own = lines.filter((line) => line.number === Number(output.dataset.number) && !line.faint);
    const words = own.map((line) => {
      const i = line.x.indexOf(nearest);
      const kind = line.dash ? chart.dashed ?? "dashed" : line.thin ? "thin" : "";
      return i < 0 || line.y[i] === null ? "" : `${kind} ${format(line.y[i])}`.trim();
    }).filter(Boolean);
    output.textContent = words.length ? `at ${nearest}: ${words.join(", ")}` : "";
  }
  return nearest;
}

function followPointer(place, drawing, read) {
  const at = (event) => {
    const box = drawing.getBoundingClientRect();
    read((event.clientX - box.left) * (drawing.viewBox.baseVal.width / box.width));
  };
  drawing.addEventListener("pointermove", at);
  drawing.addEventListener("pointerdown", at);
}

// Draws a chart in its place at the width that the place has, and again whenever that changes.
function drawChart(place, chart, width, state = { hidden: new Set() }) {
  const redraw = () => drawChart(place, chart, width, state);
  const lines = chart.lines.filter((line) => !state.hidden.has(line.number) && line.x.length);
  const box = { left: 52, right: width - (lines.some((line) => line.right) ? 42 : 8), top: 20, bottom: HEIGHT - 38 };
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: 0, "aria-label": describe(chart) });
  if (lines.length) {
    const scales = makeScales(chart, lines, box);
    drawing.append(...drawAxes(chart, scales, box), ...lines.map((line) => drawLine(line, chart, scales)),
      svg("path", { class: "cursor" }));
    const xs = flat(lines, "x");
    const [low, high] = [Math.min(...xs), Math.max(...xs)];
    let shown = low;
    const show = (x) => { shown = readValues(place, chart, lines, scales, box, x); };
    followPointer(place, drawing, (pixel) => show(low + ((pixel - scales.x.place(low)) / (scales.x.place(high) - scales.x.place(low) || 1)) * (high - low)));
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = xs.filter((x) => (x - shown) * step > 0);
      show(next.length ? (step > 0 ? Math.min(...next) : Math.max(...next)) : shown);
    });
  } else {
    drawing.append(svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, chart.empty ?? "nothing to draw"));
  }
  if (place.legend) {
    place.querySelector("svg").replaceWith(drawing);
    for (const output of place.querySelectorAll("output")) output.textContent = "";
  } else {
    place.legend = makeLegend(chart, state, () => place.redraw());
    place.replaceChildren(drawing, place.legend);
  }
  place.redraw = redraw;
}

function describe(chart) {
  const names = [...new Set(chart.lines.map((line) => line.name))];
  return `${chart.title}: ${names.join("; ") || "no lines"}. Arrow keys read the values.`;
}

// Shows a chart from now on; one that was shown there before is replaced.
function showChart(place, chart) {
  place.chart = chart;
  place.legend = undefined;
  place.state = { hidden: new Set() };
  place.drawnWidth = 0;
  if (place.clientWidth) fitChart(place);
  if (!place.watched) {
    place.watched = true;
    new ResizeObserver(() => fitChart(place)).observe(place);
  }
}

function fitChart(place, width = Math.round(place.clientWidth)) {
  if (!width || width === place.drawnWidth) return;
  place.drawnWidth = width;
  drawChart(place, place.chart, width, place.state);
}
