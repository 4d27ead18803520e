// --- a unit as the papers' figures draw it, from the data of `resnets info`

const BOX = { width: 104, height: 24, gap: 8 };

const kindOf = (words) => (words === "BN" ? "bn" : words === "ReLU" ? "relu" : /^\d+x\d+/.test(words) ? "conv" : "other");

class UnitDrawing {
  constructor(wide) {
    this.lines = [];
    this.boxes = [];
    this.left = 62;
    this.gate = wide ? 190 : null;
    this.right = wide ? 318 : 222;
    this.width = this.right + 62;
  }

  line(kind, ...points) {
    this.lines.push(svg("path", { class: kind, d: `M${points.map((point) => point.join(",")).join("L")}` }));
  }

  // Layers below each other on the line at x; returns where the last one ends.
  stack(x, top, layers) {
    let y = top;
    for (const words of layers) {
      y += BOX.gap;
      this.boxes.push(svg("rect", { x: x - BOX.width / 2, y, width: BOX.width, height: BOX.height, rx: 4, class: kindOf(words) }),
        svg("text", { x, y: y + 16, "text-anchor": "middle" }, words));
      y += BOX.height;
    }
    return y;
  }

  circle(x, y, words) {
    this.boxes.push(svg("circle", { cx: x, cy: y, r: 11 }), svg("text", { x, y: y + 4.5, "text-anchor": "middle" }, words));
  }

  label(x, y, words, anchor = "middle") {
    this.boxes.push(svg("text", { x, y, "text-anchor": anchor, class: "label" }, words));
  }

  finish(height, words) {
    const drawing = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": words, class: "unit-drawing" });
    drawing.append(...this.lines, ...this.boxes);
    drawing.style.maxWidth = `${this.width * 1.15}px`;
    return drawing;
  }
}

// The shortcut runs straight down on the left, F on the right; a gate stands between them and multiplies.
function drawUnit(unit) {
  const drawing = new UnitDrawing(unit.gate.length > 0);
  const { left, right, gate } = drawing;
  const column = unit.plain ? right : left;
  drawing.label(column, 14, "x_l");
  const split = drawing.stack(column, 20, unit.shared) + 12;
  const side = drawing.stack(left, split, unit.shortcut);
  const branch = side + 10;
  const residual = drawing.stack(right, split, unit.residual);
  const gated = gate ? drawing.stack(gate, branch, unit.gate) : 0;
  let end = Math.max(side, residual, gated) + 22;
  const [onX, onR] = unit.factors;
  if (gate) {
    drawing.line("gate", [left, branch], [gate, branch], [gate, end], [left + 11, end]);
    drawing.circle(left, end, "×");
    drawing.label(left + 18, end - 6, onX, "start");
    if (onR) {
      drawing.line("gate", [gate, end], [right - 11, end]);
      drawing.circle(right, end, "×");
      drawing.label(right - 18, end - 6, onR, "end");
    }
    end += 34;
  } else if (onX || onR) {
    for (const [x, factor] of [[left, onX], [right, onR]]) {
      if (factor) drawing.circle(x, end, "×");
      if (factor) drawing.label(x + (x === left ? 16 : -16), end + 4, factor, x === left ? "start" : "end");
    }
    end += 34;
  }
  if (unit.plain) {
    drawing.line("path", [right, 20], [right, end]);
  } else {
    drawing.line("shortcut", [left, 20], [left, end]);
    drawing.line("path", [left, split], [right, split], [right, end], [left, end]);
    drawing.circle(left, end, "+");
    end += 11;
  }
  const after = drawing.stack(column, end, unit.after);
  drawing.line(unit.plain ? "path" : "shortcut", [column, end], [column, after + 14]);
  drawing.label(column, after + 28, "x_l+1");
  return drawing.finish(after + 36, describeUnit(unit));
}

function describeUnit(unit) {
  const list = (layers) => layers.join(", ") || "nothing";
  if (unit.plain) return `A unit without a shortcut: ${list([...unit.residual, ...unit.after])}.`;
  const gate = unit.gate.length ? ` Gate: ${list(unit.gate)}; the shortcut times ${unit.factors[0]}, F times ${unit.factors[1] || 1}.` : "";
  return `Before both: ${list(unit.shared)}. Shortcut: ${list(unit.shortcut)}, times ${unit.factors[0] || 1}. ` +
    `F: ${list(unit.residual)}.${gate} After the addition: ${list(unit.after)}.`;
}
