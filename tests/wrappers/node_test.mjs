// What the npm package does: node node_test.mjs DIRECTORY, where it is installed.
import assert from "node:assert/strict";
import child_process, { spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, openSync, readFileSync, readlinkSync, readSync, renameSync, rmSync, rmdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const installed = createRequire(pathToFileURL(join(process.argv[2], "x")));
const { path, command, spawn } = await import(pathToFileURL(installed.resolve("treaper")));
const folder = mkdtempSync(join(tmpdir(), "treaper-"));
after(() => rmSync(folder, { recursive: true }));

const words = (settings) => command("x", [], settings).args.slice(0, -2).join(" ");
/** How a child ends, and what it writes. */
async function ending(child) {
  let said = "";
  child.stdout.on("data", (data) => (said += data));
  return { status: await once(child, "close"), said, file: child.spawnfile, args: child.spawnargs };
}

test("ESM and CommonJS are the same", () => {
  assert.deepEqual(installed("treaper"), { path, command, spawn });
});

test("path is the native binary", () => {
  const head = Buffer.alloc(4);
  readSync(openSync(path()), head);
  assert.equal(String(head), "\x7fELF");
});

test("each option of the help is a setting", () => {
  const help = String(spawnSync(path(), ["--help"]).stdout).split("Variables:")[0];
  const names = new Set(help.match(/(?<=--)[a-z][a-z-]+/g));
  for (const other of ["help", "version", "doctor"]) names.delete(other);
  assert.ok(names.size > 30);
  assert.deepEqual(new Set(Object.values(installed("./node_modules/treaper/options.json"))), names);
});

test("values", () => {
  assert.equal(words({ grace: 5, drain: "500ms" }), "--grace=5 --drain=500ms");
  assert.equal(words({ noParent: true, noGuard: false, idle: undefined }), "--no-parent");
  assert.equal(words({ watchPid: [1, 2], killMode: "tree", verbose: 2 }), "--watch-pid=1 --watch-pid=2 --kill-mode=tree -v -v");
  for (const name of Object.keys(installed("./node_modules/treaper/options.json")).concat("required")) {
    for (const absent of [undefined, null, false]) assert.equal(words({ [name]: absent }), "", name);
  }
  assert.deepEqual(command("x", null, null), command("x"));
  assert.throws(() => words({ graze: 5 }), { name: "TypeError", message: /graze/ });
  assert.throws(() => spawn("true", [], { treaper: { graze: 5 } }), { name: "TypeError", message: /graze/ });
});

test("treaper is in front and nothing else", async () => {
  const report = join(folder, "report");
  const child = spawn("cat", { treaper: { report, grace: 5 } });
  child.stdin.write("x");
  assert.equal(String((await once(child.stdout, "data"))[0]), "x");
  assert.equal(readlinkSync(`/proc/${child.pid}/exe`), path());
  child.stdin.end();
  await once(child, "exit");
  assert.equal(JSON.parse(readFileSync(report)).command, "cat");
});

test("an input that ends late stops nothing", async () => {
  for (const [stdin, expected] of [["absent", 0], [undefined, 0], [null, 0], ["auto", 143]]) {
    const settings = stdin === "absent" ? { drain: "100ms" } : { stdin, drain: "100ms" };
    const child = spawn("sh", ["-c", "cat >/dev/null; sleep 1"], { treaper: settings });
    setTimeout(() => child.stdin.end("x"), 1300);
    assert.equal((await once(child, "exit"))[0], expected);
  }
});

test("it starts what child_process starts", async () => {
  const script = join(folder, "script");
  writeFileSync(script, "#!/bin/sh\nexit 3\n");
  chmodSync(script, 0o755);
  for (const words of [
    ["sh", ["-c", "echo $0 $1; exit 3", "a b", "c"]],
    ["echo $0; exit 3", { shell: true }],
    ["echo", ["$0"], { shell: "/bin/bash" }],
    ["script", [], { env: { PATH: folder } }],
    ["./script", { cwd: folder }],
    ["./script", { cwd: pathToFileURL(folder) }],
    ["cat", [], { stdio: ["ignore", "pipe", "inherit"] }],
    ["sh", null, { stdio: ["ignore", "pipe", "inherit"], argv0: "other" }],
  ]) {
    const [bare, ours] = await Promise.all([child_process.spawn, spawn].map((start) => ending(start(...words))));
    assert.deepEqual(ours, bare, JSON.stringify(words));
  }
});

test("what cannot be started is the same error", async () => {
  writeFileSync(join(folder, "plain"), "");
  for (const words of [["no-such-program", ["a"]], [join(folder, "plain")], [folder], ["ls", { cwd: "/none" }], ["x", { shell: "/none" }], ["ls", { env: { PATH: 5 } }]]) {
    const seen = [];
    for (const start of [child_process.spawn, spawn]) {
      const child = start(...words);
      const [{ code, errno, syscall, path, spawnargs }] = await once(child, "error");
      seen.push({ code, errno, syscall, path, spawnargs, pid: child.pid });
    }
    assert.deepEqual(seen[1], seen[0]);
  }
  for (const words of [[undefined], [""], ["ls", 3], ["ls", [], null], ["ls", [], 5], ["ls", { shell: 3 }], ["ls\0"], ["ls", { cwd: 3 }], ["ls", { argv0: 3 }], ["ls", { argv0: "\0" }]]) {
    const thrown = [child_process.spawn, spawn].map((start) => {
      try {
        return start(...words);
      } catch ({ code, message }) {
        return { code, message };
      }
    });
    assert.deepEqual(thrown[1], thrown[0]);
  }
});

const PERMISSION = ["--permission", "--experimental-permission"].find((flag) => process.allowedNodeEnvironmentFlags.has(flag));
test("treaper is in front of a program at which Node may not look", { skip: PERMISSION === undefined }, () => {
  const script = `require("treaper").spawn("sh", ["-c", "readlink /proc/$PPID/exe"], { stdio: "inherit" })`;
  const flags = [PERMISSION, "--allow-child-process", `--allow-fs-read=${join(process.argv[2], "*")}`];
  const played = spawnSync(process.execPath, [...flags, "-e", script], { cwd: process.argv[2] });
  assert.equal(String(played.stdout).trim(), path(), String(played.stderr));
});

test("treaper is in front where the current folder was deleted", async () => {
  const [gone, before] = [mkdtempSync(join(folder, "gone-")), process.cwd()];
  process.chdir(gone);
  rmdirSync(gone);
  const children = [{}, { cwd: "" }, { cwd: "/" }, { env: { PATH: ":/bin" } }].map((options) => spawn("cat", options));
  process.chdir(before);
  for (const child of children) {
    assert.equal(readlinkSync(`/proc/${child.pid}/exe`), path());
    child.stdin.end();
    await once(child, "exit");
  }
});

test("treaper is in front where URL is another class", async () => {
  const theirs = globalThis.URL;
  globalThis.URL = class {};
  const child = spawn("cat", { cwd: pathToFileURL("/") });
  globalThis.URL = theirs;
  assert.equal(readlinkSync(`/proc/${child.pid}/exe`), path());
  child.stdin.end();
  await once(child, "exit");
});

test("it may replace child_process.spawn", async () => {
  const bare = child_process.spawn;
  child_process.spawn = spawn;
  const child = child_process.spawn("true");
  child_process.spawn = bare;
  assert.deepEqual(await once(child, "exit"), [0, null]);
});

test("a missing binary", async () => {
  const file = path();
  renameSync(file, `${file}.away`);
  try {
    assert.throws(() => spawn("true"), { code: "ERR_TREAPER_MISSING", message: /install the package treaper again/ });
    assert.deepEqual(command("x", ["y"], { required: false }), { command: "x", args: ["y"] });
    const [warning] = await once(process, "warning");
    assert.match(warning.message, /^x is started without treaper: /);
    const child = spawn("sh", ["-c", "exit 3"], { treaper: { required: false } });
    assert.deepEqual(await once(child, "exit"), [3, null]);
  } finally {
    renameSync(`${file}.away`, file);
  }
});

const HOST = (name) =>
  `require("${name}").spawn("sh", ["-c", process.env.SERVER], { stdio: ["pipe", "inherit", "inherit"] }); setTimeout(() => {}, 1e6)`;
for (const [expected, name] of [["nothing", "treaper"], ["something", "node:child_process"]]) {
  test(`a killed host that uses ${name} leaves ${expected}`, () => {
    const played = spawnSync("python3", [join(here, "killed.py"), expected, process.execPath, "-e", HOST(name)], { cwd: process.argv[2] });
    assert.equal(played.status, 0, String(played.stdout) + played.stderr);
  });
}
