// Bundles everything into one page: node build.mjs OUT.html
// The run is put in by Python, in place of <!--run-->.

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const out = process.argv[2] ?? "page.html";
const here = new URL(".", import.meta.url).pathname;
const packages = ["@mujoco/mujoco", "three", "mediabunny"];

// Emscripten glues calls into WebAssembly with `new Function`, which the page's policy forbids.
// These are the same two functions without it.
const INVOKER = `function (...given) {
  checkArgCount(given.length, minArgs, expectedArgCount, humanName, throwBindingError);
  const destructors = needsDestructorStack ? [] : null;
  const first = isClassMethodFunc ? 1 : 2;
  const wired = isClassMethodFunc ? [argTypes[1].toWireType(destructors, this)] : [];
  for (let i = 0; i < expectedArgCount; i++) {
    wired.push(argTypes[i + 2].toWireType(destructors, given[i]));
  }
  const result = cppInvokerFunc(cppTargetFunc, ...wired);
  if (destructors) runDestructors(destructors);
  else for (let i = first; i < argTypes.length; i++) {
    argTypes[i].destructorFunction?.(wired[i - first]);
  }
  return returns ? argTypes[0].fromWireType(result) : undefined;
}`;
const CALLER = `function (obj, func, destructorsRef, pointer) {
  const values = kind === 0 ? [obj] : [];
  for (const type of types) {
    values.push(type.readValueFromPointer(pointer));
    pointer += type.argPackAdvance;
  }
  const result = kind === 1 ? new func(...values) : func.call(...values);
  return retType.isVoid ? undefined : emval_returnValue(retType, destructorsRef, result);
}`;

const withoutEval = {
  name: "without-eval",
  setup(build) {
    build.onLoad({ filter: /@mujoco\/mujoco\/mujoco\.js$/ }, async ({ path }) => {
      let code = await readFile(path, "utf8");
      for (const [from, to] of [
        ["new Function(...args, invokerFnBody)(...closureArgs)", INVOKER],
        ["new Function(...params, functionBody)(...args)", CALLER],
      ]) {
        if (code.split(from).length !== 2) throw new Error(`MuJoCo's glue has changed: ${from}`);
        code = code.replace(from, () => to);
      }
      return { contents: code, loader: "js" };
    });
  },
};

async function bundle(entry, options = {}) {
  const result = await esbuild.build({
    entryPoints: [here + entry],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    logLevel: "warning",
    legalComments: "none", // all licences are in the page, whole
    ...options,
  });
  return result.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const modules = here + "node_modules/";
const read = (path) => readFile(path, "utf8");

const versions = {};
let licences = "";
for (const name of packages) {
  const about = JSON.parse(await read(`${modules}${name}/package.json`));
  versions[name] = about.version;
  // MuJoCo's package names its licence without the text, which typescript's has.
  const text = await read(`${modules}${name}/LICENSE`).catch(() =>
    about.license === "Apache-2.0" ? read(`${modules}typescript/LICENSE`) : Promise.reject(name),
  );
  licences += `${name} ${about.version}, ${about.license}\n${about.homepage ?? ""}\n\n${text}\n\n\n`;
}

const script = await bundle("src/main.ts", {
  format: "iife",
  plugins: [withoutEval],
  external: ["module", "fs", "path", "url", "crypto"], // for Node, never reached in a browser
  define: {
    "import.meta.url": '"file:///page"',
    PHYSICS_VERSION: JSON.stringify(versions["@mujoco/mujoco"]),
  },
});
const style = await bundle("src/style.css");
const wasm = gzipSync(await readFile(modules + "@mujoco/mujoco/mujoco.wasm"), { level: 9 });

const policy = [
  "default-src 'none'",
  `script-src ${hash(script)} 'wasm-unsafe-eval'`,
  `style-src ${hash(style)}`,
  "img-src data: blob:",
  "connect-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const parts = {
  POLICY: policy,
  STYLE: `<style>${style}</style>`,
  LICENCES: licences.replaceAll("<", "&lt;"),
  WASM: `<script type="application/wasm+gzip" id="wasm">${wasm.toString("base64")}</script>`,
  SCRIPT: `<script>${script}</script>`,
};
let page = await read(here + "src/page.html");
for (const [name, text] of Object.entries(parts)) {
  page = page.replace(`<!--${name}-->`, () => text).replace(`{{${name}}}`, () => text);
}
await writeFile(out, page);
console.log(`${out}: ${(page.length / 1e6).toFixed(2)} MB, MuJoCo ${versions["@mujoco/mujoco"]}`);
