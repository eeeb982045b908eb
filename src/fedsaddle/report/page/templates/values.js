"use strict";
// From drawings back to values: the page holds every number once, as a place in a drawing.

const SIDE = 1000; // of the box in which lines are drawn
const NEAR = 0.011; // places have two decimals
const FAR = 999 * SIDE; // beyond this, a place is not where its value is

/** The value at a place from 0 to 1. */
function valueAt(axis, place) {
  if (!axis.log) return axis.low + place * (axis.high - axis.low);
  return axis.low * Math.pow(axis.high / axis.low, place);
}

/** A value as text, as precise as a drawing is; `short` leaves out the decimals of a whole number, such as of rounds. */
function textOf(axis, place, short = false) {
  if (Math.abs(place) * SIDE > FAR) return "off the chart";
  let value = valueAt(axis, place);
  let width = axis.high - axis.low;
  if (axis.pc) { value *= 100; width *= 100; }
  const decimals = axis.log
    ? Math.min(Math.max(2 - Math.floor(Math.log10(Math.abs(value))), 0), 12)
    : Math.min(Math.max(3 - Math.floor(Math.log10(width) + 0.7), 0), 9);
  const whole = Math.round(value);
  const near = short && Math.abs(value - whole) < (axis.log ? 1e-4 * Math.abs(value) : 2e-5 * width);
  const said = value.toLocaleString("en", {
    minimumFractionDigits: near && decimals < 3 ? 0 : decimals, maximumFractionDigits: decimals,
  }).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
  return axis.pc ? said + " %" : said;
}

/** The stretches of a path, each a list of points. */
function stretches(d) {
  return (d || "").split("M").filter(Boolean).map(
    (piece) => piece.split("L").map((pair) => pair.split(" ").map(Number)));
}

/** A line of a chart: its points, and the band's ends at the same places. */
function readLine(path, band) {
  const ends = [];
  for (const shape of stretches(band && band.getAttribute("d"))) {
    for (let i = 0; i < shape.length / 2; i++) {
      ends.push([shape[i][0], shape[shape.length - 1 - i][1], shape[i][1]]);
    }
  }
  const runs = stretches(path.getAttribute("d"));
  return {
    path, runs, ends, name: path.dataset.name, apart: path.classList.contains("apart"),
    faint: path.classList.contains("faint"), guide: path.classList.contains("guide"),
  };
}

/** The height of a run at x: of its last point there, or between two points; null beyond its ends. */
function between(run, x, column) {
  for (let i = run.length - 1; i >= 0; i--) {
    if (Math.abs(run[i][0] - x) < NEAR) return { y: run[i][column], exact: true };
  }
  for (let i = 1; i < run.length; i++) {
    const [a, b] = [run[i - 1], run[i]];
    if ((a[0] - x) * (b[0] - x) < 0 && Math.abs(a[column]) < FAR && Math.abs(b[column]) < FAR) {
      const t = (x - a[0]) / (b[0] - a[0]);
      return { y: a[column] + t * (b[column] - a[column]), exact: false };
    }
  }
  return null;
}

/** A line's height at x, with its band; null where it has none. */
function heightAt(line, x) {
  for (const run of line.runs) {
    const found = between(run, x, 1);
    if (found && (found.exact || !line.apart)) {
      const low = between(line.ends, x, 1);
      const high = between(line.ends, x, 2);
      return { ...found, low: low && low.y, high: high && high.y };
    }
  }
  return null;
}

/** "0.82 (0.64 to 0.92)" of a height in the box. */
function saidOf(axis, at) {
  const text = (y) => textOf(axis, 1 - y / SIDE);
  const value = (at.exact ? "" : "≈ ") + text(at.y);
  if (at.low === null || at.high === null || at.low === undefined) return value;
  return `${value} (${text(at.low).replace(" %", "")} to ${text(at.high).replace(" %", "")})`;
}
