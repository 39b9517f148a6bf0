// The run's board and tasks at a point. Nothing is folded here: the file says what each event changed
// of which key or task, and what stands at a point is what was changed up to it.

// A row a key or task, by its number: `now` are its fields, `at` the event that changed it last,
// `gone` why it is not there any more. The next point changes the rows: nobody may keep them.
function replay(names, changes, change) {
  let rows = [];
  let next = 0; // the first change that is not in the rows
  return (point) => {
    if (next && changes[next - 1][0] > point) [rows, next] = [[], 0];
    for (; next < changes.length && changes[next][0] <= point; next++) {
      const [number, name, told] = changes[next];
      const row = (rows[name] ??= { name: names[name], gone: "not yet", now: null });
      const isNew = row.gone !== "";
      row.at = number;
      row.isNew = isNew;
      row.gone = told.gone ?? "";
      if (row.gone) continue;
      if (isNew) row.now = Object.create(null);
      change(row.now, told, number, isNew || "kind" in told);
    }
    return rows;
  };
}

// What a key holds after a change. What grows is one list or object, which is added to; so it is
// never one of the file's own.
function keyChange(now, { value: [what, given], ...told }, number, isFresh) {
  Object.assign(now, told);
  if (told.version) now.written = number;
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

// How a task stands after a change; its values are those of the events that gave them.
function taskChange(now, told, number) {
  for (const [name, value] of Object.entries(told)) {
    now[name] = TASK_VALUES.includes(name) ? (fields(number)[name] ?? null) : value;
  }
}

// Keys by their names, tasks as they were added.
const boardAt = replay(page.shared.keys, page.shared.board, keyChange);
const tasksAt = replay(page.shared.names, page.shared.tasks, taskChange);

// How long a task's lease still is at a point, in seconds; null where nobody has it.
const leaseLeft = (now, point) =>
  now.status === "claimed" ? (now.expires - eventTime(point)) / 1e6 : null;
