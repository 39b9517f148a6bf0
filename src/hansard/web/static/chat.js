// Messages as a chat, up to the point: those that agents sent each other, and those that an agent
// stated of its context window. What comes later is counted, not told.

const BUBBLE_CHARACTERS = 700; // of a message shown at once; the rest on request

const CHATS = { mail: "Between agents", window: "In context windows" };
const wantedChats = new Set(Object.keys(CHATS));
const numberOfAgent = new Map([...agents.values()].map((agent) => [agent.name, agent.number]));

// Whom a message is from and to; `agent` is the number of the agent that says it.
function mailOf(number) {
  const told = fields(number);
  const from = page.actors[page.commits.actor[rowOf[number]]];
  const to = told.agent ? told.agent : `everyone of role ${told.role}`;
  return { at: number, kind: "mail", from, role: told.sender_role, to, agent: numberOfAgent.get(from), content: told.content ?? null };
}

function windowOf(item) {
  const told = fields(item.at);
  const isOwn = told.role === "assistant";
  const { name, number } = item.agent;
  const content = told.content ?? told.summary ?? told.fields ?? null;
  const from = isOwn ? name : told.role;
  return { at: item.at, kind: "window", from, role: isOwn ? told.role : "", to: isOwn ? "" : name, agent: isOwn ? number : undefined, content };
}

const chat = numbers
  .filter((number) => typeOf(number) === "mail.sent.v1" || items[itemOf[number]].kind === "message")
  .map((number) => (typeOf(number) === "mail.sent.v1" ? mailOf(number) : windowOf(items[itemOf[number]])));
let shownChat = chat; // those of the wanted kinds

function contentNode(content) {
  const value = unblobbed(content);
  if (typeof value !== "string") return payload("content", content, { open: !isShort(value) });
  if (value.length <= BUBBLE_CHARACTERS) return el("p", { class: "said rec", dir: "auto" }, shown(value));
  const cut = el("p", { class: "said rec", dir: "auto" }, shown(value.slice(0, BUBBLE_CHARACTERS)) + "…");
  const whole = () => box.replaceChildren(textBlock(value));
  const box = el("div", null, cut, el("button", { type: "button", class: "more", onclick: whole }, `Show all ${count(value.length)} characters`));
  return box;
}

function bubble(told) {
  const isHere = told.at === thePoint();
  const side = told.agent === undefined ? "left" : agents.size === 1 || told.agent % 2 ? "right" : "left";
  const whom = `${told.from}${told.to ? ` to ${told.to}` : ""}`;
  const title = el(
    "div",
    { class: "whose" },
    el("span", { class: `who ${told.agent === undefined ? "" : `agent-${told.agent % 8}`}` }, rec(told.from)),
    told.role ? el("span", { class: "dim" }, rec(told.role)) : null,
    told.to ? el("span", { class: "to" }, "→ ", rec(told.to)) : null,
    goTo(told.at, address(told.at), "link mono"),
    isHere ? el("span", { class: "chip here" }, "here") : null,
  );
  const click = (event) => {
    if (event.target.closest("button, summary, details, pre") || String(getSelection())) return;
    setPoint(told.at);
    if (PHONE.matches) showTab("detail");
  };
  return el(
    "article",
    { class: `bubble ${side} ${told.kind}`, "data-at": told.at, "aria-label": inLine(whom), "aria-current": isHere ? "true" : null, onclick: click },
    title,
    contentNode(told.content),
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
  const made = bubbles.nodes(newest, (told) => told.at, (told) => told.at === point, bubble);
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
    const size = chat.filter((told) => told.kind === kind).length;
    if (!size) continue;
    const toggle = () => {
      if (!wantedChats.delete(kind)) wantedChats.add(kind);
      button.setAttribute("aria-pressed", String(wantedChats.has(kind)));
      shownChat = chat.filter((told) => wantedChats.has(told.kind));
      showChat(thePoint());
    };
    const button = el("button", { type: "button", class: "kind plain", "aria-pressed": "true", onclick: toggle }, `${name} ${count(size)}`);
    byId("chats").append(button);
  }
}
