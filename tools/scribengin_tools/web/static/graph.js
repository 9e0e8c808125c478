// The graph: dataflows and the places between them, with what goes over each edge. Wide: layers from left to right.
// Narrow: one node a line, in the order in which records go, and edges beside them.
import { h, s, setAttribute, setText, keyed } from "./dom.js";
import { TROUBLED, age, kindOf, lagText, mark, rate, short } from "./format.js";
import { now, store } from "./store.js";

const WIDE = { flow: 176, place: 138, gap: 112, row: 78, flowHeight: 54, placeHeight: 28, pad: 12 };
const NARROW = { line: 22, flowHeight: 54, placeHeight: 28, gap: 8, lane: 9, pad: 6 };
const SCALE_MIN = 0.72;
const TURN = 44; // an edge turns within so much of the gap; the rest is straight, and carries the words

export function graphPanel() {
  const drawing = s("svg", { role: "group", "aria-label": "Graph of the dataflows: who feeds whom" });
  const scroller = h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Graph" }, drawing);
  const element = h("section", { class: "panel" },
    h("div", { class: "panel-head" }, h("h2", {}, "Graph"),
      h("p", { class: "dim legend" }, "boxes: dataflows · pills: logs, topics, files · on edges: records a second, and how many wait")),
    scroller);
  let drawnSeq = -1;
  let drawnWidth = 0;
  let chosen = null;

  function draw(width) {
    const graph = picked(store.graph, chosen === null ? null : chosen.split("\n"));
    const plan = width < 640 ? narrow(graph, width) : wide(graph, width);
    setAttribute(drawing, "viewBox", `0 0 ${plan.width} ${plan.height}`);
    setAttribute(drawing, "width", Math.round(plan.width * plan.scale));
    setAttribute(drawing, "height", Math.round(plan.height * plan.scale));
    drawing.replaceChildren(markers());
    const edges = s("g", {});
    const nodes = s("g", {});
    drawing.append(edges, nodes);
    keyed(edges, plan.edges, (e) => `${e.from} ${e.to} ${e.name}`, edgeElement, () => {});
    keyed(nodes, plan.nodes, (n) => n.id, nodeElement, () => {});
    for (const place of nodes.querySelectorAll(".place")) setFitting(place.querySelector("text"), place.dataset.label, Number(place.dataset.room));
    drawing.plan = plan;
  }

  // `flows`: only these, with what they are joined to; null: all.
  function update(flows = null) {
    const wanted = flows === null ? null : flows.join("\n");
    const width = scroller.clientWidth || 800;
    if (drawnSeq !== store.graphSeq || Math.abs(width - drawnWidth) > 8 || wanted !== chosen) {
      [drawnSeq, drawnWidth, chosen] = [store.graphSeq, width, wanted];
      draw(width);
    }
    element.hidden = !drawing.plan.nodes.length;
    for (const node of drawing.querySelectorAll("[data-flow-node]")) paintNode(node, store.flows.get(node.dataset.flowNode));
    for (const edge of drawing.querySelectorAll("[data-flow-edge]")) paintEdge(edge, store.flows.get(edge.dataset.flowEdge));
  }
  new ResizeObserver(() => update(chosen === null ? null : chosen.split("\n"))).observe(scroller);
  return { element, update };
}

// Of some dataflows: what they read and write, and who else does that. Layers and rows that are left empty go.
function picked(graph, flows) {
  if (flows === null) return graph;
  const near = new Set(flows.map((flow) => `flow:${flow}`));
  for (let round = 0; round < 2; round += 1) {
    for (const edge of graph.edges.filter((e) => near.has(e.from) || near.has(e.to))) near.add(edge.from).add(edge.to);
  }
  const nodes = graph.nodes.filter((n) => near.has(n.id));
  const ranks = (key) => new Map([...new Set(nodes.map((n) => n[key]))].sort((a, b) => a - b).map((value, rank) => [value, rank]));
  const layers = ranks("layer");
  const bands = new Map(); // band -> [its first row, where it begins now]
  let top = 0;
  for (const band of ranks("band").keys()) {
    const rows = nodes.filter((n) => n.band === band).map((n) => n.row);
    bands.set(band, [Math.min(...rows), top]);
    top += Math.max(...rows) - Math.min(...rows) + 1;
  }
  const placed = nodes.map((n) => ({ ...n, layer: layers.get(n.layer), row: n.row - bands.get(n.band)[0] + bands.get(n.band)[1] }));
  return { nodes: placed, edges: graph.edges.filter((e) => near.has(e.from) && near.has(e.to)) };
}

// A source that reads several places has an edge from each of them, and one rate and lag: the first edge says them.
function withShares(graph) {
  const edges = new Map();
  for (const edge of graph.edges) {
    const key = `${edge.flow} ${edge.direction} ${edge.name}`;
    edges.set(key, [...(edges.get(key) ?? []), edge]);
  }
  return graph.edges.map((edge) => {
    const same = edges.get(`${edge.flow} ${edge.direction} ${edge.name}`);
    return { ...edge, alone: same.length === 1, first: same[0] === edge };
  });
}

