// The page of one run with its data inside (`hansard run html`); the served page has no data in it.

import { render } from "preact";
import { inFile, listen } from "./app/place";
import { SourceContext } from "./app/reads";
import { FileShell } from "./app/shell";
import { startTheme } from "./app/theme";
import { InsideSource } from "./run/inside";
import RunView from "./run/view";
import "./styles/base.css";
import "./styles/value.css";
import "./styles/run.css";

function show(data: HTMLElement): void {
  const source = new InsideSource(JSON.parse(data.textContent!));
  startTheme();
  inFile(source.workspace, `/runs/${encodeURIComponent(source.data.run)}`);
  listen();
  // For the browser's console: `hansard.now("/runs/RUN/board", { at: "12.0" })`.
  Object.assign(globalThis, { hansard: source });
  render(
    <SourceContext.Provider value={source}>
      <FileShell><RunView run={source.data.run} /></FileShell>
    </SourceContext.Provider>,
    document.getElementById("app")!,
  );
}

const data = document.getElementById("data");
if (data) show(data);
