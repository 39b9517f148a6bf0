// The served page.

import { render } from "preact";
import { HttpSource, whoAmI, type Me } from "./app/http";
import { go, listen, place } from "./app/place";
import { asProblem, SourceContext } from "./app/reads";
import { Shell } from "./app/served";
import { isOperator } from "./app/source";
import { startTheme } from "./app/theme";
import { Failed } from "./ui/pieces";
import { match } from "./views";
import "uplot/dist/uPlot.min.css";
import "./styles/ask.css";

startTheme();
listen();

const app = document.getElementById("app")!;

const refused = (error: unknown) =>
  render(<main id="content" class="view"><Failed problem={asProblem(error)} again={() => location.reload()} /></main>, app);

function show(): void {
  if (place.value.path === "/") go("/runs", {}, { replace: true });
  void match(place.value.path)?.view.load().catch(() => undefined); // on its way while the server states who asks
  const me = whoAmI();
  const source = new HttpSource(place.value.workspace, me);
  const draw = () => render(<SourceContext.Provider value={source}><Shell source={source} /></SourceContext.Provider>, app);
  me.then(({ operator }) => { isOperator.value = operator; draw(); }, refused);
}

// Without a workspace in the address: the only one, or a choice.
function choose({ workspaces }: Me): void {
  if (workspaces.length === 1) return location.replace(`/ws/${encodeURIComponent(workspaces[0])}/runs`);
  render(
    <main id="content" class="view">
      <h1>Workspaces</h1>
      {workspaces.length ? <ul class="plain">{workspaces.map((name) => <li key={name}><a href={`/ws/${encodeURIComponent(name)}/runs`}>{name}</a></li>)}</ul> : <p class="note">This record has no workspace yet. `hansard demo` makes one.</p>}
    </main>,
    app,
  );
}

if (place.value.workspace) show();
else whoAmI().then(choose, refused);