function wide(graph, room) {
  const widths = [];
  for (const node of graph.nodes) widths[node.layer] = Math.max(widths[node.layer] ?? 0, WIDE[node.kind]);
  const lefts = [];
  let right = WIDE.pad;
  for (let layer = 0; layer < widths.length; layer += 1) {
    lefts[layer] = right;
    right += (widths[layer] ?? 0) + WIDE.gap;
  }
  const rows = [...new Set(graph.nodes.map((n) => n.row))].sort((a, b) => a - b);
  const top = rows[0] ?? 0;
  const at = new Map();
  for (const node of graph.nodes) {
    const height = WIDE[`${node.kind}Height`];
    const x = lefts[node.layer] + (widths[node.layer] - WIDE[node.kind]) / 2;
    const middle = WIDE.pad + (node.row - top + 0.5) * WIDE.row;
    at.set(node.id, { ...node, x, y: middle - height / 2, width: WIDE[node.kind], height });
  }
  const edges = withShares(graph).map((edge) => {
    const a = at.get(edge.from);
    const b = at.get(edge.to);
    const [x1, y1, x2, y2] = [a.x + a.width, a.y + a.height / 2, b.x - 3, b.y + b.height / 2];
    const reads = edge.direction === "reads";
    const straight = WIDE.gap - TURN - 3;
    const label = reads ? [x2 - straight / 2, y2] : [x1 + straight / 2, y1];
    const turned = (from, to) => `C${(from + to) / 2} ${y1} ${(from + to) / 2} ${y2} ${to} ${y2}`;
    const path = reads ? `M${x1} ${y1}${turned(x1, x2 - straight)}H${x2}` : `M${x1} ${y1}H${x1 + straight}${turned(x1 + straight, x2)}`;
    return { ...edge, path, label, anchor: "middle" };
  });
  const width = Math.max(right - WIDE.gap + WIDE.pad, 1);
  const height = WIDE.pad * 2 + (rows.length ? rows[rows.length - 1] - top + 1 : 0) * WIDE.row;
  return { width, height, nodes: [...at.values()], edges, scale: Math.min(1, Math.max(SCALE_MIN, room / width)) };
}

function narrow(graph, room) {
  const nodes = [...graph.nodes].sort((a, b) => a.band - b.band || a.layer - b.layer || a.row - b.row);
  const line = new Map(nodes.map((node, number) => [node.id, number]));
  const edges = withShares(graph).sort((a, b) => line.get(a.to) - line.get(b.to) || line.get(a.from) - line.get(b.from));
  const lanes = [];
  for (const edge of edges) {
    const [from, to] = [line.get(edge.from), line.get(edge.to)].sort((a, b) => a - b);
    edge.near = line.get(edge.to) === line.get(edge.from) + 1;
    if (edge.near) continue;
    edge.lane = lanes.findIndex((until) => until <= from);
    if (edge.lane < 0) edge.lane = lanes.push(0) - 1;
    lanes[edge.lane] = to;
  }
  const gutter = NARROW.pad + Math.max(lanes.length, 1) * NARROW.lane + 10;
  const width = Math.max(room - 2, 200);
  const at = new Map();
  let y = NARROW.pad;
  for (const node of nodes) {
    const into = edges.filter((e) => e.to === node.id);
    for (const edge of into) {
      edge.y = y + NARROW.line / 2;
      y += NARROW.line;
    }
    const height = NARROW[`${node.kind}Height`];
    at.set(node.id, { ...node, x: gutter, y, width: node.kind === "flow" ? width - gutter - NARROW.pad : Math.min(220, width - gutter - NARROW.pad), height });
    y += height + NARROW.gap;
  }
  for (const edge of edges) {
    const a = at.get(edge.from);
    const b = at.get(edge.to);
    const inside = gutter + 14;
    const x = gutter - 8 - (edge.lane ?? 0) * NARROW.lane;
    const start = a.y + a.height / 2;
    edge.path = edge.near
      ? `M${inside} ${a.y + a.height}V${b.y - 3}`
      : `M${a.x} ${start}H${x + 4}Q${x} ${start} ${x} ${start + (edge.y > start ? 4 : -4)}V${edge.y + (edge.y > start ? -4 : 4)}Q${x} ${edge.y} ${x + 4} ${edge.y}H${inside - 6}`;
    edge.label = [inside + 8, edge.y + 4];
    edge.anchor = "start";
    edge.oneLine = true;
  }
  return { width, height: y + NARROW.pad, nodes: [...at.values()], edges, scale: 1 };
}

