// The event at the point, with its step up to that event.

const EVENT_BUTTONS = 12; // buttons shown of a step; those in the middle of a long stream are omitted

const goTo = (number, label, kind = "link") =>
  el("button", { type: "button", class: kind, onclick: () => setPoint(number) }, label);

function eventButtons(item, point) {
  const list = item.events;
  const ends = EVENT_BUTTONS / 2;
  const shownEvents =
    list.length <= EVENT_BUTTONS ? list : [...list.slice(0, ends), -1, ...list.slice(-ends)];
  return el(
    "div",
    { class: "events", role: "group", "aria-label": "Events of this step" },
    shownEvents.map((number) => {
      if (number < 0) return el("span", { class: "dim" }, "…");
      const name = typeOf(number).split(".")[1].replaceAll("_", " ");
      const button = goTo(number, `${name} `, `event${number > point ? " later" : ""}`);
      button.append(el("span", { class: "mono dim" }, address(number)));
      if (number === point) button.setAttribute("aria-current", "true");
      return button;
    }),
  );
}

function stepButtons(item, numbers) {
  const found = numbers.map((number) => item.agent.byNumber.get(number)).filter(Boolean);
  if (!found.length) return null;
  return el(
    "span",
    { class: "steps" },
    found.map((step) => goTo(step.events.at(-1), `${step.step.step} ${inLine(titleOf(step))}`)),
  );
}

function errorNode(error, find) {
  const parts = [textBlock(failureText(error), find)];
  if (Array.isArray(error.arguments) && error.arguments.length > 1) {
    parts.push(payload("error's arguments", error.arguments, { find }));
  }
  return parts;
}

// Result that a fork gave in place of a withheld effect.
const WITHHELD = {
  outcome: "answered with an outcome on record",
  shadow: "answered by the tool's shadow",
  refused: "refused, nothing answered for it",
};

// Outcome of a step up to the point, event by event.
function outcomeNodes(item, point, find) {
  const out = [];
  let yielded = [];
  for (const number of item.events.slice(1)) {
    if (number > point) break;
    const facts = fields(number);
    switch (typeOf(number)) {
      case "step.attempted.v1":
        yielded = [];
        out.push(el("h3", null, `Attempt ${facts.attempt} failed`));
        out.push(...errorNode(facts.error, find));
        break;
      case "step.yielded.v1":
        yielded = yielded.concat(facts.items ?? []);
        break;
      case "step.completed.v1":
        if (!yielded.length) out.push(payload("result", facts.result ?? null, { open: true, find }));
        if (facts.closed) out.push(el("p", { class: "dim" }, "its reader stopped early"));
        if (facts.reused) out.push(el("p", { class: "dim" }, `the outcome of step ${facts.reused}`));
        if (facts.reused_from) {
          const { run, agent, step } = facts.reused_from;
          const named = ["the answer of ", rec(agent), `#${step} of run `, rec(run), ": nothing ran here"];
          out.push(el("p", { class: "dim" }, ...named));
        }
        if (facts.usage) out.push(payload("usage", facts.usage, { find }));
        break;
      case "step.failed.v1":
      case "step.in_doubt.v1":
        out.push(el("h3", null, typeOf(number) === "step.failed.v1" ? "Failed" : "In doubt"));
        out.push(...errorNode(facts.error, find));
        break;
      case "step.blocked.v1":
        out.push(el("h3", null, "Blocked by rule ", rec(facts.rule)), textBlock(facts.reason, find));
        break;
      case "step.withheld.v1":
        out.push(el("h3", null, `Withheld in this fork: ${WITHHELD[facts.how]}`));
        if (facts.would) out.push(el("p", null, "It would have done: ", rec(facts.would)));
        break;
      case "step.settled.v1":
        out.push(el("h3", null, `Settled: ${facts.verdict.replaceAll("_", " ")}, by `, rec(facts.by)));
        if (facts.because) out.push(textBlock(facts.because, find));
        if (facts.result !== undefined) out.push(payload("result", facts.result, { open: true, find }));
        break;
      default:
        out.push(payload(typeOf(number), { ...facts }, { open: true, find }));
    }
  }
  if (yielded.length) out.push(payload(plural(yielded.length, "item"), yielded, { open: true, find }));
  if (OPEN.has(statusAt(item, point)) && point < item.events.at(-1)) {
    out.push(el("p", { class: "note" }, "At this point it had no outcome yet."));
  }
  return out;
}

