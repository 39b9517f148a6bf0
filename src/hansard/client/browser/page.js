// What is asked of a page: where an element stands, and by what else it is found.
({
  ROW_LETTERS_MAX: 80,

  text: (from) => (from || "").replace(/\s+/g, " ").trim(),

  // Through open shadow roots.
  above: (node) => node.assignedSlot || node.parentElement || node.getRootNode().host || null,

  called(node) {
    const said = [node.getAttribute("aria-label"), node.getAttribute("role"), node.textContent];
    return [node.tagName, ...said.map(this.text)].join("|");
  },

  // The others that are called the same.
  alike(node) {
    const found = [];
    const wanted = this.called(node);
    const walk = (root) => {
      for (const other of root.querySelectorAll("*")) {
        if (other.shadowRoot) walk(other.shadowRoot);
        if (other === node || other.tagName !== node.tagName) continue;
        if (this.called(other) === wanted) found.push(other);
      }
    };
    walk(document);
    return found;
  },

  // Of one of several that are called the same, what its row says: the largest element that holds
  // none of the others.
  row(node) {
    const path = [];
    for (let each = node; each; each = this.above(each)) path.push(each);
    let shared = path.length;
    for (const other of this.alike(node)) {
      let each = other;
      while (each && !path.includes(each)) each = this.above(each);
      if (each) shared = Math.min(shared, path.indexOf(each));
    }
    return 1 < shared && shared < path.length ? this.said(path[shared - 1], node) : "";
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

  rowsOf(elements) {
    return elements.map((each) => this.rows(each));
  },

  // Without what can be pressed or filled in, so that a row says the same when that is renamed.
  said(root, node) {
    const words = [];
    const wanted = this.called(node);
    const quiet = /^(SCRIPT|STYLE|TEMPLATE|BUTTON|INPUT|SELECT|TEXTAREA)$/;
    let letters = 0;
    const walk = (each) => {
      if (letters > this.ROW_LETTERS_MAX) return;
      if (each.nodeType === 3 && each.data.trim()) {
        words.push(each.data);
        letters += each.data.trim().length;
      }
      if (each.nodeType !== 1) return;
      if (quiet.test(each.tagName) || (each.tagName === node.tagName && this.called(each) === wanted)) {
        return;
      }
      for (const child of (each.shadowRoot || each).childNodes) walk(child);
    };
    walk(root);
    return this.text(words.join(" ")).slice(0, this.ROW_LETTERS_MAX);
  },

  // Of an element, without what it holds: a field may hold a secret.
  describe(element) {
    const text = this.text;
    const generic = /^(div|span|label|b|i|u|s|font|center|small|big|g|path|tspan|body|html)$/;
    const tag = element.localName;
    const hasRole = element.hasAttribute("role") || !(generic.test(tag) || tag.includes("-"));
    const short = (from) => (text(from).length > 80 ? "" : text(from));
    const place = (node) => {
      let at = 1;
      for (let other = node.previousElementSibling; other; other = other.previousElementSibling) {
        if (other.tagName === node.tagName) at += 1;
      }
      return `${node.tagName.toLowerCase()}[${at}]`;
    };
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
        let at = 1;
        for (let o = node.previousElementSibling; o; o = o.previousElementSibling) {
          if (o.tagName === node.tagName) at += 1;
        }
        parts.unshift(`${node.tagName.toLowerCase()}:nth-of-type(${at})`);
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
        steps.unshift(svg(node) ? `*[local-name()="${node.localName}"]` : place(node));
      }
      xpath = steps.some((step) => step.startsWith("*")) ? "" : `/${steps.join("/")}`;
    }
    const labels = element.labels ? [...element.labels] : [];
    const holds = ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
    return {
      hasRole,
      seen: element.checkVisibility({ visibilityProperty: true }),
      look: hasRole ? this.look(element) : "",
      row: hasRole ? this.row(element) : "",
      rows: hasRole ? this.rows(element) : [],
      xpath,
      path,
      css,
      tag: element.tagName.toLowerCase(),
      id: element.id || "",
      label: labels.length === 1 ? short(labels[0].innerText) : "",
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
  only([xpath, name]) {
    const type = XPathResult.ORDERED_NODE_SNAPSHOT_TYPE;
    const result = document.evaluate(xpath, document, null, type, null);
    const found = [];
    for (let at = 0; at < result.snapshotLength; at += 1) {
      if (result.snapshotItem(at).nodeType === 1) found.push(result.snapshotItem(at));
    }
    if (found.length !== 1) return { matches: found.length };
    const [element] = found;
    this.watch(element);
    return { matches: 1, rivals: this.rivals(element, name), ...this.describe(element) };
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
