// What is asked of a page: where an element stands, and by what else it is found.
({
  // Of an element, without what it holds: a field may hold a secret.
  describe(element) {
    const text = (from) => (from || "").replace(/\s+/g, " ").trim();
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
    const generic = /^(div|span|label|b|i|u|s|font|center|small|big|g|path|tspan|body|html)$/;
    const tag = element.localName;
    const hasRole = element.hasAttribute("role") || !(generic.test(tag) || tag.includes("-"));
    return {
      hasRole,
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

  // What could be meant, for a model: through open shadow roots, in the order of the page.
  candidates(most) {
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
        .map((each) => `${each}=${JSON.stringify(node.getAttribute(each).slice(0, 60))}`);
      const holds = ["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName);
      const says = holds ? "" : (node.innerText || "").replace(/\s+/g, " ").trim().slice(0, 80);
      return `${at} <${[node.tagName.toLowerCase(), ...about].join(" ")}> ${says}`.trim();
    });
  },
})
