// Memory: the files of all spaces at a point; one file with its versions, differences and authors by line.

import { address, query, setQuery } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Rec, Select, Shown, Tabs, Time } from "../../ui/pieces";
import { count, plural } from "../../ui/text";
import { Field, Page, type Lines, RunLink, Table, Unified } from "./parts";

export default function MemoryView() {
  const { space, path, at } = query.value;
  return (
    <Page title={path ? `${space}/${path}` : "Memory"} heading={path ? <><Rec text={space} /> / <Rec text={path} /></> : "Memory"} note={path ? <a href={address("/memory", { at })}>All files</a> : "Files that outlive runs. Each change names its author, its reason and its sources."} fields={
      <>
        {!path && <Field name="space" label="Space" placeholder="all: agent/NAME, user/NAME, org" />}
        <Field name="at" label="At" placeholder="now; or @3, a time" />
      </>
    }>
      {path && space ? <File space={space} path={path} at={at} /> : <Files space={space} at={at} />}
    </Page>
  );
}

function Files({ space, at }: { space?: string; at?: string }) {
  const read = useRead<{ files: any[] }>("/memory", { space, at });
  return (
    <Shown read={read}>{(data) => (
      <>
        <Table label="files" rows={data.files} rowKey={(row) => `${row.space} ${row.path}`} empty={space ? `The space ${space} has no file${at ? " at this point" : ""}.` : "No space has a file."} columns={[
          { name: "space", cell: (row) => <Rec text={row.space} /> },
          { name: "path", cell: (row) => <a class="mono" href={address("/memory", { space: row.space, path: row.path, at })}><Rec text={row.path} /></a> },
          { name: "kind", cell: (row) => row.kind },
          { name: "characters", cell: (row) => count(row.size), right: true },
          { name: "version", cell: (row) => row.version, right: true },
          { name: "author", cell: (row) => <Rec text={row.author} /> },
          { name: "label", cell: (row) => row.label && <Chip>{row.label}</Chip> },
        ]} />
      </>
    )}</Shown>
  );
}

function File({ space, path, at }: { space: string; path: string; at?: string }) {
  const read = useRead<Lines>("/memory/file", { space, path, at });
  const view = query.value.view ?? "text";
  return (
    <Shown read={read}>{(data) => {
      const [file, ...versions] = data.lines;
      return (
        <>
          <p class="dim">Version {file.version} by <Rec text={file.author} />, <Time iso={file.changed_at} />{file.label && <> · <Chip>{file.label}</Chip></>}</p>
          <Tabs label="What of the file" prefix="file" chosen={view} choose={(id) => setQuery({ view: id })} tabs={[{ id: "text", label: "Text" }, { id: "lines", label: "By line" }, { id: "diff", label: "Difference" }]} />
          <div role="tabpanel" id={view} aria-labelledby={`file-${view}`}>
            {view === "text" ? <pre class="whole" tabIndex={0} aria-label="the text">{file.binary ? `A binary file of ${count(file.binary)} bytes.` : file.text}</pre> : view === "lines" ? <Blame space={space} path={path} at={at} /> : <Difference space={space} path={path} versions={versions} />}
          </div>
          <h2>{plural(versions.length, "version")}</h2>
          <Table label="versions" rows={[...versions].reverse()} rowKey={(row) => row.event} columns={[
            { name: "version", cell: (row) => <button type="button" class="link" aria-current={`@${row.version}` === at ? "true" : undefined} onClick={() => setQuery({ at: `@${row.version}` })}>{row.version}</button> },
            { name: "change", cell: (row) => row.op },
            { name: "because", cell: (row) => <Rec text={row.because} /> },
            { name: "author", cell: (row) => <Rec text={row.author} /> },
            { name: "from", cell: (row) => <Sources sources={row.sources} /> },
            { name: "time", cell: (row) => <Time iso={row.at} /> },
          ]} />
        </>
      );
    }}</Shown>
  );
}

function Sources({ sources }: { sources: any[] }) {
  return <>{(sources ?? []).slice(0, 3).map((each, index) => (each.run ? <RunLink key={index} run={each.run} at={each.event} /> : <Rec key={index} text={each.kind ?? String(each)} />))}{sources?.length > 3 && ` and ${sources.length - 3} more`}</>;
}

function Blame(of: { space: string; path: string; at?: string }) {
  const read = useRead<Lines>("/memory/blame", of);
  return <Shown read={read}>{(data) => <Table label="lines" rows={data.lines} rowKey={(row) => row.line} empty="The file has no lines." columns={[
    { name: "", cell: (row) => <span class="dim mono">{row.line}</span>, right: true },
    { name: "text", cell: (row) => <span class="mono"><Rec text={row.text} /></span> },
    { name: "version", cell: (row) => row.version, right: true },
    { name: "author", cell: (row) => <Rec text={row.author} /> },
    { name: "because", cell: (row) => <Rec text={row.because} /> },
  ]} />}</Shown>;
}

function Difference({ space, path, versions }: { space: string; path: string; versions: any[] }) {
  const own = versions.map((each) => String(each.version));
  const after = query.value.to ?? own.at(-1) ?? "";
  const before = query.value.from ?? own.at(-2) ?? String(Math.max(0, Number(own[0] ?? 1) - 1));
  const read = useRead<{ diff: string }>("/memory/diff", { space, path, before: `@${before}`, after: `@${after}` });
  const pick = (name: "from" | "to", value: string) => (
    <Select class="field inline" label={name} value={value} options={[...new Set([value, ...own])].map((each) => [each, `version ${each}`])} set={(version) => setQuery({ [name]: version })} />
  );
  return (
    <>
      <div class="filters">{pick("from", before)}{pick("to", after)}</div>
      <Shown read={read}>{(data) => <Unified text={data.diff} />}</Shown>
    </>
  );
}
