// Making and changing elements. Text is always set as text: nothing that a registry holds is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function setText(element, text) {
  const words = String(text);
  if (element.textContent !== words) element.textContent = words;
}

export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Keep one child for each item, in order: what stays the same keeps its focus and its place on the screen.
export function keyed(parent, items, keyOf, make, update) {
  const known = parent.keyedChildren ?? new Map();
  const kept = new Map();
  let after = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = known.get(key) ?? make(item);
    kept.set(key, child);
    update(child, item);
    if (child !== after) parent.insertBefore(child, after);
    else after = after.nextSibling;
  }
  for (const [key, child] of known) if (!kept.has(key)) child.remove();
  parent.keyedChildren = kept;
}

export function debounced(milliseconds, act) {
  let timer;
  return (...rest) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...rest), milliseconds);
  };
}
