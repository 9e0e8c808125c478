// Numbers, times and states for people: the same words as `scribengin monitor` has.
import { s } from "./dom.js";

const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function short(number) {
  for (const [size, unit] of UNITS) {
    if (number >= 0.9995 * size) {
      const scaled = number / size;
      return (scaled >= 99.95 ? scaled.toFixed(0) : scaled.toFixed(1)) + unit;
    }
  }
  return number >= 99.95 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1);
}

export const rate = (number) => `${short(number)}/s`;
// How many records wait: `?` when nobody has looked, `~` before what is old, or leaves something out.
export const lagText = (records, about, words = short) => (records === null || records === undefined ? "?" : `${about ? "~" : ""}${words(records)}`);
export const count = (number) => Number(number).toLocaleString("en-US");

export function duration(milliseconds) {
  if (milliseconds < 9.95 && !Number.isInteger(milliseconds)) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 999.5) return `${milliseconds.toFixed(0)} ms`;
  const seconds = milliseconds / 1000;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${(seconds / 60).toFixed(1)} min`;
}

export function age(atMs, nowMs) {
  if (!atMs) return "–";
  const seconds = Math.max(0, Math.floor((nowMs - atMs) / 1000));
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

const two = (number) => String(number).padStart(2, "0");

export function clockTime(ms, withSeconds = true) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

export function moment(ms) {
  if (!ms) return "–";
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clockTime(ms)}`;
}

export const many = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
export const roundMs = (phases) => (phases ? Object.values(phases).reduce((a, b) => a + b, 0) : null);

const KIND = {
  running: "ok", finished: "ok", idle: "ok", stalled: "bad", failed: "bad", unreadable: "bad", killed: "bad",
  paused: "warn", starting: "warn", stopping: "warn", taking_over: "warn", waiting: "warn", deleting: "warn",
};
export const TROUBLED = new Set(["stalled", "leaderless", "failed", "unreadable"]);

// A state is told by its word and by the shape of its mark; the colour only repeats it.
const MARKS = {
  running: "M5 3l9 5-9 5z", finished: "M2.5 8.5l3.5 3.5 7.5-8", stopped: "M4 4h8v8H4z",
  paused: "M4.5 3h2.5v10H4.5zM9 3h2.5v10H9z", stalled: "M8 1.5l7 13H1zM8 6v4M8 11.6v1.2",
  failed: "M3 3l10 10M13 3L3 13", killed: "M3 3l10 10M13 3L3 13", unreadable: "M8 1.5l7 13H1zM8 6v4M8 11.6v1.2",
};
const DRAWN_AS_LINES = new Set(["finished", "failed", "killed", "stalled", "leaderless", "unreadable"]);

export const kindOf = (state) => KIND[state] ?? "dim";

export function mark(state, size = 12) {
  const path = MARKS[state] ?? "M3 8a5 5 0 1 0 10 0a5 5 0 1 0-10 0";
  const lines = DRAWN_AS_LINES.has(state) || !MARKS[state];
  return s("svg", { viewBox: "0 0 16 16", width: size, height: size, class: `mark ${lines ? "lines" : "solid"}`, "aria-hidden": "true" },
    s("path", { d: path }));
}

export function stateBadge(state) {
  const badge = document.createElement("span");
  paintState(badge, state);
  return badge;
}

export function paintState(badge, state) {
  if (badge.dataset.state === state) return;
  badge.dataset.state = state;
  badge.className = `state ${kindOf(state)}`;
  badge.replaceChildren(mark(state), state.replace("_", " "));
}
