// Starts programs behind treaper: what they start ends when they end, and when this process ends, however it ends.
"use strict";

// Taken now: a host may put the spawn below in its place.
const { spawn: bareSpawn } = require("node:child_process");
const fs = require("node:fs");
const { join } = require("node:path");
const { fileURLToPath } = require("node:url");
const names = require("./options.json");

const ARCHITECTURES = { x64: "x86_64", arm64: "aarch64", riscv64: "riscv64", arm: "armv7", ia32: "i686" };

/** The treaper of this package for the machine's processor. */
function path() {
  const file = join(__dirname, "libexec", ARCHITECTURES[process.arch] ?? process.arch, "treaper");
  if (process.platform !== "linux") throw missing(`treaper needs Linux, and this is ${process.platform}`);
  if (!fs.existsSync(file)) throw missing(`the program ${file} is missing: install the package treaper again`);
  return file;
}

function missing(message) {
  return Object.assign(new Error(message), { code: "ERR_TREAPER_MISSING" });
}

/** The words for one setting. */
function words(name, value) {
  if (!Object.hasOwn(names, name)) throw new TypeError(`treaper has no setting ${name}`);
  if (value === undefined || value === null || value === false) return [];
  if (name === "verbose") return Array(Number(value)).fill("-v");
  if (value === true) return [`--${names[name]}`];
  return [value].flat().map((each) => `--${names[name]}=${each}`);
}

/** What starts `cmd` behind treaper, for hosts that start programs themselves. */
function command(cmd, args, settings) {
  const { required, ...others } = settings ?? {};
  const options = Object.entries(others).flatMap(([name, value]) => words(name, value));
  try {
    return { command: path(), args: [...options, "--", cmd, ...(args ?? [])] };
  } catch (error) {
    if (required ?? true) throw error;
    process.emitWarning(`${cmd} is started without treaper: ${error.message}`);
    return { command: cmd, args: [...(args ?? [])] };
  }
}

// Node and Deno can forbid this process to look at a file that it may execute. Then treaper looks.
const HIDDEN = { isFile: () => true, isDirectory: () => true, mode: 0o111 };

const status = (file) => {
  try {
    return fs.statSync(file);
  } catch ({ code, name }) {
    return code === "ERR_ACCESS_DENIED" || name === "NotCapable" ? HIDDEN : undefined;
  }
};

/** `path.resolve` would need the name of the current folder, which may have been deleted. */
const within = (folder, file) => (file.startsWith("/") ? file : `${folder || "."}/${file}`);

/** Whether there is an executable file that `child_process.spawn` would find under this name. */
function exists(file, { cwd, env }) {
  // Not `instanceof`: the global URL can be another class, as under jsdom.
  const base = cwd?.href ? fileURLToPath(cwd) : String(cwd || ".");
  const folders = file.includes("/") ? ["."] : String((env ?? process.env).PATH ?? "/bin:/usr/bin").split(":");
  const isExecutable = (found) => found?.isFile() && (found.mode & 0o111) !== 0;
  return status(base)?.isDirectory() && folders.some((folder) => isExecutable(status(within(base, within(folder, file)))));
}

/** `child_process.spawn` behind treaper. Its settings are in `options.treaper`. */
function spawn(cmd, args, options) {
  const theirs = Array.isArray(args) ? options : (args ?? options);
  const { treaper: settings, argv0, shell, ...more } = theirs ?? {};
  let [file, argv] = [cmd, Array.isArray(args) ? args : []];
  if (shell === true || (shell && typeof shell === "string")) {
    [file, argv] = [shell === true ? "/bin/sh" : shell, ["-c", [cmd, ...argv].join(" ")]];
  } else if (shell !== undefined) {
    more.shell = shell;
  }
  // What cannot be started is not started bare either: Node reports the error in its own way.
  if (!isUsual(cmd, args, theirs) || !exists(file, more)) return bareSpawn(cmd, args, options);
  // As with child_process, the end of the input alone stops no program.
  const wrapped = command(file, argv, { ...settings, stdin: settings?.stdin ?? "ignore" });
  const child = bareSpawn(wrapped.command, wrapped.args, more);
  return Object.assign(child, { spawnfile: file, spawnargs: [argv0 ?? file, ...argv] });
}

/** Whether Node accepts the types of these arguments. */
function isUsual(cmd, args, options) {
  const isObject = options === undefined || (typeof options === "object" && options !== null && !Array.isArray(options));
  const argv0 = options?.argv0 ?? "";
  const isName = typeof argv0 === "string" && !argv0.includes("\0");
  return typeof cmd === "string" && cmd !== "" && ["object", "undefined"].includes(typeof args) && isObject && isName;
}

module.exports = { path, command, spawn };
