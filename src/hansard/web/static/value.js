// Recorded values, folded. Content is built when it is opened; large content in parts.

const TEXT_CHARACTERS = 20_000; // of a text shown at once; the rest on a click
const ENTRIES = 100; // of a list or an object shown at once

const opened = new Map(); // values that the reader opened or closed, by label: kept while the point moves

const isBlob = (value) => typeof value?.$blob?.sha256 === "string";
const hasBlob = (value) => isBlob(value) && Object.hasOwn(page.blobs, value.$blob.sha256);
const unblobbed = (value) => (hasBlob(value) ? page.blobs[value.$blob.sha256] : value);

// Pass every text, key and number inside a value, with blobs, to a function that returns when to stop.
function eachWord(value, visit) {
  const waiting = [value];
  while (waiting.length) {
    const item = waiting.pop();
    if (item === null || item === undefined) continue;
    if (typeof item !== "object") {
      if (visit(String(item))) return true;
    } else if (Array.isArray(item)) {
      for (let i = item.length - 1; i >= 0; i--) waiting.push(item[i]);
    } else {
      if (hasBlob(item)) waiting.push(page.blobs[item.$blob.sha256]);
      for (const [key, inner] of Object.entries(item).reverse()) waiting.push(inner, key);
    }
  }
  return false;
}
const holds = (value, find) =>
  find !== "" && eachWord(value, (word) => word.toLowerCase().includes(find));

// A list recorded as an earlier step's list plus items; null if a part is missing.
function wholeList(agent, value, name) {
  const facts = [];
  const seen = new Set();
  let at = value;
  while (at?.$append) {
    if (seen.has(at.$append.to)) return null; // a cycle, which none of our writers makes
    seen.add(at.$append.to);
    facts.push(at.$append);
    at = agent.byNumber.get(at.$append.to)?.step?.arguments?.[name];
  }
  let list = unblobbed(at);
  for (const { count: kept, items: added } of facts.reverse()) {
    const rest = unblobbed(added);
    if (!Array.isArray(list) || !Array.isArray(rest)) return null;
    list = list.slice(0, kept).concat(rest);
  }
  return Array.isArray(list) ? list : null;
}

// A text in blocks that are laid out when they become visible, cut at line ends where possible: a
// browser needs minutes for one line of millions of characters.
function* blocks(text, from, to) {
  for (let start = from; start < to; ) {
    const end = Math.min(to, start + TEXT_CHARACTERS);
    const line = end < to ? text.lastIndexOf("\n", end) + 1 : end;
    const next = line > start ? line : end;
    yield el("span", { class: "block" }, shown(text.slice(start, next)));
    start = next;
  }
}

// A text in full: its first part, and a button for the rest.
function textBlock(text, find = "") {
  const pre = el("pre", { class: "rec text", dir: "auto", tabindex: "0" });
  const at = find ? text.toLowerCase().indexOf(find) : -1;
  const first = Math.max(TEXT_CHARACTERS, at < 0 ? 0 : at + 2_000);
  pre.append(...blocks(text, 0, Math.min(first, text.length)));
  if (text.length <= first) return pre;
  const button = el("button", { type: "button", class: "more" });
  button.append(`Show all ${count(text.length)} characters`);
  button.addEventListener("click", () => {
    pre.append(...blocks(text, first, text.length));
    button.remove();
  });
  return el("div", null, pre, button);
}

// A folded value. `make` builds its content when it is first opened.
function folded(label, summary, make, { open = false, key = null } = {}) {
  const details = el("details", { class: "fold" });
  const isOpen = (key === null ? undefined : opened.get(key)) ?? open;
  const fill = () => {
    if (details.childElementCount === 1) details.append(el("div", { class: "inside" }, make()));
  };
  details.append(
    el("summary", null, rec(label, "label"), summary === null ? null : rec(summary, "dim")),
  );
  if (isOpen) fill();
  details.open = isOpen;
  details.addEventListener("toggle", () => {
    if (details.open) fill();
    if (key !== null) opened.set(key, details.open);
  });
  return details;
}

