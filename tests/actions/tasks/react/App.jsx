import { useEffect, useId, useState } from "react";

function useStored(key) {
  const [value, setValue] = useState(() => JSON.parse(localStorage.getItem(key) ?? "[]"));
  useEffect(() => localStorage.setItem(key, JSON.stringify(value)), [key, value]);
  return [value, setValue];
}

function NewTodo({ onCreate }) {
  const [draft, setDraft] = useState("");

  function submit(event) {
    event.preventDefault();
    if (draft.trim()) onCreate(draft.trim());
    setDraft("");
  }

  return (
    <form className="new-todo" onSubmit={submit}>
      <input
        className="new-todo__input"
        placeholder="What needs to be done?"
        value={draft}
        onChange={(event) => setDraft(event.target.value)}
      />
      <button type="submit" className="new-todo__submit">Add todo</button>
    </form>
  );
}

function Todo({ todo, onToggle, onDelete }) {
  const id = useId();
  return (
    <li className={todo.done ? "todo todo--completed" : "todo"}>
      <div className="todo__view">
        <input id={id} className="toggle" type="checkbox" checked={todo.done} onChange={onToggle} />
        <label htmlFor={id}>{todo.title}</label>
        <button className="destroy" aria-label={`Delete ${todo.title}`} onClick={onDelete}>×</button>
      </div>
    </li>
  );
}

export function App() {
  const [todos, setTodos] = useStored("tasks");
  const left = todos.filter((todo) => !todo.done).length;
  const toggled = (todo) => ({ ...todo, done: !todo.done });
  return (
    <section className="todoapp">
      <header className="header">
        <h1>todos</h1>
        <NewTodo onCreate={(title) => setTodos([...todos, { title, done: false }])} />
      </header>
      <ul className="todo-list">
        {todos.map((todo, at) => (
          <Todo
            key={at}
            todo={todo}
            onToggle={() => setTodos(todos.map((each) => (each === todo ? toggled(each) : each)))}
            onDelete={() => setTodos(todos.filter((each) => each !== todo))}
          />
        ))}
      </ul>
      <footer className="footer">
        <span className="todo-count" role="status">
          <strong>{left}</strong> {left === 1 ? "item" : "items"} left
        </span>
      </footer>
    </section>
  );
}
