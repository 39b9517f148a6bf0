import { render } from "preact";
import { useReducer, useRef } from "preact/hooks";

function reduce(tasks, { type, ...action }) {
  switch (type) {
    case "added":
      return [...tasks, { title: action.title, done: false }];
    case "ticked":
      return tasks.map((each) => (each === action.task ? { ...each, done: action.done } : each));
    case "removed":
      return tasks.filter((each) => each !== action.task);
    default:
      throw new Error(type);
  }
}

function Card() {
  const field = useRef(null);
  const [tasks, tell] = useReducer((before, action) => {
    const after = reduce(before, action);
    localStorage.setItem("tasks", JSON.stringify(after));
    return after;
  }, JSON.parse(localStorage.getItem("tasks") ?? "[]"));

  const add = () => {
    const title = field.current.value.trim();
    field.current.value = "";
    if (title) tell({ type: "added", title });
  };

  return (
    <div class="card">
      <div class="card-head">
        <h3>Today</h3>
        <small aria-live="polite" role="status">{tasks.filter((each) => !each.done).length}</small>
      </div>
      <div class="card-body">
        {tasks.length > 0 && (
          <ul class="list-group">
            {tasks.map((task) => (
              <li class="list-group-item">
                <button class="btn-close" title="Remove" onClick={() => tell({ type: "removed", task })}>
                  ✕
                </button>
                <input
                  type="checkbox"
                  aria-label={task.title}
                  checked={task.done}
                  onChange={(e) => tell({ type: "ticked", task, done: e.currentTarget.checked })}
                />
                <span>{task.title}</span>
              </li>
            ))}
          </ul>
        )}
        <div class="input-group">
          <input ref={field} class="form-control" type="text" placeholder="New task" />
          <button class="btn" onClick={add}>Add</button>
        </div>
      </div>
    </div>
  );
}

render(<Card />, document.getElementById("app"));
