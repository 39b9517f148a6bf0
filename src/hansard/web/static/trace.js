// The trace: nested steps with branches, attempts and times; facts at the place they were recorded.
// Only visible rows have elements.

const ROW_HEIGHT = 30; // px, as in the style
const ROWS_AROUND = 6; // beyond the visible area
const PRINTED_ROWS = 3_000; // limit of a printout

const treeBox = byId("tree");
const rowsBox = byId("rows");
const collapsed = new Set();
const shownKinds = new Set(Object.keys(KINDS).filter((kind) => kind !== "other"));
let shownItems = [];
let hideLater = false;

const GLYPHS = { step: "ƒ", message: "❝", decision: "◆", checkpoint: "⚑", run: "●", other: "·" };

// Name of an item.
function titleOf(item) {
  const facts = item.step ?? fields(item.at);
  switch (item.kind) {
    case "step":
      return facts.tool ?? "step";
    case "message":
      return facts.role ?? "message";
    case "decision":
      return facts.question ?? "decision";
    case "checkpoint":
      return facts.name ?? "checkpoint";
    default:
      if (typeOf(item.at) === AGGREGATE) return facts.event;
      return typeOf(item.at).replace(/\.v\d+$/, "").replaceAll(/[._]/g, " ");
  }
}

// The first words of a message in any provider's format; without words, the calls in it.
function firstWords(facts) {
  const content = unblobbed(facts.content ?? facts.summary ?? null);
  const parts = Array.isArray(content) ? content : [content];
  const texts = parts.map((part) => part?.text ?? part).filter((text) => typeof text === "string" && text.trim());
  if (texts.length) return preview(texts.map((text) => text.slice(0, PREVIEW_CHARACTERS)).join(" "));
  const others = unblobbed(facts.fields ?? null);
  const calls = [...parts, ...(Array.isArray(others?.tool_calls) ? others.tool_calls : [])];
  const names = calls.map((call) => call?.function?.name ?? call?.name).filter((name) => typeof name === "string");
  return names.length ? preview(`calls ${names.join(", ")}`) : preview(content || others);
}

// Content of an item, in one line.
function gistOf(item) {
  const facts = item.step ?? fields(item.at);
  switch (item.kind) {
    case "step":
      return preview(facts.arguments ?? {});
    case "message":
      return firstWords(facts);
    case "decision":
      return `→ ${facts.selected ?? ""}`;
    case "checkpoint":
      return preview(facts.data ?? null);
    default:
      if (typeOf(item.at) === AGGREGATE) return `${facts.aggregate} ${preview(facts.state)}`;
      return preview({ ...facts });
  }
}

// An event in a few words.
function headline(number) {
  const item = items[itemOf[number]];
  const what = typeOf(number).split(".")[1].replaceAll("_", " ");
  if (item.kind === "step") return `step ${item.step.step} ${titleOf(item)}, ${what}`;
  return item.kind === "run" || item.kind === "other" ? titleOf(item) : `${item.kind} ${titleOf(item)}`;
}

// The rows to show at a point: of the selected kinds, not in a closed step, not hidden as later.
function chooseRows(point) {
  let closed = Infinity; // rows deeper than this are inside a closed step
  shownItems = tree.filter((item) => {
    if (item.depth <= closed) closed = Infinity;
    if (closed !== Infinity) return false;
    if (collapsed.has(item.id)) closed = item.depth;
    return shownKinds.has(item.kind) && !(hideLater && item.at > point);
  });
  rowsBox.style.height = `${shownItems.length * ROW_HEIGHT}px`;
}

