// The board and the tasks at the point; changes of its event are marked in words.

const KEYS_SHOWN = 50; // rows of a list shown at once; changed ones are always shown

// The list in a panel: its first rows and those that the event changed, the rest on a click. A row with
// the same last change and the same remaining lease keeps its element.
function rowList(make, signOf) {
  const box = el("div", { class: "list" });
  const kept = keeper();
  const nodes = (rows, point) =>
    kept.nodes(
      rows,
      (row) => row.name,
      (row) => `${row.at} ${row.at === point} ${signOf(row, point)}`,
      (row) => make(row, point),
    );
  return {
    forget: kept.forget,
    at(rows, point) {
      const some = rows.filter((row, index) => index < KEYS_SHOWN || row.at === point);
      const rest = rows.length > KEYS_SHOWN;
      const all = () => hold(box, nodes(rows, point));
      const button = rest ? el("button", { type: "button", class: "more", onclick: all }, `Show all ${count(rows.length)}`) : null;
      hold(box, [...nodes(some, point), button].filter(Boolean));
      return box;
    },
  };
}

// The change of a row by the event at the point, in a word; else nothing.
function hereChip(row, point) {
  if (row.at !== point) return null;
  const word = row.gone || (row.isNew ? "new" : "changed");
  return el("span", { class: "chip here", "data-here": word }, `${word} here`);
}

// A folded row: its chips are in the line, the rest is built when it is opened.
function foldedRow(row, point, key, { label, gist, chips, make }) {
  const made = folded(label, gist, make, { key });
  const line = made.firstElementChild;
  line.append(el("span", { class: "chips" }, chips.filter(Boolean), hereChip(row, point)));
  made.classList.add("entity");
  made.classList.toggle("changed", row.at === point);
  return made;
}

function goneRow(row, point, what) {
  return el(
    "p",
    { class: "entity gone", [`data-${what}`]: row.name },
    rec(row.name, "label"),
    el("span", { class: "chips" }, hereChip(row, point)),
  );
}

function keyRow(row, point) {
  if (row.gone) return goneRow(row, point, "key");
  const { now } = row;
  const make = () => [
    pairs([
      ["written by", el("span", null, rec(now.author), " as ", rec(now.role), ", at ", goTo(now.written, address(now.written)))],
      ["expires", now.expires && moment(Date.parse(now.expires) * 1000, true)],
      ["labels", now.labels && Object.keys(now.labels).length ? Object.entries(now.labels).map(([name, value]) => `${name}=${value}`).join(", ") : null],
    ]),
    valueNode(now.value),
  ];
  const made = foldedRow(row, point, `key ${row.name}`, {
    label: row.name,
    gist: preview(now.value),
    chips: [
      el("span", { class: "chip", "data-field": "kind" }, now.kind),
      el("span", { class: "chip", "data-field": "version" }, `v${now.version}`),
      el("span", { class: "chip", "data-field": "author" }, rec(now.author)),
    ],
    make,
  });
  made.dataset.key = row.name;
  return made;
}

// Names, of which the file holds the first; a number at the end counts the others.
function namesText(names) {
  const more = typeof names.at(-1) === "number" ? names.at(-1) : 0;
  const facts = more ? names.slice(0, -1) : names;
  return facts.map((name) => inLine(name)).join(", ") + (more ? ` and ${count(more)} more` : "");
}

const leaseText = (left) => (left === null ? null : `lease left ${duration(left * 1000)}`);

function taskRow(row, point) {
  const { now } = row;
  const whose = now.agent || (now.role ? `role ${now.role}` : "anybody");
  const left = leaseLeft(now, point);
  const waits = now.waits_for?.length ? namesText(now.waits_for) : "";
  const never = now.blocked_by?.length ? namesText(now.blocked_by) : "";
  const make = () => [
    pairs([
      ["task", rec(row.name, "mono")],
      ["added by", now.by],
      ["for", whose],
      [now.status === "done" || now.status === "failed" ? "was held by" : "held by", now.holder && `${now.holder} (claim ${now.number})`],
      ["lease until", left === null ? null : moment(now.expires)],
      ["waits for", waits],
      ["never done", never],
      ["because", now.because],
      ["error", now.error],
    ]),
    ...TASK_VALUES.filter((name) => (now[name] ?? null) !== null).map((name) => payload(name, now[name], { open: true })),
  ];
  const made = foldedRow(row, point, `task ${row.name}`, {
    label: now.title,
    gist: `${row.name}, for ${whose}`,
    chips: [
      el("span", { "data-field": "status" }, statusPill(now.status)),
      now.holder ? el("span", { class: "chip", "data-field": "holder" }, rec(now.holder), ` (claim ${now.number})`) : null,
      left === null ? null : el("span", { class: "chip", "data-field": "lease" }, leaseText(left)),
      waits ? el("span", { class: "chip", "data-field": "waits" }, "waits for ", rec(waits)) : null,
    ],
    make,
  });
  made.dataset.task = row.name;
  return made;
}

const boardList = rowList(keyRow, () => "");
const taskList = rowList(taskRow, (row, point) => (row.gone ? "" : (leaseLeft(row.now, point) ?? "")));

// A list in its panel, and its length in the tab.
function showRows(id, rows, point, list, none) {
  const there = rows.filter((row) => row && (!row.gone || row.at === point));
  const size = there.filter((row) => !row.gone).length;
  const changed = there.filter((row) => row.at === point).length;
  tellTab(id, size, changed ? "changed here" : "");
  if (!isInSight(id)) return list.forget();
  byId(`${id}-at`).textContent = `at ${address(point)}`;
  const box = there.length ? list.at(there, point) : el("p", { class: "note" }, none);
  hold(byId(`${id}-now`), [box]);
}

function showBoard(point) {
  const none = page.shared.keys.length ? "No key is there at this point." : "No key was written in this run.";
  showRows("board", boardAt(point), point, boardList, none);
}

function showTasks(point) {
  const none = page.shared.names.length ? "No task is there at this point." : "This run has no tasks.";
  showRows("tasks", tasksAt(point), point, taskList, none);
}
