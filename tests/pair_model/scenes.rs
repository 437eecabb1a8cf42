//! What is searched. Each event can come at every instant, as often as its number says.

use crate::actor::Scene;
use crate::kernel::Event::{self, *};

const BASE: Scene = Scene {
    name: "",
    long: false,
    job_control: false,
    pidfds: true,
    namespace: false,
    obeys: true,
    disarmed: false,
    hopeless: false,
    relay: false,
    watches_stdin: false,
    events: &[],
    kills: 0,
};

const fn scene(name: &'static str, events: &'static [(Event, u8)]) -> Scene {
    Scene {
        name,
        events,
        ..BASE
    }
}

/// At a terminal.
const fn job(name: &'static str, events: &'static [(Event, u8)]) -> Scene {
    Scene {
        job_control: true,
        ..scene(name, events)
    }
}

const KILL_ONE: &[(Event, u8)] = &[(KillShim, 1), (KillMonitor, 1)];
const STOP_AND_KILL: &[(Event, u8)] = &[(Terminate, 1), (KillShim, 1), (KillMonitor, 1)];

pub const STOPS: &[Scene] = &[
    scene("the host dies", &[(HostDies, 1)]),
    Scene {
        pidfds: false,
        ..scene("the host dies, no pidfds", &[(HostDies, 1)])
    },
    scene("the server exits", &[(ServerExits, 1)]),
    scene("SIGTERM", &[(Terminate, 1)]),
    Scene {
        obeys: false,
        ..scene("SIGTERM is ignored", &[(Terminate, 1)])
    },
    scene(
        "SIGTERM, the server exits",
        &[(Terminate, 1), (ServerExits, 1)],
    ),
    Scene {
        hopeless: true,
        obeys: false,
        ..scene("the child cannot be killed", &[(Terminate, 1)])
    },
    scene("SIGTERM, the host dies", &[(Terminate, 1), (HostDies, 1)]),
];

