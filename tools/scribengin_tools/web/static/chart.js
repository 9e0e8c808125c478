// Time lines: one or two series over the same time, with axes, units, and a reading under the pointer or by arrow keys.
import { h, s, setAttribute, setText } from "./dom.js";
import { clockTime } from "./format.js";

const MARGIN = { left: 58, right: 14, top: 10, bottom: 24 };
const HEIGHT = 190;
const GAP_MS = 45_000; // longer without a look: nothing is known of what was between

// series: [{ label, column, dashed }]; `unit` makes words of a value.
export function chart({ title, series, unit }) {
  const drawing = s("svg", { height: HEIGHT, role: "img" });
  const reading = h("p", { class: "reading mono", "aria-live": "off" }, " ");
  const figure = h("figure", { class: "panel chart", tabindex: "0", "aria-label": `${title}: use the arrow keys to read values` },
    h("figcaption", {}, h("h3", {}, title),
      h("span", { class: "keys" }, series.map((one, n) => h("span", { class: `key s${n}` }, h("i", {}), one.label)))),
    drawing, reading);
  let rows = [];
  let span = [0, 1];
  let at = null;

  function draw() {
    const width = Math.max(figure.clientWidth - 26, 180);
    const [from, to] = span;
    const shown = rows.filter(([time]) => time >= from && time <= to);
    const top = niceTop(Math.max(0, ...shown.flatMap((row) => series.map((one) => row[one.column] ?? 0))));
    const x = (time) => MARGIN.left + ((time - from) / (to - from)) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    setAttribute(drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    setAttribute(drawing, "width", width);
    const lines = [];
    for (const tick of [0, top / 2, top]) {
      lines.push(s("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }));
      lines.push(s("text", { class: "tick", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, unit(tick)));
    }
    const ticks = width > 420 ? 4 : 2;
    for (let n = 0; n <= ticks; n += 1) {
      const time = from + ((to - from) * n) / ticks;
      const anchor = n === 0 ? "start" : n === ticks ? "end" : "middle";
      lines.push(s("text", { class: "tick", x: x(time), y: HEIGHT - 6, "text-anchor": anchor }, clockTime(time, to - from < 3_600_000)));
    }
    series.forEach((one, n) => {
      for (const part of parts(shown, one.column)) {
        const points = part.map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`);
        if (n === 0) lines.push(s("path", { class: "area", d: `M${x(part[0][0]).toFixed(1)} ${y(0)}L${points.join("L")}L${x(part[part.length - 1][0]).toFixed(1)} ${y(0)}z` }));
        lines.push(part.length === 1
          ? s("circle", { class: `dot s${n}`, cx: x(part[0][0]), cy: y(part[0][1]), r: 2 })
          : s("path", { class: `series s${n}`, d: `M${points.join("L")}` }));
      }
    });
    if (!shown.length) lines.push(s("text", { class: "tick", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing was seen in this time"));
    drawing.replaceChildren(...lines);
    const last = shown[shown.length - 1];
    setAttribute(drawing, "aria-label", `${title}, now ${last ? told(last) : "unknown"}`);
    read(x, shown, last);
  }

  function read(x, shown, last) {
    const row = at === null ? last : nearest(shown, at);
    if (!row) return setText(reading, "–");
    setText(reading, `${at === null ? "now" : clockTime(row[0])}  ${told(row)}`);
    if (at !== null) drawing.append(s("line", { class: "cursor", x1: x(row[0]), x2: x(row[0]), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
  }

  const told = (row) => series.map((one) => `${one.label} ${row[one.column] === null ? "–" : unit(row[one.column])}`).join("  ");
  const look = (time, spoken) => {
    at = time;
    reading.setAttribute("aria-live", spoken ? "polite" : "off");
    draw();
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    look(span[0] + Math.min(1, Math.max(0, share)) * (span[1] - span[0]), false);
  });
  drawing.addEventListener("pointerleave", () => look(null, false));
  figure.addEventListener("blur", () => at !== null && look(null, false));
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const moved = (at ?? span[1]) + (step * (span[1] - span[0])) / 40;
    look(moved > span[1] ? null : Math.max(span[0], moved), true);
  });
  new ResizeObserver(draw).observe(figure);
  return {
    element: figure,
    update(allRows, from, to) {
      [rows, span] = [allRows, [from, to]];
      draw();
    },
  };
}

function parts(rows, column) {
  const found = [];
  let part = [];
  for (const row of rows) {
    const [time, value] = [row[0], row[column]];
    if (part.length && (value === null || time - part[part.length - 1][0] > GAP_MS)) {
      found.push(part);
      part = [];
    }
    if (value !== null) part.push([time, value]);
  }
  if (part.length) found.push(part);
  return found;
}

function nearest(rows, time) {
  return rows.reduce((best, row) => (!best || Math.abs(row[0] - time) < Math.abs(best[0] - time) ? row : best), null);
}

// The end of an axis whose values go up to `value`.
export function niceTop(value) {
  if (value <= 1) return 1; // labels have one decimal: the middle of less would read as its end
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((n) => n * size).find((top) => top >= value);
}

// A small one, without axes, in a line of a table: records read a second.
export function spark() {
  const line = s("path", { class: "series s0" });
  const area = s("path", { class: "area" });
  const element = s("svg", { class: "spark", viewBox: "0 0 120 26", width: 120, height: 26, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  return {
    element,
    update(rows) {
      const top = Math.max(1, ...rows.map((row) => row[1]));
      const points = rows.map((row, n) => `${(120 - (rows.length - 1 - n) * 3).toFixed(1)} ${(24 - (22 * row[1]) / top).toFixed(1)}`);
      const path = points.length > 1 ? `M${points.join("L")}` : "";
      setAttribute(line, "d", path);
      setAttribute(area, "d", path ? `${path}L120 26L${points[0].split(" ")[0]} 26z` : "");
    },
  };
}
