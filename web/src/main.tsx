// The served page.

import { render } from "preact";
import { HttpSource } from "./app/http";
import { go, listen, place } from "./app/place";
import { SourceContext } from "./app/reads";
import { Shell } from "./app/served";
import { startTheme } from "./app/theme";
import "./styles/ask.css";
import "uplot/dist/uPlot.min.css";

startTheme();
listen();
if (place.value.path === "/") go("/runs", {}, { replace: true });
const source = new HttpSource(place.value.workspace);
render(<SourceContext.Provider value={source}><Shell source={source} /></SourceContext.Provider>, document.getElementById("app")!);
