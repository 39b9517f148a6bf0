import { LitElement, css, html } from "lit";

class TaskItem extends LitElement {
  static properties = { heading: {}, done: { type: Boolean, reflect: true } };
  static styles = css`:host { display: list-item } :host([done]) { opacity: 0.5 }`;

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
  }

  render() {
    return html`
      <label>
        <input
          type="checkbox"
          .checked=${this.done}
          @change=${(event) => this.#tell("task-ticked", event.target.checked)}
        />
        ${this.heading}
      </label>
      <button part="remove" @click=${() => this.#tell("task-removed")}>Remove</button>
    `;
  }
}

class TaskApp extends LitElement {
  static properties = { tasks: { state: true } };

  constructor() {
    super();
    this.tasks = JSON.parse(localStorage.getItem("tasks") ?? "[]");
  }

  updated() {
    localStorage.setItem("tasks", JSON.stringify(this.tasks));
  }

  #add() {
    const field = this.renderRoot.querySelector("#field");
    const title = field.value.trim();
    field.value = "";
    if (title) this.tasks = [...this.tasks, { title, done: false }];
  }

  #tick(at, done) {
    this.tasks = this.tasks.map((task, other) => (other === at ? { ...task, done } : task));
  }

  render() {
    const left = this.tasks.filter((task) => !task.done).length;
    return html`
      <header><slot>Tasks</slot></header>
      <div class="toolbar">
        <label for="field">New task</label>
        <input id="field" type="text" />
        <button @click=${this.#add}>+ Add</button>
      </div>
      <div role="list">
        ${this.tasks.map(
          (task, at) => html`
            <task-item
              role="listitem"
              .heading=${task.title}
              .done=${task.done}
              @task-ticked=${(event) => this.#tick(at, event.detail)}
              @task-removed=${() => {
                this.tasks = this.tasks.filter((_, other) => other !== at);
              }}
            ></task-item>
          `,
        )}
      </div>
      <div role="status">${left} left</div>
    `;
  }
}

customElements.define("task-item", TaskItem);
customElements.define("task-app", TaskApp);
