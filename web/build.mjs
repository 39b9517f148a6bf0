// Build the page: `make web`. The result in src/hansard/web/static is committed; equal sources give equal
// bytes, which a test checks. HANSARD_WEB_OUT is another folder for the result.
//
// core-HASH.js is a whole page: with data in the document it shows it (`hansard run html` puts both into
// one file). The served page takes from it what it shares, so that no code is in the result twice.
import * as esbuild from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = process.env.HANSARD_WEB_OUT ?? join(HERE, "../src/hansard/web/static");
const RESULT = ["assets", "index.html"]; // in OUT; other files there are not built
const BYTES_MAX = 700 * 1024; // of all files of the result
const CONTAINED = { "@dagrejs/dagre": ["@dagrejs/graphlib"] }; // packages inside the files of another
const PACKAGES = ["preact", "preact/hooks", "preact/jsx-runtime", "@preact/signals"]; // shared, beside src/

const common = {
  alias: { "@codemirror/language": "./src/views/ask/plain.ts", "@lezer/common": "./src/views/ask/plain.ts" },
  absWorkingDir: HERE,
  bundle: true,
  charset: "utf8",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  minify: true,
  outdir: join(OUT, "assets"),
  target: "es2022",
};

const built = ({ metafile }, end) => Object.keys(metafile.outputs).map((name) => name.split("/").at(-1)).find((name) => name.endsWith(end));

// Names that a module exports.
async function exportsOf(module) {
  const { metafile } = await esbuild.build({ ...common, write: false, entryPoints: { module }, minify: false });
  return Object.values(metafile.outputs).find((facts) => facts.entryPoint).exports;
}

// The licences of the packages in a build, each text once below the copyright lines that it stands for.
function licences(...builds) {
  const paths = builds.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  const found = paths.map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean);
  const names = [...new Set(found.flatMap((name) => [name, ...(CONTAINED[name] ?? [])]))].sort();
  const holders = new Map();
  for (const name of names) {
    const text = readFileSync(join(HERE, "node_modules", name, "LICENSE"), "utf8").replace(/\s+/g, " ").trim();
    const [, holder, terms] = /(Copyright .*?) (Permission is hereby granted.*)/.exec(text) ?? [null, name, text];
    holders.set(terms, [...(holders.get(terms) ?? []), `${name}: ${holder}`]);
  }
  return [...holders].map(([terms, lines]) => `/*!\n${lines.join("\n")}\n\n${terms.replaceAll("*/", "* /")}\n*/`).join("\n");
}

// The page of a file, and its modules by path with the names under which the core exports them.
async function core() {
  const first = await esbuild.build({ ...common, write: false, entryPoints: ["src/file.tsx"] });
  const own = Object.keys(first.metafile.inputs).filter((path) => /^src\/.*\.tsx?$/.test(path) && path !== "src/file.tsx");
  const modules = new Map();
  for (const path of [...own.sort(), ...PACKAGES]) {
    const names = await exportsOf(path.startsWith("src/") ? `./${path}` : path);
    if (names.length) modules.set(path, { name: `m${modules.size}`, names });
  }
  const lines = [...modules].map(([path, { name }]) => `export * as ${name} from "${path.startsWith("src/") ? `./${path}` : path}";`);
  const stdin = { contents: `import "./src/file.tsx";\n${lines.join("\n")}\n`, resolveDir: HERE, sourcefile: "core.ts" };
  const all = await esbuild.build({ ...common, write: false, entryPoints: ["src/main.tsx"] });
  const result = await esbuild.build({ ...common, stdin, banner: { js: licences(first, all) }, entryNames: "core-[hash]" });
  return { modules, script: built(result, ".js"), style: built(result, ".css") };
}

// Take what the core has from there.
const fromCore = ({ modules, script }) => ({
  name: "core",
  setup(build) {
    build.onResolve({ filter: /^core$/ }, () => ({ path: `./${script}`, external: true }));
    build.onResolve({ filter: /./ }, async ({ path, pluginData, ...options }) => {
      if (pluginData === "core" || options.kind === "entry-point") return undefined;
      if (PACKAGES.includes(path)) return { path, namespace: "core" };
      if (!path.startsWith(".") || path.endsWith(".css")) return undefined;
      const { path: whole } = await build.resolve(path, { ...options, pluginData: "core" });
      const name = relative(HERE, whole);
      return modules.has(name) ? { path: name, namespace: "core" } : undefined;
    });
    build.onLoad({ filter: /./, namespace: "core" }, ({ path }) => {
      const { name, names } = modules.get(path);
      const lines = names.map((each) => (each === "default" ? `export default ${name}.default;` : `export const ${each} = ${name}.${each};`));
      return { contents: `import { ${name} } from "core";\n${lines.join("\n")}`, resolveDir: HERE };
    });
  },
});

// The served application, in parts that are loaded when a view needs them.
async function application(shared) {
  const result = await esbuild.build({ ...common, entryPoints: { main: "src/main.tsx" }, splitting: true, plugins: [fromCore(shared)] });
  const main = Object.entries(result.metafile.outputs).find(([, facts]) => facts.entryPoint === "src/main.tsx")[0].split("/").at(-1);
  const page = readFileSync(join(HERE, "src/index.html"), "utf8");
  const names = { core: shared.script, style: shared.style, more: built(result, ".css"), script: main };
  writeFileSync(join(OUT, "index.html"), page.replace(/\{\{(\w+)\}\}/g, (_, name) => names[name]));
}

function bytesOf(path) {
  if (!existsSync(path)) return 0;
  if (!statSync(path).isDirectory()) return statSync(path).size;
  return readdirSync(path).reduce((sum, name) => sum + bytesOf(join(path, name)), 0);
}

for (const name of RESULT) rmSync(join(OUT, name), { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
await application(await core());
const bytes = RESULT.reduce((sum, name) => sum + bytesOf(join(OUT, name)), 0);
console.log(`${OUT}: ${(bytes / 1024).toFixed(0)} KiB`);
if (bytes > BYTES_MAX) {
  console.error(`the page has ${bytes} bytes, and at most ${BYTES_MAX} are allowed: remove a part, or load less of a package`);
  process.exitCode = 1;
}
