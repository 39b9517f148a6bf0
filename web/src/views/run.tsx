// One run, served.

import RunView from "../run/view";
import type { ViewProps } from ".";

export default function Run({ params }: ViewProps) {
  return <RunView run={params.run} />;
}
