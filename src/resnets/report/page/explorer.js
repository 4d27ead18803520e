// --- the unit explorer

const SIDES = ["a", "b"];
const FIELDS = ["shortcut", "order", "kernels", "layers"];
const NUMBERS = { a: 2, b: 1 }; // of the colours

function startExplorer() {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const panels = Object.fromEntries(SIDES.map((side) => [side, document.querySelector(`.unit[data-side=${side}]`)]));
  const select = (side, field) => panels[side].querySelector(`select[name=${field}]`);
  const read = (side) => Object.fromEntries(FIELDS.map((field) => [field, select(side, field).value]));

  const update = () => {
    const units = SIDES.map((side) => {
      restrictChoices(data, panels[side]);
      const unit = findUnit(data, side, read(side));
      showUnit(data, panels[side], unit);
      return unit;
    });
    for (const [name, make] of Object.entries(EXPLORER_CHARTS)) {
      showChart(document.querySelector(`[data-chart=${name}] .plot`), make(units));
    }
  };

  const choose = (text) => {
    text.split(";").slice(0, 2).forEach((key, i) => {
      key.split("|").forEach((value, j) => {
        const element = select(SIDES[i], FIELDS[j]);
        for (const option of element.options) option.disabled = false;
        if ([...element.options].some((option) => option.value === value)) element.value = value;
      });
    });
    update();
  };

  // The choice is a part of the address, so that a link leads to it.
  const remember = () => {
    const words = SIDES.map((side) => Object.values(read(side)).join("|")).join(";");
    history.replaceState(null, "", `#explorer=${encodeURIComponent(words)}`);
  };

  for (const side of SIDES) panels[side].addEventListener("change", () => { update(); remember(); });
  for (const button of document.querySelectorAll(".lessons button")) {
    button.addEventListener("click", () => { choose(button.dataset.units); remember(); });
  }
  const asked = /^#explorer=(.+)$/.exec(location.hash);
  if (asked) {
    choose(decodeURIComponent(asked[1]));
    document.getElementById("explorer").scrollIntoView();
  } else update();
}

// Greys out what was not analysed: the depth decides first, then the shortcut.
function restrictChoices(data, panel) {
  const element = (field) => panel.querySelector(`select[name=${field}]`);
  const deepest = element("layers").value === data.deepest.layers;
  const allow = (field, test) => {
    for (const option of element(field).options) option.disabled = !test(option.value);
    if (element(field).selectedOptions[0].disabled) element(field).value = [...element(field).options].find((o) => !o.disabled).value;
  };
  allow("kernels", (value) => !deepest || value === data.deepest.kernels);
  allow("shortcut", (value) => !deepest || data.deepest.kinds.includes(value.split(":")[0]));
  allow("order", (value) => element("shortcut").value !== "plain" || value === "original");
}

function findUnit(data, side, chosen) {
  const { shortcut, order, kernels, layers } = chosen;
  const group = data.signals[`${layers}-${kernels}`];
  const row = data.rows[FIELDS.map((field) => chosen[field]).join("|")] ?? {};
  return { ...chosen, group, row, number: NUMBERS[side], name: `${side.toUpperCase()}: ${shortcut}, ${order}, ${layers} layers`,
    signal: group?.units[`${shortcut}|${order}`], factor: data.shortcuts[shortcut].factor, after: data.orders[order].after };
}

// --- one of the two units

function showUnit(data, panel, unit) {
  panel.querySelector(".drawing").replaceChildren(drawUnit(data.pictures[`${unit.shortcut}|${unit.order}|${unit.kernels}`]));
  panel.querySelector(".equations").innerHTML = writeEquations(data, unit);
  panel.querySelector(".meaning").textContent = explain(unit);
  panel.querySelector(".facts").replaceChildren(...listFacts(unit));
}

// The first run of maps of one size that has more than one map, with what was measured of it.
function findSpan(unit) {
  if (!unit.signal) return null;
  const index = unit.group.spans.findIndex(([first, last]) => last > first);
  const [first, last] = unit.group.spans[index];
  return { first, last, units: last - first, product: unit.signal.product[unit.group.at.indexOf(first)],
    missed: unit.signal.missed[index], cosine: unit.signal.cosine[index] };
}

function writeEquations(data, unit) {
  const line = (number, math) => `<div class="equation"><span>${number}</span>${math}</div>`;
  const lines = [line("(1)", data.shortcuts[unit.shortcut].math), line("(2)", data.orders[unit.order].math)];
  const span = findSpan(unit);
  for (const [number, name] of [["(7)", "signal"], ["(8)", "gradient"]]) {
    lines.push(line(number, data.equations[name]));
    if (!span || span.product === null) continue;
    const filled = data.equations[`${name}_filled`].replaceAll("FIRST", span.first).replaceAll("LAST", span.last).replaceAll("UNTIL", span.last - 1);
    lines.push(line("", filled.replaceAll("<mn>FACTOR</mn>", writeFactor(unit, span))));
  }
  return lines.join("");
}

