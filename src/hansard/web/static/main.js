// The page: one point, moved by slider, keys, rows, links and search; everything follows it.

const main = document.querySelector("main");
const query = byId("query");
const PHONE = matchMedia("(max-width: 899px)");

let point = 0;
let waiting = false; // for the next frame
let find = ""; // the searched text, while the point is one of its matches
const thePoint = () => point;

function setPoint(number, found = "") {
  point = Math.max(0, Math.min(EVENTS - 1, number));
  find = found;
  showSlider(point);
  if (!waiting) {
    waiting = true;
    requestAnimationFrame(render);
  }
}

// Code that reads sizes runs first or last, so that a move causes one layout.
function render() {
  waiting = false;
  look();
  const [tree, isScrolled] = [treePlace(), byId("event").scrollTop > 0];
  showWhere(point);
  showEvent(point, find);
  showState(point);
  showBoard(point);
  showTasks(point);
  if (isScrolled) byId("event").scrollTop = 0;
  showTrace(point, tree);
  showChat(point);
  markFound();
  noteInAddress();
  document.documentElement.dataset.point = String(point);
}

// The point in the address, for links. Browsers limit the rate of such changes.
const ADDRESS_MS = 400;
let addressTimer = 0;
function noteInAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, "", `#at=${address(point)}`), ADDRESS_MS);
}

function fromAddress() {
  const facts = /^#at=(\d+)(?:\.(\d+))?$/.exec(location.hash);
  if (!facts) return null;
  const row = upTo(position, Number(facts[1])) - 1;
  if (row < 0) return 0;
  const inside = facts[2] !== undefined && position[row] === Number(facts[1]);
  return inside ? Math.min(firstOf[row] + Number(facts[2]), lastOf(row)) : lastOf(row);
}

// ---------------------------------------------------------------- header

function showHead() {
  const life = lifeAt(EVENTS - 1);
  byId("workflow").textContent = inLine(life.workflow || page.run);
  byId("status").textContent = life.status ?? "unknown";
  byId("status").classList.add(life.status ?? "unknown");
  byId("troubles").replaceChildren(...TROUBLES.map(troubleButton).filter(Boolean));
  const labels = Object.entries(life.labels ?? {});
  const forked = life.forked;
  const chips = labels.map(([name, value]) => el("span", { class: "chip" }, rec(`${name}=${value}`)));
  const asOf = `position ${count(position.at(-1))} of log `;
  const last = EVENTS - 1;
  const stored = isImported(last) ? "" : `, ${moment(timeOf.at(-1), true)}`;
  byId("facts").replaceWith(
    pairs([
      ["run", rec(page.run, "mono")],
      ["as of", el("span", null, asOf, rec(page.log, "mono"), stored)],
      ["observed", life.labels?.observed === "true" && !forked ? "spans of another program: no call was an intent, none can be replayed" : null],
      ["imported", importText()],
      ["fork of", forked && el("span", null, rec(forked.parent, "mono"), ` (effects ${forked.effects ?? "shadow"})`)],
      ["conversation", life.conversation_id],
      ["program", life.program],
      ["assigned", life.assigned && assignment(life.assigned)],
      ["scores", scoreChips(life.scores)],
      ["labels", chips.length ? el("span", { class: "chips" }, chips) : null],
      ["at work", life.missing?.length ? `${life.missing.join(", ")} (or killed)` : null],
      ["error", life.error && failureText(life.error)],
      ["lasted", isImported(last) || isImported(Math.min(CUT, last)) ? null : duration((timeOf.at(-1) - timeOf[rowOf[Math.min(CUT, last)]]) / 1000)],
    ]),
  );
  byId("about").open = !PHONE.matches;
}

// Number of steps with a status at the end, as a button to the first of them.
function troubleButton(status) {
  const found = troubled.filter((item) => statusAt(item, EVENTS - 1) === status);
  if (!found.length) return null;
  const label = `${count(found.length)} ${status.replaceAll("_", " ")}`;
  const made = goTo(found[0].events.at(-1), label, `pill ${status}`);
  made.title = `Go to the first of the calls that are ${status.replaceAll("_", " ")} at the end`;
  return made;
}

// Initial point of the page: the first failure of a run that did not complete, else the end.
function openingPoint() {
  const isCompleted = lifeAt(EVENTS - 1).status === "completed";
  return isCompleted || !troubled.length ? EVENTS - 1 : Math.min(...troubled.map((item) => item.events.at(-1)));
}

// Time of a run's import, with a note that its events may be older.
function importText() {
  const first = numbers.find(isImported);
  if (first === undefined) return null;
  const facts = numbers.some((number) => claimOf(number) !== undefined);
  const why = facts ? "a missing time is one that the source does not give" : "its source gives no times";
  return `${moment(eventTime(first), true)}; ${why}`;
}

