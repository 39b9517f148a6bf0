// Messages as a chat, up to the point: those between agents, and those that an agent recorded of its
// context window. Later ones are counted, not shown.

const BUBBLE_CHARACTERS = 700; // of a message shown at once; the rest on a click

const CHATS = { mail: "Between agents", window: "In context windows" };
const chatKinds = new Set(Object.keys(CHATS));
const numberOfAgent = new Map([...agents.values()].map((agent) => [agent.name, agent.number]));

// Sender and receiver of a message; `agent` is the number of the sending agent.
function mailOf(number) {
  const facts = fields(number);
  const from = page.actors[page.commits.actor[rowOf[number]]];
  const to = facts.agent ? facts.agent : `everyone of role ${facts.role}`;
  return { at: number, kind: "mail", from, role: facts.sender_role, to, agent: numberOfAgent.get(from), content: facts.content ?? null };
}

function windowOf(item) {
  const facts = fields(item.at);
  const isOwn = facts.role === "assistant";
  const { name, number } = item.agent;
  const content = facts.content ?? facts.summary ?? facts.fields ?? null;
  const from = isOwn ? name : facts.role;
  return { at: item.at, kind: "window", from, role: isOwn ? facts.role : "", to: isOwn ? "" : name, agent: isOwn ? number : undefined, content };
}

const chat = numbers
  .filter((number) => typeOf(number) === "mail.sent.v1" || items[itemOf[number]].kind === "message")
  .map((number) => (typeOf(number) === "mail.sent.v1" ? mailOf(number) : windowOf(items[itemOf[number]])));
let shownChat = chat; // those of the selected kinds

function contentNode(content) {
  const value = unblobbed(content);
  if (typeof value !== "string") return payload("content", content, { open: !isShort(value) });
  if (value.length <= BUBBLE_CHARACTERS) return el("p", { class: "bubble-text rec", dir: "auto" }, shown(value));
  const cut = el("p", { class: "bubble-text rec", dir: "auto" }, shown(value.slice(0, BUBBLE_CHARACTERS)) + "…");
  const whole = () => box.replaceChildren(textBlock(value));
  const box = el("div", null, cut, el("button", { type: "button", class: "more", onclick: whole }, `Show all ${count(value.length)} characters`));
  return box;
}

function bubble(facts) {
  const isHere = facts.at === thePoint();
  const side = facts.agent === undefined ? "left" : agents.size === 1 || facts.agent % 2 ? "right" : "left";
  const whom = `${facts.from}${facts.to ? ` to ${facts.to}` : ""}`;
  const title = el(
    "div",
    { class: "whose" },
    el("span", { class: `who ${facts.agent === undefined ? "" : `agent-${facts.agent % 8}`}` }, rec(facts.from)),
    facts.role ? el("span", { class: "dim" }, rec(facts.role)) : null,
    facts.to ? el("span", { class: "to" }, "→ ", rec(facts.to)) : null,
    goTo(facts.at, address(facts.at), "link mono"),
    isHere ? el("span", { class: "chip here" }, "here") : null,
  );
  const click = (event) => {
    if (event.target.closest("button, summary, details, pre") || String(getSelection())) return;
    setPoint(facts.at);
    if (PHONE.matches) showTab("detail");
  };
  return el(
    "article",
    { class: `bubble ${side} ${facts.kind}`, "data-at": facts.at, "aria-label": inLine(whom), "aria-current": isHere ? "true" : null, onclick: click },
    title,
    contentNode(facts.content),
  );
}

const bubbles = keeper();
const chatBox = el("div", { class: "list" });

function showChat(point) {
  let [low, high] = [0, shownChat.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (shownChat[middle].at <= point) low = middle + 1;
    else high = middle;
  }
  tellTab("chat", low, low && shownChat[low - 1].at === point ? "new here" : "");
  if (!isInSight("chat")) return bubbles.forget();
  const newest = shownChat.slice(Math.max(0, low - LISTED), low);
  const made = bubbles.nodes(newest, (facts) => facts.at, (facts) => facts.at === point, bubble);
  const nodes = [newestOf(shownChat.slice(0, low), bubble, chatBox, made)];
  const left = shownChat.length - low;
  if (!chat.length) nodes.push(el("p", { class: "note" }, "This run has no messages."));
  else if (!low) nodes.push(el("p", { class: "note" }, "No message yet at this point."));
  if (left) {
    const next = () => setPoint(shownChat[low].at);
    nodes.push(el("p", { class: "to-come" }, `${plural(left, "message comes", "messages come")} later. `, el("button", { type: "button", class: "next", onclick: next }, "Next message")));
  }
  const box = byId("chat-now");
  hold(box, nodes);
  box.scrollTop = box.scrollHeight;
}

function startChat() {
  for (const [kind, name] of Object.entries(CHATS)) {
    const size = chat.filter((facts) => facts.kind === kind).length;
    if (!size) continue;
    const toggle = () => {
      if (!chatKinds.delete(kind)) chatKinds.add(kind);
      button.setAttribute("aria-pressed", String(chatKinds.has(kind)));
      shownChat = chat.filter((facts) => chatKinds.has(facts.kind));
      showChat(thePoint());
    };
    const button = el("button", { type: "button", class: "kind plain", "aria-pressed": "true", onclick: toggle }, `${name} ${count(size)}`);
    byId("chats").append(button);
  }
}