// A value as elements. `where`: its agent, and the name of the argument.
function valueNode(value, where = {}, find = "", depth = 0) {
  if (typeof value === "string") {
    return value.length > 80 || value.includes("\n")
      ? textBlock(value, find)
      : el("code", { class: "rec string", dir: "auto" }, shown(value) || "(empty text)");
  }
  if (value === null || typeof value !== "object") {
    return el("code", { class: "rec" }, String(value ?? null));
  }
  if (isBlob(value)) return blobNode(value.$blob, where, find, depth);
  if (value.$append) return appendedNode(value, where, find, depth);
  return entriesNode(value, where, find, depth);
}

function blobNode(facts, where, find, depth) {
  const line = el("p", { class: "dim" }, `blob, ${count(facts.size ?? 0)} bytes, SHA-256 `);
  line.append(rec(facts.sha256, "mono"));
  if (Object.hasOwn(page.blobs, facts.sha256)) {
    return el("div", null, line, valueNode(page.blobs[facts.sha256], where, find, depth));
  }
  const why = page.absent[facts.sha256] ?? "its reference is not one of ours";
  line.append(`; it is not in this file: ${why}`);
  return line;
}

function appendedNode(value, where, find, depth) {
  const facts = value.$append;
  const before = () => {
    const list = where.agent ? wholeList(where.agent, value, where.name) : null;
    if (!list) return el("p", { class: "dim" }, "the list it extends is not in this file");
    return valueNode(list.slice(0, facts.count), where, "", depth + 1);
  };
  const added = unblobbed(facts.items);
  return el(
    "div",
    { class: "entries" },
    folded(plural(facts.count, "item"), `as in step ${facts.to}`, before),
    el("p", { class: "dim" }, `and ${plural(Array.isArray(added) ? added.length : 0, "more item")}`),
    valueNode(facts.items, where, find, depth + 1),
  );
}

const isShort = (value) =>
  value === null ||
  (typeof value === "object"
    ? Object.keys(value).length === 0
    : String(value).length <= 80 && !String(value).includes("\n"));

function entriesNode(value, where, find, depth) {
  const keys = Object.keys(value);
  if (!keys.length) return el("code", { class: "rec" }, Array.isArray(value) ? "[]" : "{}");
  const box = el("div", { class: "entries" });
  const entry = (key) => {
    const inner = value[key];
    const place = depth === 0 && where.name === undefined ? { ...where, name: key } : where;
    if (isShort(inner)) {
      return el(
        "div",
        { class: "entry" },
        rec(key, "label"),
        valueNode(inner, place, find, depth + 1),
      );
    }
    const open = holds(inner, find) || (keys.length === 1 && depth < 2);
    const make = () => valueNode(inner, place, find, depth + 1);
    return folded(key, preview(inner), make, { open });
  };
  const add = (from, to) => box.append(...keys.slice(from, to).map(entry));
  const hit = find ? keys.findLastIndex((key) => holds(value[key], find)) : -1;
  const first = Math.max(ENTRIES, hit + 1);
  add(0, first);
  let next = first;
  if (next < keys.length) {
    const button = el("button", { type: "button", class: "more" });
    const name = () => {
      button.textContent = `Show ${count(Math.min(ENTRIES, keys.length - next))} more of ${count(keys.length)}`;
    };
    name();
    button.addEventListener("click", () => {
      button.remove();
      add(next, (next += ENTRIES));
      if (next < keys.length) {
        name();
        box.append(button);
      }
    });
    box.append(button);
  }
  return box;
}

// A named value, folded, with its preview.
function payload(label, value, { open = false, find = "", where = {} } = {}) {
  const found = holds(value, find);
  const make = () => valueNode(value, where, find);
  return folded(label, preview(value), make, { open: open || found, key: found ? null : label });
}

// Names and values, one per row, without missing ones.
function pairs(rows, kind = "facts") {
  const list = el("dl", { class: kind });
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "") continue;
    const node = value instanceof Node ? value : rec(value);
    list.append(el("div", null, el("dt", null, name), el("dd", null, node)));
  }
  return list;
}

function failureText(error) {
  if (typeof error !== "object" || error === null) return String(error);
  return error.message ? `${error.type}: ${error.message}` : String(error.type);
}
