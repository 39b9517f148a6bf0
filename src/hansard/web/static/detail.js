// The event at the point, with the step that it is part of, as far as it had come.

const EVENT_BUTTONS = 12; // of a step shown; of a long stream the ones between are left out

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

// What a fork answered an effect with that it withheld.
const WITHHELD = {
  outcome: "answered with an outcome on record",
  shadow: "answered by the tool's shadow",
  refused: "refused, nothing answered for it",
};

// What came of a step up to the point, event by event.
function outcomeNodes(item, point, find) {
  const out = [];
  let yielded = [];
  for (const number of item.events.slice(1)) {
    if (number > point) break;
    const told = fields(number);
    switch (typeOf(number)) {
      case "step.attempted.v1":
        yielded = [];
        out.push(el("h3", null, `Attempt ${told.attempt} failed`));
        out.push(...errorNode(told.error, find));
        break;
      case "step.yielded.v1":
        yielded = yielded.concat(told.items ?? []);
        break;
      case "step.completed.v1":
        if (!yielded.length) out.push(payload("result", told.result ?? null, { open: true, find }));
        if (told.closed) out.push(el("p", { class: "dim" }, "its reader stopped early"));
        if (told.reused) out.push(el("p", { class: "dim" }, `the outcome of step ${told.reused}`));
        if (told.reused_from) {
          const { run, agent, step } = told.reused_from;
          const named = ["the answer of ", rec(agent), `#${step} of run `, rec(run), ": nothing ran here"];
          out.push(el("p", { class: "dim" }, ...named));
        }
        if (told.usage) out.push(payload("usage", told.usage, { find }));
        break;
      case "step.failed.v1":
      case "step.in_doubt.v1":
        out.push(el("h3", null, typeOf(number) === "step.failed.v1" ? "Failed" : "In doubt"));
        out.push(...errorNode(told.error, find));
        break;
      case "step.blocked.v1":
        out.push(el("h3", null, "Blocked by rule ", rec(told.rule)), textBlock(told.reason, find));
        break;
      case "step.withheld.v1":
        out.push(el("h3", null, `Withheld in this fork: ${WITHHELD[told.how]}`));
        if (told.would) out.push(el("p", null, "It would have done: ", rec(told.would)));
        break;
      case "step.settled.v1":
        out.push(el("h3", null, `Settled: ${told.verdict.replaceAll("_", " ")}, by `, rec(told.by)));
        if (told.because) out.push(textBlock(told.because, find));
        if (told.result !== undefined) out.push(payload("result", told.result, { open: true, find }));
        break;
      default:
        out.push(payload(typeOf(number), { ...told }, { open: true, find }));
    }
  }
  if (yielded.length) out.push(payload(plural(yielded.length, "item"), yielded, { open: true, find }));
  if (OPEN.has(statusAt(item, point)) && point < item.events.at(-1)) {
    out.push(el("p", { class: "note" }, "At this point it had no outcome yet."));
  }
  return out;
}

function stepNodes(item, point, find) {
  const told = item.step;
  const inside = item.children.filter((child) => child.at <= point).length;
  return [
    el("div", { class: "what" }, rec(titleOf(item), "name"), statusPill(statusAt(item, point))),
    eventButtons(item, point),
    pairs([
      ["step", `${item.agent.name}#${told.step}`],
      ["effects", told.effects],
      ["kind", told.kind === "tool" ? null : told.kind],
      ["inside", item.parent && stepButtons(item, [told.parent])],
      ["holds", inside ? plural(inside, "part") : null],
      ["after", stepButtons(item, told.after ?? [])],
      ["branch", item.branch.join(" / ")],
      ["took", duration(took(item, point))],
      ["key", told.key],
      ["prompts", told.prompts?.map((use) => `${use.prompt}@${use.version}${use.alias ? ` (${use.alias})` : ""}`).join(", ")],
    ]),
    payload("arguments", told.arguments ?? {}, { open: true, find, where: { agent: item.agent } }),
    ...outcomeNodes(item, point, find),
  ];
}

function messageNodes(told, find) {
  const content = told.content ?? told.summary ?? null;
  const of = told.stands_for ? `summary of ${plural(told.stands_for.length, "message")}, which stay on record` : "";
  return [
    el("div", { class: "what" }, rec(told.role, "name"), el("span", { class: "dim" }, told.tokens ? plural(told.tokens, "token") : "", of ? ` ${of}` : "")),
    typeof content === "string" ? textBlock(content, find) : payload("content", content, { open: true, find }),
    told.fields ? payload("fields", told.fields, { open: true, find }) : null,
    told.usage ? payload("usage", told.usage, { open: true, find }) : null,
  ];
}

function decisionNodes(told, find) {
  const rows = (told.alternatives ?? []).map((given) =>
    el(
      "tr",
      { class: given.id === told.selected ? "selected" : null },
      el("td", null, rec(given.id)),
      el("td", null, given.score === undefined ? "" : String(given.score)),
      el("td", null, rec(given.reason ?? ""), given.rejected_because ? rec(` rejected: ${given.rejected_because}`) : null),
    ),
  );
  const head = el("tr", null, ["alternative", "score", "reason"].map((name) => el("th", { scope: "col" }, name)));
  return [
    el("div", { class: "what" }, rec(told.question, "name")),
    pairs([
      ["selected", told.selected],
      ["threshold", told.threshold],
      ["confidence", told.confidence],
      ["made from", told.inputs && told.inputs.join(", ")],
    ]),
    rows.length ? el("div", { class: "wide" }, el("table", null, el("thead", null, head), el("tbody", null, rows))) : null,
    told.because ? textBlock(told.because, find) : null,
  ];
}

function eventNodes(item, point, find) {
  const told = fields(point);
  switch (item.kind) {
    case "step":
      return stepNodes(item, point, find);
    case "message":
      return messageNodes(told, find);
    case "decision":
      return decisionNodes(told, find);
    case "checkpoint":
      return [
        el("div", { class: "what" }, rec(told.name, "name")),
        payload("data", told.data ?? null, { open: true, find }),
      ];
    default:
      return [
        el("div", { class: "what" }, rec(titleOf(item), "name")),
        Object.keys(told).length ? valueNode({ ...told }, { name: "" }, find) : null,
      ];
  }
}

// What stands around the event: where, when, by whom, under which ids.
function envelope(point, find) {
  const row = rowOf[point];
  const { commits } = page;
  const apart = commits.clock[row];
  const told = {
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
  if (step) Object.assign(told, { call: step.call, fingerprint: step.fingerprint });
  if (page.events.occurred_at[point]) told["occurred at (claimed)"] = page.events.occurred_at[point];
  return payload("on record", told, { find });
}

function showEvent(point, find) {
  const item = items[itemOf[point]];
  byId("address").replaceChildren(address(point), " ", rec(versionName(point)));
  const nodes = eventNodes(item, point, find).flat().filter(Boolean);
  byId("event").replaceChildren(...nodes, envelope(point, find));
}