function showKinds() {
  const present = new Set(items.map((item) => item.kind));
  for (const [kind, name] of Object.entries(KINDS)) {
    if (!present.has(kind)) continue;
    const toggle = () => {
      if (!shownKinds.delete(kind)) shownKinds.add(kind);
      button.setAttribute("aria-pressed", String(shownKinds.has(kind)));
      chooseRows(point);
      showTrace(point);
    };
    const button = el("button", { type: "button", class: "kind", "aria-pressed": String(shownKinds.has(kind)), onclick: toggle }, name);
    button.style.setProperty("--mark", `var(--mark-${kind})`);
    byId("kinds").append(button);
  }
}

// ---------------------------------------------------------------- search

const SEARCH_MS = 120; // after the last key
const ID_CHARACTERS = 8; // from this length on, ids and digests are searched too
const DIGESTS = new Set(["call", "fingerprint", "digest", "scope", "head"]);
const haystacks = []; // by event: its texts, and its ids
let matches = [];
let matchNow = -1;
let searched = ""; // the text that the matches are for
let searchTimer = 0;

// All of an event in lower case: its texts, and separately ids and digests, whose letters are random.
function haystack(number) {
  return (haystacks[number] ??= (() => {
    const texts = [typeOf(number), versionName(number), page.events.occurred_at[number] ?? ""];
    const ids = [page.events.id[number], page.commits.id[rowOf[number]]];
    for (const [name, value] of Object.entries(fields(number))) {
      const parts = DIGESTS.has(name) ? ids : texts;
      eachWord(value, (word) => void parts.push(word));
    }
    return [texts.join("\n").toLowerCase(), ids.join("\n").toLowerCase()];
  })());
}

function isMatch(number, searchText) {
  const [texts, ids] = haystack(number);
  return texts.includes(searchText) || (searchText.length >= ID_CHARACTERS && ids.includes(searchText));
}

function search() {
  clearTimeout(searchTimer);
  const searchText = (searched = query.value.trim().toLowerCase());
  matches = [];
  matchNow = -1;
  if (searchText) {
    for (let number = 0; number < EVENTS; number++) {
      if (isMatch(number, searchText)) matches.push(number);
    }
    const from = upTo(matches, point - 1);
    if (matches.length) return toMatch(from < matches.length ? from : 0);
  }
  showFound();
  if (find) setPoint(point);
}

function toMatch(index) {
  matchNow = (index + matches.length) % matches.length;
  setPoint(matches[matchNow], searched);
  if (PHONE.matches) showTab("detail");
  showFound();
}

function showFound() {
  const hasQuery = query.value.trim() !== "";
  const none = matches.length === 0;
  byId("found").textContent = !hasQuery ? "" : none ? "no match" : `${count(matchNow + 1)} of ${count(matches.length)}`;
  byId("previous").disabled = byId("next").disabled = none;
}

// Mark the visible matches, and scroll to the first.
function markFound() {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  if (!find) return;
  const ranges = [];
  const walker = document.createTreeWalker(byId("event"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("details:not([open]) > :not(summary)")) continue;
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(find); at >= 0 && ranges.length < 500; at = text.indexOf(find, at + find.length)) {
      const range = new Range();
      range.setStart(node, Math.min(at, node.length));
      range.setEnd(node, Math.min(at + find.length, node.length));
      ranges.push(range);
    }
  }
  if (!ranges.length) return;
  CSS.highlights.set("found", new Highlight(...ranges));
  const box = byId("event").parentElement.classList.contains("scrolls") ? byId("event").parentElement : byId("event");
  const seen = ranges.find((range) => !range.startContainer.parentElement.closest("summary")) ?? ranges[0];
  box.scrollTop += seen.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

// ---------------------------------------------------------------- user actions

// On a phone one panel is shown alone, selected by the page's tabs; on a desktop one of each group,
// selected by the group's tabs.
function showTab(name) {
  main.dataset.show = name;
  byId(name).closest(".group").dataset.show = name;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const list = tab.closest("[role=tablist]");
    const isOf = [...list.children].some((each) => each.getAttribute("aria-controls") === name);
    if (!isOf) continue;
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  look();
  ({ trace: showTrace, state: showState, board: showBoard, tasks: showTasks, chat: showChat })[name]?.(point);
}

// Panels that are shown now, or about to be printed. The others are built when they are shown.
const PANELS = ["trace", "chat", "state", "board", "tasks"].map(byId);
let inSight = new Set();
const isInSight = (name) => inSight.has(name);
function look() {
  inSight = new Set(PANELS.filter((panel) => printing || panel.checkVisibility()).map((panel) => panel.id));
}

// Tab text of a panel: the length of its list, and the change by the event at the point.
const tabWords = new Map(); // by panel
function tellTab(name, size, news) {
  const words = `${size} ${news}`;
  if (tabWords.get(name) === words) return;
  tabWords.set(name, words);
  for (const tab of document.querySelectorAll(`[role=tab][aria-controls=${name}]`)) {
    tab.querySelector(".size").textContent = size ? count(size) : "";
    const note = tab.querySelector(".news");
    note.hidden = !news;
    note.title = news;
    note.lastElementChild.textContent = news;
  }
}

