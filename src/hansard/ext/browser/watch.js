// What a person does to a page, told as it is done. `page` is page.js, `tell` reports to the program.
(page, tell) => {
  const SECRET = /^(cc-|one-time-code|current-password|new-password)/;
  const CONTROLS =
    "a[href],button,input,select,textarea,summary,label,option,[role],[onclick],[tabindex]";
  const TEXTS = ["text", "search", "url", "tel", "email", "password", "number"];
  const TYPED = [...TEXTS, "date", "time", "month", "week", "datetime-local", "color", "range"];
  const KEYS = /^(Enter|Escape|ArrowUp|ArrowDown|ArrowLeft|ArrowRight|PageUp|PageDown|Home|End|Delete|Backspace|F\d+)$/;
  const EDITS = /^(ArrowLeft|ArrowRight|Home|End|Delete|Backspace)$/;
  const numbers = new WeakMap();
  const passwords = new WeakSet();
  const last = new WeakMap();
  let count = 0;
  let held = null;
  let entered = false;

  const inFact = (event) => event.composedPath()[0];
  const isText = (node) =>
    node.localName === "textarea" || node.isContentEditable ||
    (node.localName === "input" && TEXTS.includes(node.type));
  const isTicked = (node) => node.localName === "input" && ["checkbox", "radio"].includes(node.type);
  const isSecret = (node) => {
    if (node.type === "password") passwords.add(node);
    return passwords.has(node) || SECRET.test(node.autocomplete || "");
  };

  // The control that a person means with what lies on top in it.
  const control = (event) => {
    const path = event.composedPath().filter((node) => node.nodeType === 1);
    const found = path.find((node) => node.matches(CONTROLS) || node.isContentEditable);
    return found || path[0];
  };

  const described = (node) => {
    if (!numbers.has(node)) numbers.set(node, (count += 1));
    const name = page.text(node.computedName);
    const told = page.describe(node);
    return {
      ...told,
      number: numbers.get(node),
      role: told.hasRole ? node.computedRole || "" : "",
      name: told.hasRole ? name : "",
      alone: Boolean(told.hasRole && name && !page.rivals(node, name)),
    };
  };

  // As it was before the page heard of it.
  const before = (node) => (held && held.node === node ? held.told : described(node));

  const tellOf = (node, method, more) => tell({ method, element: before(node), ...more });

  const secretName = (node) =>
    page.text(node.name || node.id || "password").replace(/[^A-Za-z0-9_]+/g, "_").slice(0, 60) || "password";

  const filled = (node, done) => {
    const value = node.isContentEditable ? node.innerText : node.value;
    if (done && last.get(node) === value) return tell({ method: "left", element: {} });
    last.set(node, value);
    const said = isSecret(node) ? { secret: secretName(node) } : { value };
    return tellOf(node, "fill", { ...said, done });
  };

  // Also one that is shown as a text before it is filled in.
  const findPasswords = (event) => {
    const root = inFact(event).getRootNode?.() ?? document;
    root.querySelectorAll?.("input[type=password]").forEach(isSecret);
  };

  const on = (type, heard) =>
    addEventListener(type, (event) => { if (event.isTrusted) heard(event); }, true);

  on("pointerdown", (event) => {
    findPasswords(event);
    const node = control(event);
    held = node ? { node, told: described(node) } : null;
  });
  on("focusin", (event) => {
    const node = inFact(event);
    findPasswords(event);
    if (!held || held.node !== node) held = node.nodeType === 1 ? { node, told: described(node) } : null;
  });
  on("click", (event) => {
    const node = control(event);
    if (!node || event.button !== 0 || event.detail > 1) return;
    if (entered && event.detail === 0) return;
    if (isTicked(node) || ["select", "option"].includes(node.localName)) return;
    if (isText(node) && !node.readOnly && !node.disabled) return;
    if (node.localName === "input" && TYPED.includes(node.type) && !node.readOnly) return;
    if (node.localName === "input" && node.type === "file") return;
    if (node.localName === "label" && node.control) return;
    tellOf(node, "click");
  });
  on("dblclick", (event) => {
    const node = control(event);
    if (node && !isText(node)) tellOf(node, "dblclick");
  });
  on("input", (event) => {
    const node = inFact(event);
    const typed = node.localName === "input" && TYPED.includes(node.type);
    if (typed || isText(node)) filled(node, false);
  });
  on("change", (event) => {
    const node = inFact(event);
    if (node.localName === "select") {
      const chosen = [...node.selectedOptions];
      if (chosen.length !== 1) return tellOf(node, "several");
      const text = page.text(chosen[0].label);
      const alone = [...node.options].filter((each) => page.text(each.label) === text).length === 1;
      return tellOf(node, "selectOption", { value: text && alone ? text : chosen[0].value });
    }
    if (isTicked(node)) return tellOf(node, node.checked ? "check" : "uncheck");
    if (node.type === "file") return tellOf(node, "file");
    if (node.localName === "textarea" || TYPED.includes(node.type)) filled(node, true);
    return undefined;
  });
  on("keydown", (event) => {
    const node = inFact(event);
    if (node.nodeType !== 1 || event.isComposing) return;
    const chord = event.ctrlKey || event.metaKey || event.altKey;
    const plain = chord ? event.key.length === 1 && !event.getModifierState("AltGraph") : false;
    if (!KEYS.test(event.key) && !plain) return;
    if (isText(node) && (EDITS.test(event.key) || (plain && /^[acvxyz]$/i.test(event.key)))) return;
    if (node.localName === "textarea" && event.key === "Enter" && !chord) return;
    if (node.isContentEditable && event.key === "Enter" && !chord) return;
    if (event.key === "Enter" && node.matches("a[href],button,summary,select")) return;
    if (node.localName === "select" || (isTicked(node) && event.key !== "Enter")) return;
    if (event.key === "Enter") {
      entered = true;
      setTimeout(() => { entered = false; });
    }
    const held = [
      event.ctrlKey && "Control", event.altKey && "Alt", event.metaKey && "Meta",
      event.shiftKey && "Shift",
    ];
    tellOf(node, "press", { value: [...held.filter(Boolean), event.key].join("+") });
  });
}
