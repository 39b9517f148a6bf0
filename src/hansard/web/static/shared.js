// The run's board and tasks at a point. Nothing is folded here: the file holds each event's changes of
// a key or task, and the state at a point is given by the changes up to it.

// One row per key or task, by its number. `now`: its fields; `at`: the event that changed it last;
// `gone`: the reason of its removal. Rows are changed in place by the next point: do not keep them.
function replay(names, changes, change) {
  let rows = [];
  let next = 0; // the first change not applied to the rows
  return (point) => {
    if (next && changes[next - 1][0] > point) [rows, next] = [[], 0];
    for (; next < changes.length && changes[next][0] <= point; next++) {
      const [number, name, facts] = changes[next];
      const row = (rows[name] ??= { name: names[name], gone: "not yet", now: null });
      const isNew = row.gone !== "";
      row.at = number;
      row.isNew = isNew;
      row.gone = facts.gone ?? "";
      if (row.gone) continue;
      if (isNew) row.now = Object.create(null);
      change(row.now, facts, number, isNew || "kind" in facts);
    }
    return rows;
  };
}

// Content of a key after a change. Growing content is one list or object that is appended to, so it is
// always a copy of the file's own.
function keyChange(now, { value: [what, given], ...facts }, number, isFresh) {
  Object.assign(now, facts);
  if (facts.version) now.written = number;
  if (isFresh) now.value = now.kind === "union" ? Object.create(null) : [];
  if (what === "of") now.value = fields(given ?? number).value ?? null;
  else if (what === "is" && now.kind === "union") now.value = Object.assign(Object.create(null), given);
  else if (what === "is") now.value = Array.isArray(given) ? [...given] : given;
  else if (what === "set") Object.assign(now.value, given);
  else if (what === "push") now.value.push(fields(number).item ?? null);
  else if (what === "in") now.value.splice(given, 0, fields(number).item ?? null);
  else if (what === "out") now.value.splice(given, 1);
  else throw new Error(`a change of a value is ${what}, which this page does not know`);
}

const TASK_VALUES = ["what", "given", "result"];

// State of a task after a change; its values are those of the events that set them.
function taskChange(now, facts, number) {
  for (const [name, value] of Object.entries(facts)) {
    now[name] = TASK_VALUES.includes(name) ? (fields(number)[name] ?? null) : value;
  }
}

// Keys sorted by name, tasks in the order they were added.
const boardAt = replay(page.shared.keys, page.shared.board, keyChange);
const tasksAt = replay(page.shared.names, page.shared.tasks, taskChange);

// Seconds left of a task's lease at a point; null if it is not claimed.
const leaseLeft = (now, point) =>
  now.status === "claimed" ? (now.expires - eventTime(point)) / 1e6 : null;
