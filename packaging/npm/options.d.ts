// Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.

/** A number is seconds. */
export type Time = string | number;

/** The options of treaper. Each may be undefined or null, which is the same as absent. */
export interface Settings {
  /** Without treaper: throw an error (true), or run the bare command with a warning (false) [true] */
  required?: boolean | null | undefined;
  /** Do not stop when the parent process is gone */
  noParent?: boolean | null | undefined;
  /** Stop when process PID is gone */
  watchPid?: number | string | readonly (number | string)[] | null | undefined;
  /** Stop when the nearest ancestor NAME is gone */
  watchAncestor?: string | readonly (string)[] | null | undefined;
  /** Stop when stdin closes: auto, watch, ignore [auto] */
  stdin?: "auto" | "watch" | "ignore" | null | undefined;
  /** Stop when the host writes nothing to stdin for TIME */
  idle?: Time | null | undefined;
  /** Stop when stdout has no reader: watch, ignore [ignore] */
  stdout?: "watch" | "ignore" | null | undefined;
  /** Run until the end of: server, tree [server] */
  until?: "server" | "tree" | null | undefined;
  /** Stop signal [TERM] */
  signal?: number | string | null | undefined;
  /** Order of the stop signals: staged, tree, mixed [staged] */
  killMode?: "staged" | "tree" | "mixed" | null | undefined;
  /** Time to exit by itself after the end of input [5s] */
  drain?: Time | null | undefined;
  /** Time from the stop signal to SIGKILL [10s] */
  grace?: Time | null | undefined;
  /** Signal the rest of the tree this long before SIGKILL [2s] */
  stage?: Time | null | undefined;
  /** Give up on survivors this long after SIGKILL [5s] */
  killTimeout?: Time | null | undefined;
  /** Run COMMAND with /bin/sh when the tree is gone */
  finally?: string | null | undefined;
  /** What SIGHUP does: auto, stop, forward [auto] */
  hup?: "auto" | "stop" | "forward" | null | undefined;
  /** What SIGTERM does: stop, forward [stop] */
  term?: "stop" | "forward" | null | undefined;
  /** Forward other signals to: server, group, tree [server] */
  forwardTo?: "server" | "group" | "tree" | null | undefined;
  /** Treat signal FROM as TO; TO 0 drops it */
  rewrite?: string | readonly (string)[] | null | undefined;
  /** Hold the tree by: group, cgroup, pidns [group] */
  contain?: "group" | "cgroup" | "pidns" | null | undefined;
  /** Keep the daemon NAME of the tree running */
  spare?: string | readonly (string)[] | null | undefined;
  /** One process instead of two; leaks if SIGKILLed */
  noGuard?: boolean | null | undefined;
  /** Deny setuid programs to the whole tree */
  noNewPrivs?: boolean | null | undefined;
  /** Other processes write messages to the server through a socket */
  inject?: string | readonly (string)[] | null | undefined;
  /** The messages to the server that begin a turn */
  turn?: string | readonly (string)[] | null | undefined;
  /** The messages to the server that cancel the turn that runs */
  cancel?: string | readonly (string)[] | null | undefined;
  /** The messages from the server that end a turn */
  boundary?: string | readonly (string)[] | null | undefined;
  /** Time in which a cancelled turn must end [5s] */
  cancelDrain?: Time | null | undefined;
  /** Append stderr of the server and of treaper to FILE */
  stderr?: string | null | undefined;
  /** Append a JSON object about the run to FILE or fd:N */
  report?: string | null | undefined;
  /** Name the arguments of COMMAND in the report */
  reportArguments?: boolean | null | undefined;
  /** Exit with 0 instead of STATUS (or signal name) */
  success?: number | string | readonly (number | string)[] | null | undefined;
  /** Log levels and modules instead of -v, such as debug */
  log?: string | null | undefined;
  /** Log each step; -vv: each process */
  verbose?: number | null | undefined;
}
