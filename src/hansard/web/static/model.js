// The run as recorded. Nothing is folded here: each event holds its changes of the state, and the state
// at a point is given by the events up to it.

const page = JSON.parse(byId("data").textContent);
if (page.format !== 2) throw new Error(`this page's data has format ${page.format}, not 2`);

const EVENTS = page.events.id.length;
const TYPES = Object.entries(page.types);
const rowOf = new Int32Array(EVENTS); // the commit of an event
const indexOf = new Int32Array(EVENTS); // its place in the commit
const position = []; // of a commit
const timeOf = []; // of a commit, us since 1970
const firstOf = []; // first event of a commit

{
  let [number, at, time] = [0, 0, 0];
  const { commits } = page;
  for (let row = 0; row < commits.id.length; row++) {
    position.push((at += commits.position[row]));
    timeOf.push((time += commits.time[row]));
    firstOf.push(number);
    for (let index = 0; index < commits.events[row]; index++, number++) {
      rowOf[number] = row;
      indexOf[number] = index;
    }
  }
}

const streamOf = (number) => page.streams[page.commits.stream[rowOf[number]]];
const versionOf = (number) => page.commits.version[rowOf[number]] + indexOf[number];
const typeOf = (number) => TYPES[page.events.type[number]][0];
const eventTime = (number) => timeOf[rowOf[number]];
const isParents = (number) => streamOf(number).run !== 0;
const more = (number) => page.commits.more[rowOf[number]] ?? {};
const address = (number) => `${position[rowOf[number]]}.${indexOf[number]}`;

// An importer writes on behalf of another author. Its events have the log's time of the import, not
// the time they happened: that is claimed by the source, or unknown.
const IMPORTER = "import";
const isImported = (number) =>
  page.actors[page.commits.actor[rowOf[number]]] === IMPORTER && "on_behalf_of" in more(number);
const claimOf = (number) => page.events.occurred_at[number];

const numbers = [...Array(EVENTS).keys()];
const START = eventTime(numbers.find((number) => !isImported(number)) ?? 0); // events written live
const CUT = (() => {
  let number = 0;
  while (number < EVENTS && isParents(number)) number++;
  return number;
})(); // number of events that a fork inherited from its parents

// Name of a version, as for --at on the command line.
function versionName(number) {
  const stream = streamOf(number);
  return `${stream.agent ?? stream.name}@${versionOf(number)}`;
}

// Whether the whole commit, or its transaction over several streams, ends at or before the point.
function isWhole(number) {
  const row = rowOf[number];
  return number === lastOf(row) && page.commits.whole[row] === 0;
}
const lastOf = (row) => firstOf[row] + page.commits.events[row] - 1;

// An event's fields by name; omitted ones have their defaults.
function fields(number) {
  const values = page.events.data[number];
  const names = TYPES[page.events.type[number]][1];
  const out = Object.create(null);
  for (let i = 0; i < values.length; i++) if (values[i] !== null) out[names[i]] = values[i];
  return out;
}

const statusAfter = (number) => page.statuses[page.events.status[number]];

// Number of values, among ascending ones, that are at most a point.
function upTo(numbers, point) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= point) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---------------------------------------------------------------- items of the trace

// An item is a step with all of its events, or one other event. `at`: its first event.
const KINDS = {
  step: "Steps",
  message: "Messages",
  decision: "Decisions",
  checkpoint: "Checkpoints",
  run: "Run",
  other: "Other",
};
const KIND_OF = {
  "message.added.v1": "message",
  "context.compacted.v1": "message",
  "decision.made.v1": "decision",
  "checkpoint.saved.v1": "checkpoint",
};

const items = [];
const itemOf = new Int32Array(EVENTS); // the item of an event
const agents = new Map(); // by stream name

function agentOf(stream) {
  let agent = agents.get(stream.name);
  if (!agent) {
    agent = {
      name: stream.agent,
      role: stream.role,
      number: agents.size,
      events: [],
      steps: [],
      byNumber: new Map(),
      messages: [],
      compacted: false,
      tokens: [null], // by number of messages; null if no message gives its tokens
      checkpoints: [],
      decisions: [],
      changes: page.agents[stream.name] ?? [],
    };
    agents.set(stream.name, agent);
  }
  return agent;
}

const COMPACTED = "context.compacted.v1";

// Content of a context window: a summary in place of the messages that it replaces.
function contextWindowOf(messages) {
  let window = [];
  for (const item of messages) {
    if (typeOf(item.at) !== COMPACTED) {
      window.push(item);
      continue;
    }
    const ranges = fields(item.at).versions ?? [];
    const gone = (each) => ranges.some(([first, last]) => versionOf(each.at) >= first && versionOf(each.at) <= last);
    const place = Math.max(0, window.findIndex(gone));
    window = window.filter((each) => !gone(each));
    window.splice(place, 0, item);
  }
  return window;
}

// Changes of the program's own aggregates and of memory are listed under the step that made them.
const AGGREGATE = "aggregate.changed.v1";
const BY_STEPS = new Set([AGGREGATE, "memory.changed.v1", "memory.rejected.v1"]);

function saverOf(number) {
  const actor = page.actors[page.commits.actor[rowOf[number]]];
  for (const agent of agents.values()) if (agent.name === actor) return agent;
  return null;
}