function markers() {
  const arrow = (id, kind) => s("marker", { id, viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", markerUnits: "userSpaceOnUse", orient: "auto" },
    s("path", { d: "M0 0L8 4L0 8z", class: `arrow ${kind}` }));
  return s("defs", {}, arrow("arrow", ""), arrow("arrow-live", "live"), arrow("arrow-bad", "bad"));
}

function nodeElement(node) {
  if (node.kind === "place") {
    const place = s("g", { class: "place", transform: `translate(${node.x} ${node.y})` },
      s("title", {}, node.label),
      s("rect", { width: node.width, height: node.height, rx: node.height / 2 }),
      s("text", { x: node.width / 2, y: node.height / 2 + 4, "text-anchor": "middle" }));
    place.dataset.label = node.label;
    place.dataset.room = node.width - 16;
    return place;
  }
  const link = s("a", { href: `#/flow/${encodeURIComponent(node.label)}`, class: "flow-node", transform: `translate(${node.x} ${node.y})` },
    s("title", {}),
    s("rect", { width: node.width, height: node.height, rx: 8 }),
    s("g", { class: "node-mark", transform: "translate(11 11)" }),
    s("text", { class: "name", x: 29, y: 21 }),
    s("text", { class: "facts", x: 11, y: 42 }));
  link.dataset.flowNode = node.label;
  link.dataset.room = node.width - 37; // for the name
  return link;
}

function paintNode(element, flow) {
  if (!flow) return;
  setAttribute(element, "class", `flow-node ${kindOf(flow.state)}`);
  const where = flow.chain ? `${flow.chain} / ${flow.key}` : flow.name;
  if (element.dataset.where !== where) {
    element.dataset.where = where;
    setFitting(element.querySelector(".name"), where, Number(element.dataset.room));
  }
  const told = flow.state === "unreadable" ? "cannot be read"
    : ["running", "stalled", "leaderless"].includes(flow.state) ? `${short(flow.in_per_s)} → ${rate(flow.out_per_s)}` : "";
  setText(element.querySelector(".facts"), `${flow.state}${told ? ` · ${told}` : ""}`);
  setText(element.querySelector("title"), `${where}: ${flow.state}, ${flow.ready ?? 0} of ${flow.wanted ?? 0} workers, lag ${lagText(flow.lag, flow.lag_about)}, last commit ${age(flow.last_commit_ms, now())} ago`);
  const shape = element.querySelector(".node-mark");
  if (shape.dataset.state !== flow.state) {
    shape.dataset.state = flow.state;
    shape.replaceChildren(mark(flow.state));
  }
}

function edgeElement(edge) {
  const [x, y] = edge.label;
  const element = s("g", { class: "edge" },
    s("title", {}),
    s("path", { d: edge.path }),
    s("text", { x, y: edge.oneLine ? y : y - 6, "text-anchor": edge.anchor, class: "rate" }),
    edge.oneLine ? null : s("text", { x, y: y + 15, "text-anchor": edge.anchor, class: "lag" }));
  element.dataset.flowEdge = edge.flow;
  element.edge = edge;
  return element;
}

function paintEdge(element, flow) {
  const { edge } = element;
  const reads = edge.direction === "reads";
  const [perSecond, behind, about] = (reads ? flow?.sources?.[edge.name] : [flow?.sinks?.[edge.name] ?? 0, 0, false]) ?? [0, null, false];
  const stuck = reads && TROUBLED.has(flow?.state);
  const kind = stuck ? "bad" : perSecond > 0 ? "live" : "";
  setAttribute(element, "class", `edge ${kind}`);
  const path = element.querySelector("path");
  setAttribute(path, "marker-end", `url(#arrow${kind ? `-${kind}` : ""})`);
  setAttribute(path, "stroke-width", perSecond > 0 ? Math.min(4, 1.25 + Math.log10(1 + perSecond) / 2.5).toFixed(2) : 1.25);
  const going = edge.first && perSecond > 0 ? rate(perSecond) : "";
  const waiting = edge.first ? behind : 0;
  const told = lagText(waiting, about);
  const lag = waiting === 0 ? "" : `lag ${told}`;
  const words = [stuck ? `${flow.state}` : going, lag].filter(Boolean);
  const [first, second] = element.querySelectorAll("text");
  setText(first, second ? words[0] ?? "" : words.join(" · "));
  if (second) setText(second, words[1] ?? "");
  if (second && !going && !stuck && lag) {
    setText(first, "");
    setText(second, lag);
  }
  const sum = edge.alone ? "" : " (over all edges of this source)";
  setText(element.querySelector("title"), `${edge.flow} ${edge.direction} ${reads ? "its source" : "its sink"} ${edge.name}: ${rate(perSecond)}${sum}${reads ? `, ${told} wait` : ""}`);
}

const pen = document.createElement("canvas").getContext("2d");

/* As much of the text as there is room for, as it is drawn: letters are not equally wide. */
function setFitting(element, text, room) {
  pen.font = getComputedStyle(element).font;
  const fits = (words) => pen.measureText(words).width <= room;
  let characters = text.length;
  while (characters > 1 && !fits(characters < text.length ? `${text.slice(0, characters)}…` : text)) characters -= 1;
  setText(element, characters < text.length ? `${text.slice(0, characters)}…` : text);
}