function stepNodes(item, point, find) {
  const facts = item.step;
  const inside = item.children.filter((child) => child.at <= point).length;
  return [
    el("div", { class: "what" }, rec(titleOf(item), "name"), statusPill(statusAt(item, point))),
    eventButtons(item, point),
    pairs([
      ["step", `${item.agent.name}#${facts.step}`],
      ["effects", facts.effects],
      ["kind", facts.kind === "tool" ? null : facts.kind],
      ["inside", item.parent && stepButtons(item, [facts.parent])],
      ["holds", inside ? plural(inside, "part") : null],
      ["after", stepButtons(item, facts.after ?? [])],
      ["branch", item.branch.join(" / ")],
      ["took", duration(took(item, point))],
      ["key", facts.key],
      ["prompts", facts.prompts?.map((use) => `${use.prompt}@${use.version}${use.alias ? ` (${use.alias})` : ""}`).join(", ")],
    ]),
    payload("arguments", facts.arguments ?? {}, { open: true, find, where: { agent: item.agent } }),
    ...outcomeNodes(item, point, find),
  ];
}

function messageNodes(facts, find) {
  const content = facts.content ?? facts.summary ?? null;
  const of = facts.stands_for ? `summary of ${plural(facts.stands_for.length, "message")}, which stay on record` : "";
  return [
    el("div", { class: "what" }, rec(facts.role, "name"), el("span", { class: "dim" }, facts.tokens ? plural(facts.tokens, "token") : "", of ? ` ${of}` : "")),
    typeof content === "string" ? textBlock(content, find) : payload("content", content, { open: true, find }),
    facts.fields ? payload("fields", facts.fields, { open: true, find }) : null,
    facts.usage ? payload("usage", facts.usage, { open: true, find }) : null,
  ];
}

function decisionNodes(facts, find) {
  const rows = (facts.alternatives ?? []).map((given) =>
    el(
      "tr",
      { class: given.id === facts.selected ? "selected" : null },
      el("td", null, rec(given.id)),
      el("td", null, given.score === undefined ? "" : String(given.score)),
      el("td", null, rec(given.reason ?? ""), given.rejected_because ? rec(` rejected: ${given.rejected_because}`) : null),
    ),
  );
  const head = el("tr", null, ["alternative", "score", "reason"].map((name) => el("th", { scope: "col" }, name)));
  return [
    el("div", { class: "what" }, rec(facts.question, "name")),
    pairs([
      ["selected", facts.selected],
      ["threshold", facts.threshold],
      ["confidence", facts.confidence],
      ["made from", facts.inputs && facts.inputs.join(", ")],
    ]),
    rows.length ? el("div", { class: "wide" }, el("table", null, el("thead", null, head), el("tbody", null, rows))) : null,
    facts.because ? textBlock(facts.because, find) : null,
  ];
}

function eventNodes(item, point, find) {
  const facts = fields(point);
  switch (item.kind) {
    case "step":
      return stepNodes(item, point, find);
    case "message":
      return messageNodes(facts, find);
    case "decision":
      return decisionNodes(facts, find);
    case "checkpoint":
      return [
        el("div", { class: "what" }, rec(facts.name, "name")),
        payload("data", facts.data ?? null, { open: true, find }),
      ];
    default:
      return [
        el("div", { class: "what" }, rec(titleOf(item), "name")),
        Object.keys(facts).length ? valueNode({ ...facts }, { name: "" }, find) : null,
      ];
  }
}

// Context of the event: place, time, author, ids.
function envelope(point, find) {
  const row = rowOf[point];
  const { commits } = page;
  const apart = commits.clock[row];
  const facts = {
    event: page.events.id[point],
    type: typeOf(point),
    commit: commits.id[row],
    "event of the commit": `${indexOf[point] + 1} of ${commits.events[row]}`,
    "log time": moment(eventTime(point)),
    "writer's clock": moment(eventTime(point) + apart),
    actor: page.actors[commits.actor[row]],
    epoch: commits.epoch[row],
    run: page.runs[streamOf(point).run],
    stream: streamOf(point).name,
    ...more(point),
  };
  const step = items[itemOf[point]].step;
  if (step) Object.assign(facts, { call: step.call, fingerprint: step.fingerprint });
  if (page.events.occurred_at[point]) facts["occurred at (claimed)"] = page.events.occurred_at[point];
  return payload("on record", facts, { find });
}

function showEvent(point, find) {
  const item = items[itemOf[point]];
  byId("address").replaceChildren(address(point), " ", rec(versionName(point)));
  const nodes = eventNodes(item, point, find).flat().filter(Boolean);
  byId("event").replaceChildren(...nodes, envelope(point, find));
}
