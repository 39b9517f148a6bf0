// Prompts: the list; the versions of one with their results, the moves of its aliases, and differences.

import { address, query, setQuery } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Facts, Rec, Select, Shown, Time } from "../../ui/pieces";
import { plural } from "../../ui/text";
import type { ViewProps } from "..";
import { Page, RunLink, Table, Unified, Value } from "./parts";

const path = (name: string): string => `/prompts/${encodeURIComponent(name)}`;

export default function PromptsView() {
  const read = useRead<{ prompts: any[] }>("/prompts");
  return (
    <Page title="Prompts" heading="Prompts" note="Versions never change. Aliases move, and keep their history.">
      <Shown read={read}>{(data) => (
        <Table label="prompts" rows={data.prompts} rowKey={(row) => row.prompt} empty="No prompt is on record." columns={[
          { name: "prompt", cell: (row) => <a href={address(path(row.prompt))}><Rec text={row.prompt} /></a> },
          { name: "versions", cell: (row) => row.versions, right: true },
          { name: "aliases", cell: (row) => <span class="chips">{Object.entries(row.aliases).map(([alias, version]) => <Chip key={alias}>{alias} → {String(version)}</Chip>)}</span> },
          { name: "retired", cell: (row) => row.retired || "", right: true },
          { name: "changed", cell: (row) => <Time iso={row.changed_at} /> },
        ]} />
      )}</Shown>
    </Page>
  );
}

export function PromptView({ params }: ViewProps) {
  const { name } = params;
  const read = useRead<any>(path(name));
  return (
    <Page title={`Prompt ${name}`} heading={<>Prompt <Rec text={name} /></>} note={<a href={address("/prompts")}>All prompts</a>}>
      <Shown read={read}>{(data) => {
        const lines: any[] = data.lines ?? [...data.versions, ...data.moves];
        return <Versions name={name} versions={lines.filter((each) => "parents" in each)} moves={lines.filter((each) => "alias" in each && !("parents" in each))} />;
      }}</Shown>
    </Page>
  );
}

function Versions({ name, versions, moves }: { name: string; versions: any[]; moves: any[] }) {
  const newest = versions.at(-1)?.version ?? 1;
  const chosen = Number(query.value.version ?? newest);
  const before = query.value.before ?? String(versions.find((each) => each.version === chosen)?.parent_version ?? "");
  const metrics = [...new Set(versions.flatMap((each) => Object.keys(each.metrics)))];
  return (
    <>
      <Table label="versions" rows={[...versions].reverse()} rowKey={(row) => row.version} columns={[
        { name: "version", cell: (row) => <button type="button" class="link" aria-current={row.version === chosen ? "true" : undefined} onClick={() => setQuery({ version: row.version, before: "" })}>{row.version}</button> },
        { name: "aliases", cell: (row) => <span class="chips">{row.aliases.map((alias: string) => <Chip key={alias} class="here">{alias}</Chip>)}{row.retired !== null && <Chip>retired</Chip>}</span> },
        { name: "because", cell: (row) => <Rec text={row.because || row.feedback_applied.join(", ")} /> },
        { name: "from", cell: (row) => row.parents.join(", "), right: true },
        { name: "runs", cell: (row) => row.runs.toLocaleString("en-US"), right: true },
        ...metrics.map((metric) => ({ name: metric, cell: (row: any) => (row.metrics[metric] === undefined ? "" : String(Number(row.metrics[metric].toPrecision(4)))), right: true })),
        { name: "by", cell: (row) => <Rec text={row.by} /> },
        { name: "added", cell: (row) => <Time iso={row.timestamp} /> },
      ]} />
      <Version name={name} version={chosen} before={before === "-" ? "" : before} versions={versions} />
      <h2>{plural(moves.length, "move")} of aliases</h2>
      <Table label="moves of aliases" rows={[...moves].reverse()} empty="No alias names a version yet." columns={[
        { name: "alias", cell: (row) => <Rec text={row.alias} /> },
        { name: "to", cell: (row) => (row.version ?? row.to ?? "removed"), right: true },
        { name: "because", cell: (row) => row.because && <Rec text={row.because} /> },
        { name: "by", cell: (row) => row.by && <Rec text={row.by} /> },
        { name: "time", cell: (row) => <Time iso={row.at} /> },
      ]} />
    </>
  );
}

function Version({ name, version, before, versions }: { name: string; version: number; before: string; versions: any[] }) {
  const shown = useRead<any>(`${path(name)}/${version}`);
  const diff = useRead<any>(before ? `${path(name)}/${encodeURIComponent(before)}/diff/${version}` : null);
  const others = versions.filter((each) => each.version !== version).map((each): [string, string] => [String(each.version), `version ${each.version}`]);
  return (
    <section class="card" aria-label={`version ${version}`}>
      <header>
        <strong>Version {version}</strong>
        <Select class="field inline" label="beside" value={before} options={[["", "no other"], ...others]} set={(other) => setQuery({ before: other || "-" })} />
      </header>
      <Shown read={shown}>{(data) => (
        <>
          <Facts pairs={[
            ["model", data.prompt.model], ["parameters", Object.keys(data.prompt.parameters).length > 0 && <Value value={data.prompt.parameters} />], ["variables", data.variables.join(", ")],
            ["feedback", data.feedback.length > 0 && <ul class="plain">{data.feedback.map((each: any, index: number) => <li key={index}><Rec text={each.text} />{each.rating !== null && ` (${each.rating})`}{each.run && <> in <RunLink run={each.run} /></>}</li>)}</ul>],
          ]} />
          <pre class="whole" tabIndex={0} aria-label="the text">{data.prompt.text ?? "Its source does not state the text."}</pre>
        </>
      )}</Shown>
      {before && <><h2>From version {before} to {version}</h2><Shown read={diff}>{(data) => <Unified text={data.diff.join("\n")} />}</Shown></>}
    </section>
  );
}
