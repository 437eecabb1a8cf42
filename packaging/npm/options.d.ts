// Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.

/** A number is seconds. */
export type Time = string | number;

/** The options of treaper. */
export interface Settings {
  /** Without treaper: throw an error (true), or run the bare command with a warning (false) [true] */
  required?: boolean;
  /** Do not stop when the parent process is gone */
  noParent?: boolean;
  /** Stop when process PID is gone */
  watchPid?: number | string | readonly (number | string)[];
  /** Stop when the nearest ancestor NAME is gone */
  watchAncestor?: string | readonly (string)[];
  /** Stop when stdin closes: auto, watch, ignore [auto] */
  stdin?: "auto" | "watch" | "ignore";
  /** Stop when the host writes nothing to stdin for TIME */
  idle?: Time;
  /** Stop when stdout has no reader: watch, ignore [ignore] */
  stdout?: "watch" | "ignore";
  /** Run until the end of: server, tree [server] */
  until?: "server" | "tree";
  /** Stop signal [TERM] */
  signal?: number | string;
  /** Order of the stop signals: staged, tree, mixed [staged] */
  killMode?: "staged" | "tree" | "mixed";
  /** Time to exit by itself after the end of input [5s] */
  drain?: Time;
  /** Time from the stop signal to SIGKILL [10s] */
  grace?: Time;
  /** Signal the rest of the tree this long before SIGKILL [2s] */
  stage?: Time;
  /** Give up on survivors this long after SIGKILL [5s] */
  killTimeout?: Time;
  /** Run COMMAND with /bin/sh when the tree is gone */
  finally?: string;
  /** What SIGHUP does: auto, stop, forward [auto] */
  hup?: "auto" | "stop" | "forward";
  /** What SIGTERM does: stop, forward [stop] */
  term?: "stop" | "forward";
  /** Forward other signals to: server, group, tree [server] */
  forwardTo?: "server" | "group" | "tree";
  /** Treat signal FROM as TO; TO 0 drops it */
  rewrite?: string | readonly (string)[];
  /** Hold the tree by: group, cgroup, pidns [group] */
  contain?: "group" | "cgroup" | "pidns";
  /** Keep the daemon NAME of the tree running */
  spare?: string | readonly (string)[];
  /** One process instead of two; leaks if SIGKILLed */
  noGuard?: boolean;
  /** Deny setuid programs to the whole tree */
  noNewPrivs?: boolean;
  /** Other processes write messages to the server through a socket */
  inject?: string | readonly (string)[];
  /** The messages to the server that begin a turn */
  turn?: string | readonly (string)[];
  /** The messages to the server that cancel the turn that runs */
  cancel?: string | readonly (string)[];
  /** The messages from the server that end a turn */
  boundary?: string | readonly (string)[];
  /** Time in which a cancelled turn must end [5s] */
  cancelDrain?: Time;
  /** Append stderr of the server and of treaper to FILE */
  stderr?: string;
  /** Append a JSON object about the run to FILE or fd:N */
  report?: string;
  /** Name the arguments of COMMAND in the report */
  reportArguments?: boolean;
  /** Exit with 0 instead of STATUS (or signal name) */
  success?: number | string | readonly (number | string)[];
  /** Log levels and modules instead of -v, such as debug */
  log?: string;
  /** Log each step; -vv: each process */
  verbose?: number;
}
