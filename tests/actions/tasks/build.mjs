// Makes NAME.html of each framework's folder: `node build.mjs OUT`. One file, with its script in it.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename } from "node:path";

import { build } from "esbuild";
import { compile as compileSvelte } from "svelte/compiler";
import { compileScript, parse } from "vue/compiler-sfc";

const vue = {
  name: "vue",
  setup({ onLoad }) {
    onLoad({ filter: /\.vue$/ }, async ({ path }) => {
      const { descriptor } = parse(await readFile(path, "utf-8"), { filename: path });
      const made = compileScript(descriptor, { id: basename(path), inlineTemplate: true });
      return { contents: made.content, loader: "js" };
    });
  },
};

const svelte = {
  name: "svelte",
  setup({ onLoad }) {
    onLoad({ filter: /\.svelte(\.js)?$/ }, async ({ path }) => {
      const made = compileSvelte(await readFile(path, "utf-8"), { filename: path });
      return { contents: made.js.code, loader: "js" };
    });
  },
};

const pages = {
  react: ["react/main.jsx", '<div id="root"></div>', { jsx: "automatic" }],
  preact: ["preact/main.jsx", '<div id="app"></div>', { jsx: "automatic", jsxImportSource: "preact" }],
  vue: ["vue/main.js", '<div id="app"></div>', { plugins: [vue] }],
  svelte: ["svelte/main.js", '<div id="app"></div>', { plugins: [svelte], conditions: ["browser"] }],
  lit: ["lit/main.js", "<task-app></task-app>", {}],
};

const [out] = process.argv.slice(2);
await mkdir(out, { recursive: true });
for (const [name, [entry, body, options]] of Object.entries(pages)) {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    format: "esm",
    write: false,
    define: { "process.env.NODE_ENV": '"production"' },
    ...options,
  });
  const script = outputFiles[0].text.replaceAll("</script", "<\\/script");
  await writeFile(
    `${out}/${name}.html`,
    `<!doctype html><html lang="en"><meta charset="utf-8"><title>Tasks</title>${body}` +
      `<script type="module">${script}</script></html>\n`,
  );
}
