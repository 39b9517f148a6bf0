// What is asked of a page: where an element stands, and by what else it is found.
({
  ROW_LETTERS_MAX: 80,

  text: (from) => (from || "").replace(/\s+/g, " ").trim(),

  // Through open shadow roots.
  above: (node) => node.assignedSlot || node.parentElement || node.getRootNode().host || null,

  // The element, and all that hold it.
  path(node) {
    const found = [];
    for (let each = node; each; each = this.above(each)) found.push(each);
    return found;
  },

  *every(root = document) {
    for (const each of root.querySelectorAll("*")) {
      yield each;
      if (each.shadowRoot) yield* this.every(each.shadowRoot);
    }
  },

  // All texts that may name an element; empty for an icon, or a field without a label.
  naming(node) {
    const about = ["aria-label", "placeholder", "title", "alt"].map((each) => node.getAttribute(each));
    const ids = (node.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
    const named = ids.map((id) => node.getRootNode().getElementById?.(id)?.textContent);
    const labels = [...(node.labels || [])].map((each) => this.ofLabel(each));
    const pressed = ["submit", "button", "reset"].includes(node.type) ? node.value : "";
    const within = ["SELECT", "TEXTAREA"].includes(node.tagName) ? "" : node.textContent;
    return this.text([...about, ...named, ...labels, pressed, within].filter(Boolean).join(" "));
  },

  // A label's text without the options and the contents of the fields in it.
  ofLabel(label) {
    if (!label.querySelector("select,textarea")) return this.text(label.innerText);
    const copy = label.cloneNode(true);
    for (const each of copy.querySelectorAll("select,textarea")) each.remove();
    return this.text(copy.textContent);
  },

  called(node) {
    return [node.tagName, node.getAttribute("role"), node.type, this.naming(node)].join("|");
  },

  // An element and the others that are called the same, in the order of the page.
  alike(node) {
    const wanted = this.called(node);
    const kin = (other) => !node.contains(other) && !other.contains(node);
    return [...this.every()].filter(
      (other) =>
        other === node ||
        (other.tagName === node.tagName && kin(other) && this.called(other) === wanted),
    );
  },

  hash(from) {
    let [one, other] = [0x811c9dc5, 0x01000193];
    for (let at = 0; at < from.length; at += 1) {
      one = Math.imul(one ^ from.charCodeAt(at), 0x01000193);
      other = Math.imul(other ^ from.charCodeAt(at), 0x85ebca6b) ^ (other >>> 13);
    }
    return [one, other].map((each) => (each >>> 0).toString(16).padStart(8, "0")).join("");
  },

  // By what markup an element without a name differs from others: its icon, say.
  markup(node) {
    const kept = ["class", "id", "name", "type", "src"];
    const about = [...node.attributes].filter(({ name }) => kept.includes(name));
    const inner = ["SELECT", "TEXTAREA"].includes(node.tagName) ? "" : node.innerHTML;
    return [...about.map(({ name, value }) => `${name}=${value}`), inner.slice(0, 2000)].join("|");
  },

  mark(node) {
    return this.naming(node) ? "" : this.markup(node).replace(/\d+/g, "0");
  },

  // What tells an element from the others that are called the same: `row`, the text of the nearest
  // element around it, `depth` levels up, that no other has around it, or that `wanted` has. Where
  // there is none, `place` among the others, with a digest of what they and their rows say, or
  // "none" where all say the same. `mark` is of one that has no name.
  anchor(node, wanted = {}) {
    const all = this.alike(node);
    const others = all.filter((each) => each !== node);
    const path = this.path(node);
    const mark = this.mark(node);
    const above = new Map(others.map((each) => [each, this.path(each)]));
    const shared = new Map(others.map((each) => [each, path.findIndex((one) => above.get(each).includes(one))]));
    const same = others.filter((each) => this.mark(each) === mark);
    const end = Math.min(path.length, ...same.map((each) => shared.get(each)));
    const rows = new Map();
    const rowsOf = (each) => rows.get(each) || rows.set(each, this.rows(each)).get(each);
    // A row that is not shown is no other one: a page may keep a hidden copy of its list.
    const level = (each, depth) => {
      const [ways, at] = [above.get(each), shared.get(each)];
      return ways[Math.max(0, ways.indexOf(path[at]) - (at - depth))];
    };
    const outside = (depth) =>
      others.filter((each) => shared.get(each) > depth && this.shown(level(each, depth)));
    const told = (depth) => {
      const said = this.said(path[depth], node);
      return outside(depth).some((each) => rowsOf(each).includes(said)) ? "" : said;
    };
    const keyed = (depth) =>
      depth === wanted.depth && this.leaf(path[depth], wanted.key) &&
      !outside(depth).some((each) => this.leaf(level(each, depth), wanted.key));
    const siblings = others.every((each) => shared.get(each) === 1);
    let [row, at] = ["", 0];
    const look = (fits) => {
      for (let depth = 1; depth < end && !row; depth += 1) [row, at] = [fits(depth), depth];
      if (!row) at = 0;
    };
    if (wanted.key) look((depth) => (keyed(depth) ? wanted.row : ""));
    if (wanted.row && !row) look((depth) => (told(depth) === wanted.row ? wanted.row : ""));
    if (!others.length && !row) return { row, depth: 0, place: "", mark: "" };
    const apart = Boolean(mark) && !same.length && siblings;
    if (!row && !apart) look(told);
    const inside = at ? path.slice(0, at) : [];
    const steps = others.some((each) => shared.get(each) <= at) ? inside.map((each) => this.step(each)) : [];
    return {
      row,
      depth: at,
      place: row || apart ? "" : this.place(all, all.indexOf(node)),
      mark: mark && this.hash([mark, ...steps].join("/")),
    };
  },

  place(all, at) {
    const rows = all.map((each) => this.rows(each));
    const [first, ...rest] = rows;
    const common = new Set(first.filter((each) => rest.every((other) => other.includes(each))));
    const own = rows.map((each) => each.filter((text) => !common.has(text)));
    const said = all.map((each, number) => [this.markup(each), ...own[number]].join("|"));
    if (new Set(said).size === 1) return "none";
    return `${at + 1}/${all.length} ${this.hash(said.join("\n"))}`;
  },

  step(node) {
    let at = 1;
    for (let other = node.previousElementSibling; other; other = other.previousElementSibling) {
      if (other.tagName === node.tagName) at += 1;
    }
    return `${node.tagName.toLowerCase()}[${at}]`;
  },

  // One that has no box of its own may show what is in it.
  shown: (node) =>
    node.checkVisibility({ visibilityProperty: true }) || getComputedStyle(node).display === "contents",

  // Whether one of the texts in an element is this one.
  leaf(root, wanted) {
    const texts = root ? document.createTreeWalker(root, NodeFilter.SHOW_TEXT) : null;
    while (texts?.nextNode()) if (this.text(texts.currentNode.data) === wanted) return true;
    return false;
  },

  // What each element says that holds this one, until one says more than a row would.
  rows(node) {
    const found = [];
    for (let each = this.above(node); each; each = this.above(each)) {
      found.push(this.said(each, node));
      if (found.at(-1).length >= this.ROW_LETTERS_MAX) break;
    }
    return found;
  },

  // Which of some elements are in the row that is wanted.
  within(elements, wanted) {
    return elements.map((each) => this.anchor(each, wanted).row === wanted.row);
  },

  // The elements without a role or a name that are in the row that is wanted.
  inRow(wanted) {
    const found = [];
    for (const each of this.every()) {
      if (each.localName !== wanted.tag || this.text(each.innerText) !== wanted.text) continue;
      const { row, mark } = this.anchor(each, wanted);
      if (row === wanted.row && mark === wanted.mark) found.push(each);
    }
    return found;
  },

  // Without what can be pressed or filled in, so that a row says the same when that is renamed.
  said(root, node) {
    const words = [];
    const wanted = this.called(node);
    const quiet = /^(SCRIPT|STYLE|TEMPLATE|BUTTON|INPUT|SELECT|TEXTAREA)$/;
    let letters = 0;
    const shown = this.shown(root);
    const walk = (each) => {
      if (letters > this.ROW_LETTERS_MAX) return;
      if (each.nodeType === 3 && each.data.trim()) {
        words.push(each.data);
        letters += each.data.trim().length;
      }
      if (each.nodeType !== 1 || (shown && !this.shown(each))) return;
      if (quiet.test(each.tagName) || (each.tagName === node.tagName && this.called(each) === wanted)) {
        return;
      }
      for (const child of (each.shadowRoot || each).childNodes) walk(child);
    };
    walk(root);
    return this.text(words.join(" ")).slice(0, this.ROW_LETTERS_MAX);
  },

  // Of an element, without what it holds: a field may hold a secret.
  describe(element, wanted) {
    const text = this.text;
    const generic = /^(div|span|label|b|i|u|s|font|center|small|big|g|path|tspan|body|html)$/;
    const tag = element.localName;
    const hasRole = element.hasAttribute("role") || !(generic.test(tag) || tag.includes("-"));
    const short = (from) => (text(from).length > 80 ? "" : text(from));
    const unique = (id) =>
      !/["']/.test(id) && document.querySelectorAll(`[id="${CSS.escape(id)}"]`).length === 1;
    const svg = (node) => node.namespaceURI !== "http://www.w3.org/1999/xhtml";
    let xpath = "";
    let path = "";
    let css = "";
    const inShadow = element.getRootNode() !== document;
    if (inShadow) {
      const parts = [];
      for (let node = element; node && node.nodeType === 1; ) {
        const parent = node.parentNode;
        const host = parent instanceof ShadowRoot ? parent.host : null;
        parts.unshift(this.step(node).replace("[", ":nth-of-type(").replace("]", ")"));
        if (host) parts.unshift(">>");
        node = host || parent;
      }
      css = parts.join(" > ").replaceAll(" > >> > ", " ");
    } else {
      const steps = [];
      for (let node = element; node && node.nodeType === 1; node = node.parentNode) {
        if (!path && node.id && unique(node.id)) {
          path = [`//*[@id="${node.id}"]`, ...steps].join("/");
        }
        steps.unshift(svg(node) ? `*[local-name()="${node.localName}"]` : this.step(node));
      }
      xpath = steps.some((step) => step.startsWith("*")) ? "" : `/${steps.join("/")}`;
    }
    const labels = element.labels ? [...element.labels] : [];
    const holds = ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
    return {
      hasRole,
      seen: element.checkVisibility({ visibilityProperty: true }),
      look: hasRole ? this.look(element) : "",
      ...this.anchor(element, wanted),
      xpath,
      path,
      css,
      tag: element.tagName.toLowerCase(),
      id: element.id || "",
      label: labels.length === 1 ? short(this.ofLabel(labels[0])) : "",
      placeholder: short(element.getAttribute("placeholder")),
      testId: text(element.getAttribute("data-testid")),
      text: holds || element.isContentEditable ? "" : short(element.innerText),
    };
  },

  LOOK_LETTERS_MAX: 2000,

  // All that its role and name come of: where it is the same again, so are they. Empty where it is
  // too much. Without what a field holds.
  look(node) {
    const holds = ["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName);
    const pressed = ["submit", "button", "reset", "image"].includes(node.type);
    const skipped = (name) =>
      ["class", "style", "id"].includes(name) || (name === "value" && !pressed) ||
      name.startsWith("data-");
    const about = [...node.attributes].map(({ name, value }) => (skipped(name) ? "" : `${name}=${value}`));
    const ids = (node.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
    const named = ids.map((id) => node.getRootNode().getElementById?.(id)?.innerHTML ?? "");
    const labels = [...(node.labels || [])].map((each) => each.innerText);
    const within = holds ? "" : node.innerHTML;
    let hidden = !node.checkVisibility({ visibilityProperty: true });
    for (let each = node; each && !hidden; each = this.above(each)) {
      hidden = each.getAttribute("aria-hidden") === "true" || each.inert === true;
    }
    const all = [node.localName, ...about, ...named, ...labels, within].join("\n");
    return hidden || all.length > this.LOOK_LETTERS_MAX ? "" : all;
  },

  // Whether another element may have this one's role and name.
  rivals(node, name) {
    const kinds = "button,input,a,select,textarea,summary,option,[role]";
    if (!node.matches(kinds)) return true;
    const texts = (other) => [
      ...["aria-label", "alt", "title", "placeholder", "value"].map((each) => other.getAttribute(each)),
      ...[...(other.labels || [])].map((each) => each.innerText),
      other.hasAttribute("aria-labelledby") ? name : "",
      other.textContent,
    ];
    const walk = (root) => {
      for (const other of root.querySelectorAll("*")) {
        if (other.shadowRoot && walk(other.shadowRoot)) return true;
        if (other === node || !other.matches(kinds)) continue;
        if (texts(other).some((each) => each && this.text(each) === name)) return true;
      }
      return false;
    };
    return walk(document);
  },

  // The one element of an xpath, watched from now on for what an action changes.
  only([xpath, name, wanted]) {
    const type = XPathResult.ORDERED_NODE_SNAPSHOT_TYPE;
    const result = document.evaluate(xpath, document, null, type, null);
    const found = [];
    for (let at = 0; at < result.snapshotLength; at += 1) {
      if (result.snapshotItem(at).nodeType === 1) found.push(result.snapshotItem(at));
    }
    if (found.length !== 1) return { matches: found.length };
    const [element] = found;
    this.watch(element);
    return { matches: 1, rivals: this.rivals(element, name), ...this.describe(element, wanted) };
  },

  // Counts as changed what changes after the first event that is of the action.
  watch(element) {
    globalThis.__hansardWatch?.end();
    let begun = false;
    let heard = () => {};
    const events = ["pointerdown", "pointermove", "keydown", "beforeinput", "input", "change", "click"];
    const watch = { element, changed: false };
    const observer = new MutationObserver(() => {
      if (!begun) return;
      watch.changed = true;
      heard();
    });
    const act = ({ type }) => {
      if (!begun) observer.takeRecords();
      begun = true;
      if (type !== "input" && type !== "change") return;
      watch.changed = true;
      heard();
    };
    watch.until = (ms) =>
      new Promise((resolve) => {
        if (watch.changed) resolve();
        heard = resolve;
        setTimeout(resolve, ms);
      });
    watch.end = () => {
      observer.disconnect();
      for (const each of events) removeEventListener(each, act, true);
      delete globalThis.__hansardWatch;
    };
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    const walk = (root) => {
      observer.observe(root, all);
      for (const each of root.querySelectorAll("*")) if (each.shadowRoot) walk(each.shadowRoot);
    };
    walk(document);
    for (const each of events) addEventListener(each, act, true);
    globalThis.__hansardWatch = watch;
  },

  // What came of the action: `null` on another page than the one that was watched.
  async after(ms) {
    const watch = globalThis.__hansardWatch;
    if (!watch) return null;
    await watch.until(ms);
    const { element, changed } = watch;
    watch.end();
    return { changed, empty: element.isConnected ? element.value === "" : null };
  },

  // What could be meant, for a model: through open shadow roots, in the order of the page.
  candidates(most, characters) {
    const found = [];
    const wanted =
      "a,button,input,select,textarea,summary,label,option,[role],[onclick],[tabindex],[contenteditable]";
    const seen = (node) => {
      const box = node.getBoundingClientRect();
      return box.width > 0 && box.height > 0 && getComputedStyle(node).visibility !== "hidden";
    };
    const walk = (root) => {
      for (const node of root.querySelectorAll("*")) {
        if (found.length >= most) return;
        const leaf = !node.children.length && (node.textContent || "").trim();
        if ((node.matches(wanted) || leaf) && seen(node)) found.push(node);
        if (node.shadowRoot) walk(node.shadowRoot);
      }
    };
    walk(document);
    globalThis.__hansardCandidates = found;
    return found.map((node, at) => {
      const about = ["type", "name", "placeholder", "aria-label", "title", "role", "id"]
        .filter((each) => node.getAttribute(each))
        .map((each) => `${each}=${JSON.stringify(node.getAttribute(each).slice(0, Math.max(60, characters - 20)))}`);
      const holds = ["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName);
      const says = holds ? "" : (node.innerText || "").replace(/\s+/g, " ").trim().slice(0, characters);
      return `${at} <${[node.tagName.toLowerCase(), ...about].join(" ")}> ${says}`.trim();
    });
  },
})
