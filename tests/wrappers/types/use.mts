import { path, command, spawn, type Settings, type Time } from "treaper";
import type { ChildProcess, ChildProcessByStdio, ChildProcessWithoutNullStreams } from "node:child_process";
import type { Writable } from "node:stream";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function is<A>() { return <B,>(_: B, ..._same: Same<A, B> extends true ? [] : [never]) => {}; }

const grace: Time = "5s";
const settings: Settings = { grace, drain: 5, watchPid: [1, "2"], success: 143, killMode: "tree", required: false };
is<string>()(path());
is<{ command: string; args: string[] }>()(command("a", ["b"], settings));
is<ChildProcessWithoutNullStreams>()(spawn("a"));
is<ChildProcessWithoutNullStreams>()(spawn("a", ["b"], { treaper: settings, cwd: "/" }));
is<ChildProcessByStdio<Writable, null, null>>()(spawn("a", [], { stdio: ["pipe", "inherit", "ignore"], treaper: { grace: 1 } }));
is<ChildProcess>()(spawn("a", ["b"], { stdio: "inherit", treaper: { noParent: true } }));
// Each setting may be absent in three ways.
const absent: Settings[] = [{}, {} as { [Name in keyof Settings]: undefined }, {} as { [Name in keyof Settings]: null }];
is<{ command: string; args: string[] }>()(command("a", null, absent[0] ?? null));
is<ChildProcessWithoutNullStreams>()(spawn("a", { treaper: null }));
const same: typeof import("node:child_process").spawn = spawn;
is<ChildProcess>()(same("a", ["b"], { stdio: "inherit" }));
// @ts-expect-error an unknown setting
command("a", [], { graze: 5 });
// @ts-expect-error a mode that does not exist
spawn("a", [], { treaper: { killMode: "all" } });
// @ts-expect-error the options of subprocess are no settings
command("a", [], { cwd: "/" });