function begin(number, kind, agent, step = null) {
  const item = { id: items.length, kind, at: number, events: [], agent, step, parent: null };
  item.children = [];
  items.push(item);
  return item;
}

function take(number) {
  const stream = streamOf(number);
  const type = typeOf(number);
  const agent = stream.agent === undefined ? null : agentOf(stream);
  if (agent) agent.events.push(number);
  const facts = fields(number);
  let item;
  if (agent && type.startsWith("step.")) {
    item = agent.byNumber.get(facts.step);
    if (type === "step.requested.v1" || !item) {
      item = begin(number, "step", agent, facts);
      item.parent = agent.byNumber.get(facts.parent) ?? null;
      agent.byNumber.set(facts.step, item);
      agent.steps.push(item);
    }
  } else {
    item = begin(number, KIND_OF[type] ?? (stream.name === "life" ? "run" : "other"), agent);
    if (agent) {
      const step = agent.byNumber.get(facts.step);
      // A message names the previous step: it is listed beside that step, not inside it.
      item.parent = (item.kind === "message" ? step?.parent : step) ?? null;
      if (item.kind === "message") {
        agent.messages.push(item);
        agent.compacted ||= type === COMPACTED;
        const before = agent.tokens.at(-1);
        agent.tokens.push(facts.tokens === undefined || type === COMPACTED ? before : (before ?? 0) + facts.tokens);
      } else if (item.kind === "checkpoint") agent.checkpoints.push([item, facts.name]);
      else if (item.kind === "decision") agent.decisions.push(item);
    } else if (BY_STEPS.has(type)) item.parent = saverOf(number)?.byNumber.get(facts.step) ?? null;
  }
  item.events.push(number);
  itemOf[number] = item.id;
}
for (let number = 0; number < EVENTS; number++) take(number);

// The branches around a step: the part of its scope outside of its parent's body.
function branches(item) {
  const scope = item.step?.scope ?? "";
  const outer = item.parent?.step?.call;
  const own = outer && scope.startsWith(outer) ? scope.slice(outer.length) : scope;
  return own.split("/").filter((part) => part !== "");
}

// Items in the order of the tree: each after its parent, else in the order they began.
const tree = (() => {
  const out = [];
  const roots = [];
  for (const item of items) (item.parent ? item.parent.children : roots).push(item);
  const waiting = roots.reverse();
  while (waiting.length) {
    const item = waiting.pop();
    item.branch = branches(item);
    item.depth = (item.parent ? item.parent.depth + 1 : 0) + item.branch.length;
    item.row = out.length;
    out.push(item);
    for (let i = item.children.length - 1; i >= 0; i--) waiting.push(item.children[i]);
  }
  return out;
})();

// The newest event of an item at a point; -1 if it had not begun.
const newest = (item, point) => item.events[upTo(item.events, point) - 1] ?? -1;

// A step's status at a point.
function statusAt(item, point) {
  const number = newest(item, point);
  return number < 0 ? "later" : statusAfter(number);
}

// Changes up to a point: the newest value of each field.
function changed(changes, point) {
  const out = Object.create(null);
  for (const [number, values] of changes) {
    if (number > point) break;
    Object.assign(out, values);
  }
  return out;
}

// Duration of a step, if its outcome has it.
function took(item, point) {
  for (let i = upTo(item.events, point) - 1; i > 0; i--) {
    const facts = fields(item.events[i]);
    if (facts.duration_ms) return facts.duration_ms;
  }
  return null;
}

const OPEN = new Set(["requested", "in_doubt"]);

// Steps that failed or whose outcome is unknown at the end of the run, by status.
const TROUBLES = ["failed", "blocked", "in_doubt"];
const troubled = items.filter((item) => item.step && TROUBLES.includes(statusAt(item, EVENTS - 1)));

// An agent at a point.
function agentAt(agent, point) {
  const version = upTo(agent.events, point);
  if (!version) return null;
  const statuses = new Map();
  const open = [];
  let began = 0;
  for (const item of agent.steps) {
    if (item.at > point) break;
    began++;
    const status = statusAt(item, point);
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    if (OPEN.has(status)) open.push(item);
  }
  const messages = upToItems(agent.messages, point);
  const saved = new Map();
  for (const [item, name] of agent.checkpoints) if (item.at <= point) saved.set(name, item);
  return {
    version: versionOf(agent.events[version - 1]),
    fields: changed(agent.changes, point),
    statuses,
    open,
    steps: began,
    messages,
    window: agent.compacted ? contextWindowOf(agent.messages.slice(0, messages)).length : messages,
    tokens: agent.tokens[messages],
    checkpoints: [...saved.values()],
    decisions: upToItems(agent.decisions, point),
  };
}

// Number of items, in order, that have begun at a point.
function upToItems(list, point) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].at <= point) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The run's life at a point; `roster` by agent.
function lifeAt(point) {
  const out = changed(page.life, point);
  delete out.joined;
  out.roster = new Map();
  for (const [number, values] of page.life) {
    if (number > point) break;
    if (values.joined) out.roster.set(values.joined[0], values.joined[1]);
  }
  return out;
}
