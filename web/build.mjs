// Build the page: `make web`. The result in src/hansard/web/static is committed; equal sources give equal
// bytes, which a test checks. HANSARD_WEB_OUT is another folder for the result.
import * as esbuild from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = process.env.HANSARD_WEB_OUT ?? join(HERE, "../src/hansard/web/static");
const RESULT = ["assets", "index.html", "file.js", "file.css"]; // in OUT; other files there are not built
const BYTES_MAX = 700 * 1024; // of all files of the result

const common = {
  absWorkingDir: HERE,
  bundle: true,
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  minify: true,
  target: "es2022",
};

// The served application, in parts that are loaded when a view needs them.
async function application() {
  const result = await esbuild.build({
    ...common,
    entryPoints: { main: "src/main.tsx" },
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    format: "esm",
    metafile: true,
    outdir: join(OUT, "assets"),
    splitting: true,
  });
  const names = Object.entries(result.metafile.outputs).filter(([, facts]) => facts.entryPoint === "src/main.tsx");
  const script = names.map(([name]) => name.split("/").at(-1)).find((name) => name.endsWith(".js"));
  const style = Object.keys(result.metafile.outputs).map((name) => name.split("/").at(-1)).find((name) => /^main-.*\.css$/.test(name));
  const page = readFileSync(join(HERE, "src/index.html"), "utf8");
  writeFileSync(join(OUT, "index.html"), page.replace("{{style}}", style).replace("{{script}}", script));
}

// The script and the style of the page that holds its data (`hansard run html`): one file each.
async function file() {
  await esbuild.build({
    ...common,
    entryPoints: { file: "src/file.tsx" },
    format: "iife",
    outdir: OUT,
  });
}

function bytesOf(path) {
  if (!existsSync(path)) return 0;
  if (!statSync(path).isDirectory()) return statSync(path).size;
  return readdirSync(path).reduce((sum, name) => sum + bytesOf(join(path, name)), 0);
}

async function build() {
  for (const name of RESULT) rmSync(join(OUT, name), { recursive: true, force: true });
  mkdirSync(OUT, { recursive: true });
  await application();
  await file();
  const bytes = RESULT.reduce((sum, name) => sum + bytesOf(join(OUT, name)), 0);
  console.log(`${OUT}: ${(bytes / 1024).toFixed(0)} KiB`);
  if (bytes > BYTES_MAX) {
    console.error(`the page has ${bytes} bytes, and at most ${BYTES_MAX} are allowed: remove a part, or load less of a package`);
    process.exitCode = 1;
  }
}

await build();