// The end of the commit after or before a point.
function commitEnd(from, step) {
  for (let number = from + step; number >= 0 && number < EVENTS; number += step) {
    if (isWhole(number)) return number;
  }
  return step < 0 ? 0 : EVENTS - 1;
}

const MOVES = {
  ArrowLeft: (event) => (event.shiftKey ? commitEnd(point, -1) : point - 1),
  ArrowRight: (event) => (event.shiftKey ? commitEnd(point, 1) : point + 1),
  Home: () => 0,
  End: () => EVENTS - 1,
  PageUp: () => point - Math.ceil(EVENTS / 20),
  PageDown: () => point + Math.ceil(EVENTS / 20),
};

function onKey(event) {
  const inText = event.target.matches("input:not([type=range]):not([type=checkbox]), textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !inText) {
    event.preventDefault();
    query.focus();
    query.select();
  } else if (event.key === "t" && !inText) {
    setAxis(!byTime);
  } else if (!inText && event.key in MOVES && !event.target.closest("[role=tablist], pre.text")) {
    if (event.target === slider && event.key.startsWith("Page")) return;
    event.preventDefault();
    setPoint(MOVES[event.key](event));
  }
}

function onTreeKey(event) {
  const current = rowOfItem(items[itemOf[point]]);
  const item = shownItems[current];
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (step) {
    const next = shownItems[Math.max(0, Math.min(shownItems.length - 1, current + step))];
    if (next) setPoint(next.events.at(-1));
  } else if (item?.children.length && event.key === "ArrowRight" && collapsed.has(item.id)) {
    fold(item);
  } else if (item?.children.length && event.key === "ArrowLeft" && !collapsed.has(item.id)) {
    fold(item);
  } else if (event.key === "Enter") {
    showTab("detail");
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

function fold(item) {
  if (!collapsed.delete(item.id)) collapsed.add(item.id);
  chooseRows(point);
  drawRows(point);
}

function onTreeClick(event) {
  const row = event.target.closest("[role=treeitem]");
  if (!row) return;
  const item = items[Number(row.dataset.item)];
  if (event.target.closest(".caret") && item.children.length) return fold(item);
  setPoint(item.events.at(-1));
  if (PHONE.matches) showTab("detail");
}

function listen() {
  slider.addEventListener("input", () => setPoint(sliderPoint()));
  byId("first").addEventListener("click", () => setPoint(0));
  byId("back").addEventListener("click", (event) => setPoint(MOVES.ArrowLeft(event)));
  byId("on").addEventListener("click", (event) => setPoint(MOVES.ArrowRight(event)));
  byId("last").addEventListener("click", () => setPoint(EVENTS - 1));
  document.addEventListener("keydown", onKey);
  treeBox.addEventListener("keydown", onTreeKey);
  treeBox.addEventListener("click", onTreeClick);
  treeBox.addEventListener("scroll", () => drawRows(point, false), { passive: true });
  new ResizeObserver(() => drawRows(point)).observe(treeBox);
  byId("hide").addEventListener("change", (event) => {
    hideLater = event.target.checked;
    chooseRows(point);
    showTrace(point);
  });
  query.addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(search, SEARCH_MS);
  });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (matches.length && searched === query.value.trim().toLowerCase()) toMatch(matchNow + (event.shiftKey ? -1 : 1));
      else search();
    } else if (event.key === "Escape") {
      query.value = "";
      search();
      query.blur();
    }
  });
  byId("previous").addEventListener("click", () => toMatch(matchNow - 1));
  byId("next").addEventListener("click", () => toMatch(matchNow + 1));
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.addEventListener("click", () => showTab(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", onTabKey);
  }
  window.addEventListener("hashchange", () => setPoint(fromAddress() ?? point));
  window.addEventListener("beforeprint", printAll);
  window.addEventListener("afterprint", () => {
    byId("cut").hidden = true;
    printing = false;
    setPoint(point, find);
  });
  PHONE.addEventListener("change", () => setPoint(point, find));
}

function onTabKey(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const tabs = [...event.currentTarget.parentElement.children];
  const next = tabs[(tabs.indexOf(event.currentTarget) + step + tabs.length) % tabs.length];
  showTab(next.getAttribute("aria-controls"));
  next.focus();
}

function printAll() {
  printing = true;
  look();
  chooseRows(point);
  const most = Math.min(shownItems.length, PRINTED_ROWS);
  fillRows(0, most, point);
  const left = shownItems.length - most;
  byId("cut").hidden = !left;
  byId("cut").textContent = `${plural(left, "more row")} of the trace not printed.`;
  showState(point);
  showBoard(point);
  showTasks(point);
  showChat(point);
}

showHead();
showKinds();
startChat();
startTimeline();
listen();
for (const name of ["state", "trace"]) showTab(name);
chooseRows(point);
setPoint(fromAddress() ?? openingPoint());
