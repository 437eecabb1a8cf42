import type {
  ChildProcess,
  ChildProcessByStdio,
  ChildProcessWithoutNullStreams,
  SpawnOptions,
  SpawnOptionsWithoutStdio,
  SpawnOptionsWithStdioTuple,
  StdioNull,
  StdioPipe,
} from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Settings } from "./options";

export type { Settings, Time } from "./options";

/** The treaper of this package for the machine's processor. */
export function path(): string;

/** What starts `cmd` behind treaper, for hosts that start programs themselves. */
export function command(cmd: string, args?: readonly string[] | null, settings?: Settings | null): { command: string; args: string[] };

type With<Options> = Options & { treaper?: Settings | null | undefined };
type End<Stdio, Stream> = Stdio extends StdioPipe ? Stream : null;
type Stdio = StdioNull | StdioPipe;

interface Spawn {
  (cmd: string, options?: With<SpawnOptionsWithoutStdio>): ChildProcessWithoutNullStreams;
  <In extends Stdio, Out extends Stdio, Err extends Stdio>(
    cmd: string,
    options: With<SpawnOptionsWithStdioTuple<In, Out, Err>>,
  ): ChildProcessByStdio<End<In, Writable>, End<Out, Readable>, End<Err, Readable>>;
  (cmd: string, options: With<SpawnOptions>): ChildProcess;
  (cmd: string, args?: readonly string[], options?: With<SpawnOptionsWithoutStdio>): ChildProcessWithoutNullStreams;
  <In extends Stdio, Out extends Stdio, Err extends Stdio>(
    cmd: string,
    args: readonly string[],
    options: With<SpawnOptionsWithStdioTuple<In, Out, Err>>,
  ): ChildProcessByStdio<End<In, Writable>, End<Out, Readable>, End<Err, Readable>>;
  (cmd: string, args: readonly string[], options: With<SpawnOptions>): ChildProcess;
}

/**
 * `child_process.spawn` behind treaper. Its settings are in `options.treaper`.
 * A program that was ended by signal N exits with the code 128 + N, at a terminal by N. `argv0` has no effect.
 */
export const spawn: Spawn & typeof import("node:child_process").spawn;