// The row of an item, or of the nearest shown one before it.
function rowOfItem(item) {
  let [low, high] = [0, shownItems.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (shownItems[middle].row <= item.row) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function statusPill(status) {
  return el("span", { class: `pill ${status}` }, status.replaceAll("_", " "));
}

function rowNode(index, point, current) {
  const item = shownItems[index];
  const later = item.at > point;
  const node = el("div", {
    class: `row ${item.kind}${later ? " later" : ""}${index === current ? " current" : ""}${isParents(item.at) ? " parents" : ""}`,
    role: "treeitem",
    id: `row-${item.id}`,
    "aria-level": item.depth + 1,
    "aria-selected": String(index === current),
    "aria-expanded": item.children.length ? String(!collapsed.has(item.id)) : null,
    "data-item": item.id,
  });
  node.style.top = `${index * ROW_HEIGHT}px`;
  node.style.setProperty("--depth", Math.min(item.depth, 12));
  const caret = item.children.length ? (collapsed.has(item.id) ? "▸" : "▾") : "";
  node.append(el("span", { class: "caret", "aria-hidden": "true" }, caret));
  if (agents.size > 1 && item.agent) {
    node.append(el("span", { class: `who agent-${item.agent.number % 8}` }, rec(item.agent.name)));
  }
  node.append(el("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[item.kind]));
  if (item.branch.length) {
    node.append(el("span", { class: "chip", title: "branch" }, "∥ ", rec(item.branch.at(-1))));
  }
  node.append(rec(titleOf(item), "name"));
  node.append(el("span", { class: "gist" }, later ? "" : rec(gistOf(item))));
  if (later) node.append(el("span", { class: "unseen" }, "not yet"));
  else if (item.kind === "step") node.append(...stepMarks(item, point));
  node.append(whenNode(item));
  return node;
}

// Begin of an item: as claimed by its source, else by the log.
function whenNode(item) {
  const claimed = claimOf(item.at);
  if (claimed === undefined) return el("span", { class: "when" }, sinceStart(item.at));
  const time = /[T ](\d\d:\d\d(?::\d\d)?)/.exec(claimed)?.[1] ?? claimed.slice(0, 10);
  return el("span", { class: "when claim", title: "as its source claims" }, rec(time));
}

function stepMarks(item, point) {
  const tries = item.events.filter(
    (number) => number <= point && typeOf(number) === "step.attempted.v1",
  ).length;
  const time = duration(took(item, point));
  const settled = item.events.findLast((number) => number <= point && typeOf(number) === "step.settled.v1");
  return [
    settled === undefined ? null : el("span", { class: "chip" }, "settled by ", rec(fields(settled).by)),
    tries ? el("span", { class: "chip" }, `attempt ${tries + 1}`) : null,
    time ? el("span", { class: "took" }, time) : null,
    statusPill(statusAt(item, point)),
  ].filter(Boolean);
}

let drawn = ""; // the rows drawn now, so that scrolling within them costs nothing

let printing = false; // if true, every row keeps an element

function drawRows(point, force = true, { top, height } = treePlace()) {
  if (printing) return;
  const from = Math.max(0, Math.floor(top / ROW_HEIGHT) - ROWS_AROUND);
  const to = Math.min(shownItems.length, Math.ceil((top + height) / ROW_HEIGHT) + ROWS_AROUND);
  const key = `${from} ${to}`;
  if (!force && key === drawn) return;
  drawn = key;
  fillRows(from, to, point);
}

function fillRows(from, to, point) {
  const current = rowOfItem(items[itemOf[point]]);
  const nodes = [];
  for (let index = from; index < to; index++) nodes.push(rowNode(index, point, current));
  rowsBox.replaceChildren(...nodes);
  const item = shownItems[current];
  if (item && current >= from && current < to) {
    treeBox.setAttribute("aria-activedescendant", `row-${item.id}`);
  } else treeBox.removeAttribute("aria-activedescendant");
}

const treePlace = () => ({ top: treeBox.scrollTop, height: treeBox.clientHeight });

// Show the trace at a point, with the point's row visible; `place`: its current scroll position.
function showTrace(point, place = treePlace()) {
  if (!isInSight("trace")) return;
  if (hideLater || !shownItems.length) chooseRows(point);
  const { top: stood, height } = place;
  const y = rowOfItem(items[itemOf[point]]) * ROW_HEIGHT;
  const isSeen = y < 0 || (y >= stood && y + ROW_HEIGHT <= stood + height);
  const targetTop = isSeen ? stood : y - height / 2;
  const top = Math.max(0, Math.min(targetTop, shownItems.length * ROW_HEIGHT - height));
  drawRows(point, true, { top, height });
  if (top !== stood) treeBox.scrollTop = top;
}