pub const KILLS: &[Scene] = &[
    Scene {
        kills: 1,
        ..scene("one is killed", KILL_ONE)
    },
    Scene {
        kills: 2,
        ..scene("both are killed", KILL_ONE)
    },
    Scene {
        kills: 1,
        pidfds: false,
        ..scene("one is killed, no pidfds", KILL_ONE)
    },
    Scene {
        kills: 1,
        ..scene("SIGTERM, one is killed", STOP_AND_KILL)
    },
    Scene {
        kills: 1,
        obeys: false,
        ..scene("SIGTERM is ignored, one is killed", STOP_AND_KILL)
    },
    Scene {
        kills: 1,
        obeys: false,
        disarmed: true,
        ..scene(
            "the kernel does not stop the server, one is killed",
            STOP_AND_KILL,
        )
    },
    Scene {
        kills: 1,
        ..scene(
            "the server exits, one is killed",
            &[(ServerExits, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    },
    Scene {
        kills: 1,
        pidfds: false,
        ..scene(
            "the monitor is killed, the host dies, no pidfds",
            &[(KillMonitor, 1), (HostDies, 1)],
        )
    },
    Scene {
        kills: 1,
        pidfds: false,
        ..scene(
            "the shim is killed, the host dies, no pidfds",
            &[(KillShim, 1), (HostDies, 1)],
        )
    },
    Scene {
        kills: 1,
        ..scene(
            "the host dies, one is killed",
            &[(HostDies, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    },
    Scene {
        kills: 1,
        hopeless: true,
        obeys: false,
        ..scene("the child cannot be killed, one is killed", STOP_AND_KILL)
    },
    long(Scene {
        kills: 2,
        ..scene(
            "SIGTERM, the host dies, both are killed",
            &[
                (Terminate, 1),
                (HostDies, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        )
    }),
    Scene {
        kills: 1,
        ..scene(
            "SIGTERM, the server exits, one is killed",
            &[
                (Terminate, 1),
                (ServerExits, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        )
    },
];

pub const SUSPENSIONS: &[Scene] = &[
    Scene {
        kills: 1,
        ..scene(
            "one is suspended, one is killed",
            &[
                (KillShim, 1),
                (KillMonitor, 1),
                (SuspendShim, 1),
                (SuspendMonitor, 1),
            ],
        )
    },
    scene(
        "the shim is suspended, the host dies",
        &[(SuspendShim, 1), (HostDies, 1)],
    ),
    Scene {
        pidfds: false,
        ..scene(
            "the monitor is suspended, the host dies, no pidfds",
            &[(SuspendMonitor, 1), (HostDies, 1)],
        )
    },
    scene(
        "one is suspended, the server exits",
        &[(SuspendShim, 1), (SuspendMonitor, 1), (ServerExits, 1)],
    ),
    scene(
        "both are suspended, the monitor is resumed",
        &[(SuspendShim, 1), (SuspendMonitor, 1), (ResumeMonitor, 1)],
    ),
    scene(
        "the monitor is suspended, the host dies",
        &[(SuspendMonitor, 1), (HostDies, 1)],
    ),
    scene(
        "both are suspended, the host dies",
        &[(SuspendShim, 1), (SuspendMonitor, 1), (HostDies, 1)],
    ),
    long(scene(
        "both are suspended, SIGTERM, the shim is resumed",
        &[
            (SuspendShim, 1),
            (SuspendMonitor, 1),
            (Terminate, 1),
            (ResumeShim, 1),
        ],
    )),
    Scene {
        kills: 1,
        obeys: false,
        ..scene(
            "SIGTERM is ignored, one is suspended, one is killed",
            &[
                (Terminate, 1),
                (SuspendShim, 1),
                (SuspendMonitor, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        )
    },
];

pub const TERMINALS: &[Scene] = &[
    job("Ctrl-Z, fg", &[(CtrlZ, 1), (Foreground, 1)]),
    job(
        "the server is suspended, resumed",
        &[(SuspendServer, 1), (ResumeServer, 1)],
    ),
    job(
        "the server is suspended twice, resumed twice",
        &[(SuspendServer, 2), (ResumeServer, 2)],
    ),
    job(
        "the server is suspended, SIGTERM",
        &[(SuspendServer, 1), (Terminate, 1)],
    ),
    job(
        "the server is suspended, the server exits",
        &[(SuspendServer, 1), (ResumeServer, 1), (ServerExits, 1)],
    ),
    Scene {
        kills: 1,
        ..job(
            "the server is suspended, one is killed",
            &[(SuspendServer, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    },
    Scene {
        kills: 1,
        pidfds: false,
        ..job("at a terminal, one is killed, no pidfds", KILL_ONE)
    },
    job("Ctrl-Z, the server exits", &[(CtrlZ, 1), (ServerExits, 1)]),
    Scene {
        kills: 1,
        ..job(
            "Ctrl-Z, the monitor is killed",
            &[(CtrlZ, 1), (KillMonitor, 1)],
        )
    },
    job("Ctrl-Z, SIGTERM", &[(CtrlZ, 1), (Terminate, 1)]),
    job(
        "Ctrl-Z, fg, the server exits",
        &[(CtrlZ, 1), (Foreground, 1), (ServerExits, 1)],
    ),
    job("Ctrl-Z, the host dies", &[(CtrlZ, 1), (HostDies, 1)]),
    job("Ctrl-Z twice, fg", &[(CtrlZ, 2), (Foreground, 1)]),
    job("Ctrl-Z twice, fg twice", &[(CtrlZ, 2), (Foreground, 2)]),
    Scene {
        kills: 1,
        ..job(
            "Ctrl-Z, fg, one is killed",
            &[(CtrlZ, 1), (Foreground, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    },
];

const fn inside(scene: Scene) -> Scene {
    Scene {
        namespace: true,
        ..scene
    }
}

pub const NAMESPACES: &[Scene] = &[
    inside(scene("namespace: the host dies", &[(HostDies, 1)])),
    inside(Scene {
        kills: 1,
        obeys: false,
        ..scene(
            "namespace: SIGTERM is ignored, one is killed",
            STOP_AND_KILL,
        )
    }),
    inside(Scene {
        kills: 2,
        ..scene("namespace: both are killed", KILL_ONE)
    }),
    inside(scene(
        "namespace: one is suspended, the server exits",
        &[(SuspendShim, 1), (SuspendMonitor, 1), (ServerExits, 1)],
    )),
    inside(scene(
        "namespace: the shim is suspended, the host dies",
        &[(SuspendShim, 1), (HostDies, 1)],
    )),
    inside(scene(
        "namespace: the monitor is suspended, the host dies",
        &[(SuspendMonitor, 1), (HostDies, 1)],
    )),
    inside(scene(
        "namespace: the host dies, SIGTERM",
        &[(HostDies, 1), (Terminate, 1)],
    )),
    inside(scene(
        "namespace: the server exits, SIGTERM",
        &[(ServerExits, 1), (Terminate, 1)],
    )),
    inside(Scene {
        kills: 1,
        ..scene(
            "namespace: the host dies, one is killed",
            &[(HostDies, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    }),
    inside(Scene {
        kills: 1,
        ..scene(
            "namespace: the server exits, one is killed",
            &[(ServerExits, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    }),
    inside(job("namespace: Ctrl-Z, fg", &[(CtrlZ, 1), (Foreground, 1)])),
    inside(job(
        "namespace: Ctrl-Z twice, fg",
        &[(CtrlZ, 2), (Foreground, 1)],
    )),
    long(inside(job(
        "namespace: Ctrl-Z, the host dies",
        &[(CtrlZ, 1), (HostDies, 1)],
    ))),
    inside(job(
        "namespace: the server is suspended, resumed, the server exits",
        &[(SuspendServer, 1), (ResumeServer, 1), (ServerExits, 1)],
    )),
    inside(job(
        "namespace: Ctrl-Z, SIGTERM",
        &[(CtrlZ, 1), (Terminate, 1)],
    )),
    inside(job(
        "namespace: Ctrl-Z, the server exits",
        &[(CtrlZ, 1), (ServerExits, 1)],
    )),
    inside(Scene {
        kills: 1,
        ..job(
            "namespace: Ctrl-Z, one is killed",
            &[(CtrlZ, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    }),
    inside(watching(scene(
        "namespace: stdin is closed, SIGTERM",
        &[(CloseStdin, 1), (Terminate, 1)],
    ))),
    inside(Scene {
        kills: 1,
        ..watching(scene(
            "namespace: stdin is closed, one is killed",
            &[(CloseStdin, 1), (KillShim, 1), (KillMonitor, 1)],
        ))
    }),
];

pub const FROZEN: Scene = job(
    "the server is suspended by SIGSTOP, resumed",
    &[(FreezeServer, 1), (ResumeServer, 1)],
);

/// Only `PAIR_MODEL=all` searches it.
const fn long(scene: Scene) -> Scene {
    Scene {
        long: true,
        ..scene
    }
}

/// With a process in front of treaper.
const fn relay(name: &'static str, events: &'static [(Event, u8)]) -> Scene {
    Scene {
        relay: true,
        ..scene(name, events)
    }
}

/// Stdin is watched, as by default.
const fn watching(scene: Scene) -> Scene {
    Scene {
        watches_stdin: true,
        ..scene
    }
}

const KILL_RELAY: &[(Event, u8)] = &[(KillRelay, 1)];

pub const RELAYS: &[Scene] = &[
    // It is killed.
    watching(relay("relay: it is killed", KILL_RELAY)),
    Scene {
        pidfds: false,
        ..relay("relay: it is killed, no pidfds", KILL_RELAY)
    },
    Scene {
        obeys: false,
        ..relay("relay: it is killed, SIGTERM is ignored", KILL_RELAY)
    },
    Scene {
        hopeless: true,
        obeys: false,
        ..relay(
            "relay: it is killed, the child cannot be killed",
            KILL_RELAY,
        )
    },
    relay(
        "relay: it is killed, SIGTERM",
        &[(KillRelay, 1), (Terminate, 1)],
    ),
    relay(
        "relay: it is killed, the host dies",
        &[(KillRelay, 1), (HostDies, 1)],
    ),
    relay(
        "relay: it is killed, the server exits",
        &[(KillRelay, 1), (ServerExits, 1)],
    ),
    relay(
        "relay: it is killed, the shim is suspended",
        &[(KillRelay, 1), (SuspendShim, 1)],
    ),
    relay(
        "relay: it is killed, the monitor is suspended",
        &[(KillRelay, 1), (SuspendMonitor, 1)],
    ),
    inside(relay("relay: namespace: it is killed", KILL_RELAY)),
    Scene {
        kills: 2,
        ..relay(
            "relay: all three are killed",
            &[(KillShim, 1), (KillMonitor, 1), (KillRelay, 1)],
        )
    },
    Scene {
        job_control: true,
        ..relay("relay: Ctrl-Z, it is killed", &[(CtrlZ, 1), (KillRelay, 1)])
    },
    // A cancelled turn does not end in time.
    relay(
        "relay: a cancel, the server exits",
        &[(TimesOut, 1), (ServerExits, 1)],
    ),
    relay(
        "relay: a cancel, it is killed",
        &[(TimesOut, 1), (KillRelay, 1)],
    ),
    watching(relay(
        "relay: a cancel, stdin is closed",
        &[(TimesOut, 1), (CloseStdin, 1)],
    )),
    inside(relay("relay: namespace: a cancel", &[(TimesOut, 1)])),
    relay("relay: a cancel, SIGTERM", &[(TimesOut, 1), (Terminate, 1)]),
    relay(
        "relay: a cancel, the monitor is suspended",
        &[(TimesOut, 1), (SuspendMonitor, 1)],
    ),
    Scene {
        kills: 1,
        ..relay(
            "relay: a cancel, one is killed",
            &[(TimesOut, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    },
    Scene {
        kills: 1,
        ..watching(relay(
            "relay: a cancel, stdin is closed, the monitor is killed",
            &[(TimesOut, 1), (CloseStdin, 1), (KillMonitor, 1)],
        ))
    },
    relay("relay: the host dies", &[(HostDies, 1)]),
    relay(
        "relay: the host dies, SIGTERM",
        &[(HostDies, 1), (Terminate, 1)],
    ),
    watching(relay(
        "relay: it is killed, stdin is closed, SIGTERM",
        &[(KillRelay, 1), (CloseStdin, 1), (Terminate, 1)],
    )),
    Scene {
        kills: 1,
        ..watching(relay(
            "relay: the host dies, stdin is closed, one is killed",
            &[
                (HostDies, 1),
                (CloseStdin, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        ))
    },
    inside(Scene {
        kills: 1,
        ..relay(
            "relay: namespace: a cancel, one is killed",
            &[(TimesOut, 1), (KillShim, 1), (KillMonitor, 1)],
        )
    }),
];

/// A drain.
pub const DRAINS: &[Scene] = &[
    watching(scene("stdin is closed", &[(CloseStdin, 1)])),
    watching(scene(
        "stdin is closed, the server exits",
        &[(CloseStdin, 1), (ServerExits, 1)],
    )),
    watching(scene(
        "stdin is closed, SIGTERM",
        &[(CloseStdin, 1), (Terminate, 1)],
    )),
    watching(scene("the host dies, stdin is closed", &[(HostDies, 1)])),
    Scene {
        kills: 1,
        ..watching(scene(
            "stdin is closed, one is killed",
            &[(CloseStdin, 1), (KillShim, 1), (KillMonitor, 1)],
        ))
    },
    long(Scene {
        kills: 1,
        ..watching(scene(
            "stdin is closed, SIGTERM, one is killed",
            &[
                (CloseStdin, 1),
                (Terminate, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        ))
    }),
    long(Scene {
        kills: 1,
        pidfds: false,
        ..watching(scene(
            "stdin is closed, the host dies, one is killed, no pidfds",
            &[
                (CloseStdin, 1),
                (HostDies, 1),
                (KillShim, 1),
                (KillMonitor, 1),
            ],
        ))
    }),
];

pub const ALL: [&[Scene]; 7] = [
    STOPS,
    KILLS,
    SUSPENSIONS,
    TERMINALS,
    NAMESPACES,
    RELAYS,
    DRAINS,
];

/// Small ones that use most of the protocol.
pub const COMPARED: [&str; 5] = [
    "the server exits, one is killed",
    "SIGTERM is ignored",
    "stdin is closed",
    "Ctrl-Z, the server exits",
    "namespace: the host dies",
];
