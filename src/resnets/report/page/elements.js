"use strict";

// --- elements and numbers, for all scripts of the page

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const raise = (power) => [...String(power)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

// 0.0123, 1.2 · 10⁻⁷
function format(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(digits)));
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  return `${Number(mantissa)} · 10${raise(Number(power))}`;
}
