// The state at the point: the run's life, its agents, and one agent in full.

const LISTED = 30; // newest items of a list shown at once

let chosenAgent = null; // a stream's name; null follows the point

const field = (name, value) => el("span", { "data-field": name }, value);

// The newest items of a list, and a button for earlier ones; each item is built when it is shown.
function newestOf(list, make, box = el("div", { class: "list" }), newest = list.slice(-LISTED).map(make)) {
  let from = Math.max(0, list.length - LISTED);
  hold(box, newest);
  if (!from) return box;
  const button = el("button", { type: "button", class: "more" });
  const name = () => (button.textContent = `Show ${count(Math.min(LISTED, from))} before, of ${count(list.length)}`);
  name();
  button.addEventListener("click", () => {
    const next = Math.max(0, from - LISTED);
    button.after(...list.slice(next, from).map(make));
    from = next;
    if (from) name();
    else button.remove();
  });
  box.prepend(button);
  return box;
}

function lifeNodes(life) {
  const assigned = life.assigned;
  const rows = [
    ["status", el("span", { "data-field": "status" }, statusPill(life.status ?? "unknown"))],
    ["at work", life.missing?.length ? `${life.missing.join(", ")} (or killed)` : null],
    ["error", life.error && failureText(life.error)],
    ["assigned", assigned && assignment(assigned)],
    ["scores", scoreChips(life.scores)],
  ];
  return pairs(rows);
}

const assignment = (given) =>
  [
    given.experiment,
    given.arm && `arm ${given.arm}`,
    given.task && `task ${given.task}`,
    given.trial !== undefined && given.trial !== null && `trial ${given.trial}`,
  ]
    .filter(Boolean)
    .join(", ");

function scoreChips(scores) {
  const facts = Object.entries(scores ?? {});
  if (!facts.length) return null;
  return el("span", { class: "chips" }, facts.map(([name, value]) => el("span", { class: "chip" }, rec(name), ` ${value}`)));
}

function agentRow(key, agent, state, isChosen) {
  const statuses = [...state.statuses].map(([status, number]) =>
    el("span", { class: "tally", "data-status": status }, `${count(number)} `, statusPill(status)),
  );
  return el(
    "button",
    {
      type: "button",
      class: "agent",
      "data-agent": agent.name,
      "aria-pressed": String(isChosen),
      onclick: () => {
        chosenAgent = chosenAgent === key ? null : key;
        showState(thePoint());
      },
    },
    el("span", { class: `who agent-${agent.number % 8}` }, rec(agent.name)),
    el("span", { class: "dim" }, rec(agent.role), " v", field("version", String(state.version)), " · ", rec(state.fields.left ?? "open")),
    el(
      "span",
      { class: "dim counts" },
      field("messages", plural(state.window, "message")),
      state.tokens === null ? null : field("tokens", plural(state.tokens, "token")),
      field("decisions", plural(state.decisions, "decision")),
      field("checkpoints", plural(state.checkpoints.length, "checkpoint")),
    ),
    el("span", { class: "tallies" }, statuses.length ? statuses : el("span", { class: "dim" }, "no steps")),
  );
}

function messageFold(item) {
  const facts = fields(item.at);
  const make = () => [
    goTo(item.at, `to ${address(item.at)}`),
    ...messageNodes(facts, "").slice(1).filter(Boolean),
  ];
  const made = folded(facts.role, firstWords(facts), make);
  made.classList.add("message", `role-${["user", "assistant", "tool", "system"].includes(facts.role) ? facts.role : "other"}`);
  return made;
}

function agentNodes(agent, state) {
  const stepLine = (item) =>
    el("div", { class: "line" }, goTo(item.at, `#${item.step.step} ${inLine(titleOf(item))}`), el("span", { class: "gist" }, rec(gistOf(item))), statusPill(statusAt(item, thePoint())));
  const checkpoint = (item) => {
    const facts = fields(item.at);
    const make = () => [goTo(item.at, `to ${address(item.at)}`), valueNode(facts.data ?? null)];
    return folded(facts.name, preview(facts.data ?? null), make);
  };
  const decision = (item) => {
    const facts = fields(item.at);
    const make = () => [goTo(item.at, `to ${address(item.at)}`), ...decisionNodes(facts, "").slice(1).filter(Boolean)];
    return folded(facts.question, `→ ${facts.selected}`, make);
  };
  const section = (name, size, node, id) =>
    size ? el("section", { "data-list": id }, el("h3", null, name, " ", el("span", { class: "dim" }, count(size))), node) : null;
  const { open, checkpoints, decisions, messages } = state;
  const listed = agent.messages.slice(0, messages);
  const standing = agent.compacted ? contextWindowOf(listed) : listed;
  return [
    section("Open steps", open.length, newestOf(open, stepLine), "open"),
    section("Checkpoints", checkpoints.length, newestOf(checkpoints, checkpoint), "checkpoints"),
    section("Decisions", decisions, newestOf(agent.decisions.slice(0, decisions), decision), "decisions"),
    section("Context window", standing.length, newestOf(standing, messageFold), "messages"),
  ].filter(Boolean);
}

// The agent to show in full: the selected one, else that of the event, else the first that began.
function agentInView(point, states) {
  const here = items[itemOf[point]].agent;
  const key = [...states.keys()].find((name) => agents.get(name) === here);
  for (const name of [chosenAgent, key, states.keys().next().value]) {
    if (states.has(name)) return name;
  }
  return null;
}

function showState(point) {
  if (!isInSight("state")) return;
  byId("asof").textContent = `at ${address(point)}`;
  const states = new Map();
  for (const [key, agent] of agents) {
    const state = agentAt(agent, point);
    if (state) states.set(key, state);
  }
  const rows = [...states].map(([key, state]) =>
    agentRow(key, agents.get(key), state, chosenAgent === key),
  );
  const label = "Agents; choose one to keep it in view";
  const list = el("div", { class: "agents", role: "group", "aria-label": label }, rows);
  if (!rows.length) list.append(el("p", { class: "note" }, "No agent had begun at this point."));
  const nodes = [lifeNodes(lifeAt(point)), list];
  const picked = agentInView(point, states);
  if (picked !== null) {
    const agent = agents.get(picked);
    nodes.push(el("h3", { class: "of" }, rec(agent.name)), ...agentNodes(agent, states.get(picked)));
  }
  byId("now").replaceChildren(...nodes);
}
