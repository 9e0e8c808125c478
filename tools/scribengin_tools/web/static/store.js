// What the page knows, as the server tells it.
export const store = {
  flows: new Map(),
  names: [],
  graph: { nodes: [], edges: [] },
  graphSeq: 0,
  sparks: new Map(), // the last rows of each dataflow: [at_ms, in/s, out/s, lag, round ms]
  seq: 0,
  atMs: 0,
  skewMs: 0,
  trouble: null,
  troubleSinceMs: null,
  connected: false,
  looked: false,
};
const SPARK_ROWS = 40;

// Whether what could not be had before may be asked for again: while the registry is away, all who ask wait long.
export const isWell = () => store.connected && !store.trouble;

export const now = () => Date.now() + store.skewMs;

export function take(told) {
  store.skewMs = told.now_ms - Date.now();
  store.seq = told.seq;
  store.atMs = told.at_ms;
  store.looked ||= told.at_ms > 0; // a server that has started anew has seen nothing yet; what it was before stays
  store.trouble = told.trouble;
  store.troubleSinceMs = told.trouble_since_ms;
  for (const flow of told.flows) store.flows.set(flow.name, flow);
  if (told.names) {
    store.names = told.names;
    const kept = new Set(told.names);
    for (const name of store.flows.keys()) if (!kept.has(name)) store.flows.delete(name);
  }
  if (told.graph) {
    store.graph = told.graph;
    store.graphSeq = told.seq;
  }
  if (told.sparks) store.sparks = new Map(Object.entries(told.sparks));
  else for (const [name, row] of Object.entries(told.rows ?? {})) {
    const rows = store.sparks.get(name) ?? [];
    rows.push(row);
    store.sparks.set(name, rows.slice(-SPARK_ROWS));
  }
}

const TROUBLED = new Set(["stalled", "leaderless", "failed", "unreadable"]);
const collator = new Intl.Collator("en", { numeric: true });

// Those in trouble first, then by name: 2 before 10.
export function inOrder() {
  return store.names.map((name) => store.flows.get(name)).filter(Boolean)
    .sort((a, b) => TROUBLED.has(b.state) - TROUBLED.has(a.state) || collator.compare(a.name, b.name));
}