// 0.5¹⁸ = 3.81 · 10⁻⁶ where the factor is the same in every unit.
function writeFactor(unit, span) {
  const value = `<mn class="product">${format(span.product)}</mn>`;
  const power = unit.factor === null ? "" : `<msup><mn>${unit.factor}</mn><mn>${span.units}</mn></msup><mo>=</mo>`;
  return `<mrow class="filled">${power}${value}</mrow>`;
}

function explain(unit) {
  const span = findSpan(unit);
  if (!span) return "";
  const { product, missed, units } = span;
  const way = `Over the ${units} units of the first size `;
  const clean = unit.after.length === 0;
  const four = `Equation (4), which says that x_L is x_l plus what the units add, misses x_L by ${writePart(missed)}.`;
  if (unit.factor === 0) return `Nothing leads past the layers: what a unit receives, and what it learns from, has gone through all the others. ${four}`;
  if (product > 0.999 && product < 1.001 && clean) return `${way}the shortcuts pass the signal and the gradient on unchanged, and nothing stands behind the addition: the way is free. ${four}`;
  if (product > 0.999 && product < 1.001) return `${way}the shortcuts pass the signal on unchanged, but ${unit.after.map((w) => (w === "bn" ? "BN" : "ReLU")).join(" and ")} behind every addition change it. ${four}`;
  if (product < 1) return `${way}the shortcuts let through ${writePart(product)} of the signal, and as much of the gradient on its way back. ${four}`;
  return `${way}the shortcuts make the signal ${format(product)} times as large, and the gradient too. ${four}`;
}

// "89.5 %", "4.47 times its size", "2.1 · 10⁻⁸"
function writePart(part) {
  if (part === null) return "an unknown part";
  return part >= 1 ? `${format(part)} times its size` : part < 1e-4 ? `only ${format(part)}` : `${format(100 * part)} %`;
}

function listFacts(unit) {
  const { row } = unit;
  const facts = [["The paper's test error", row.paper ? `${row.paper} (${row.where})` : "not in the papers' tables"]];
  if (row.ours) {
    const ours = html("span");
    ours.innerHTML = row.ours;
    facts.push([`Ours, budget ${row.budget}`, ours], ["Scaled", row.scaled]);
  } else facts.push(["Ours", "not run"]);
  if (unit.signal) facts.push(["Curves of new weights", `${unit.group.images} training images of CIFAR-10`]);
  return facts.flatMap(([term, value]) => [html("dt", {}, term), html("dd", {}, value)]);
}

// --- the charts of both units

// A line is broken between maps of different size where `broken`, as their values do not belong together.
function alongUnits(unit, values, at, look = {}, broken = false) {
  const [x, y] = [[], []];
  const ends = new Set(broken ? unit.group.spans.map(([, last]) => last) : []);
  at.forEach((l, i) => {
    x.push(l);
    y.push(values[i]);
    if (ends.has(l)) { x.push(l); y.push(null); }
  });
  return { number: unit.number, name: unit.name, x, y, ...look };
}

function alongLines(units, name) {
  return units.flatMap((unit) => {
    const lines = unit.signal ? [alongUnits(unit, unit.signal[name], unit.group.at)] : [];
    const trained = unit.row.trained;
    const size = name === "rms" ? unit.row.size ?? [] : [];
    if (trained) lines.push(alongUnits(unit, trained[name], trained.at, { dash: true }));
    else if (size.length) lines.push(alongUnits(unit, size, size.map((_, l) => l), { dash: true }));
    return lines;
  });
}

const EXPLORER_CHARTS = {
  signal: (units) => ({ title: "Size of the signal", x: "unit l", y: "rms of x_l", log: true, dashed: "trained", lines: alongLines(units, "rms") }),
  gradient: (units) => ({ title: "Size of the gradient", x: "unit l", y: "|∂E/∂x_l|", log: true, dashed: "trained", lines: alongLines(units, "gradient") }),
  product: (units) => ({
    title: "What the shortcuts let through", x: "unit l", y: "product of λ, from l to L", log: true,
    empty: "the product is 0: there is no shortcut",
    lines: units.filter((unit) => unit.signal).map((unit) => alongUnits(unit, unit.signal.product, unit.group.at, {}, true)),
  }),
  training: (units) => ({
    title: "Training", x: "iterations", y: "training loss", right: "test error, %", log: true, dashed: "loss",
    empty: "neither was trained",
    lines: units.flatMap((unit) => Object.entries(unit.row.curves ?? {}).map(([kind, { x, y }]) => ({
      number: unit.number, name: `${unit.name}, budget ${unit.row.budget}`, x, y,
      ...(kind === "loss" ? { dash: true } : { right: true, big: x.length === 1 }),
    }))),
  }),
};
