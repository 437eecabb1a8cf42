//! The search: from the start, every step that can come next, breadth first. So the first failure is a shortest one.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use crate::actor::{Lives, MONITOR, Op, Reply, SHIM, Scene};
use crate::kernel::{ACTORS, Kernel, Step, name};

#[derive(Debug, Default)]
pub struct Count {
    pub states: usize,
    pub steps: u64,
    /// States in which nothing can happen any more.
    pub ends: u64,
    /// States of shim and monitor.
    pub lives: usize,
    pub depth: usize,
}

/// Two hashes: with one of 64 bits, two of a million states could be taken for one.
fn digest(kernel: &Kernel) -> (u64, u64) {
    let hash = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        kernel.hash(&mut hasher);
        hasher.finish()
    };
    (hash(1), hash(2))
}

/// Does `step`, and then the calls that need no step of their own.
fn after(before: &Kernel, step: Step, scene: &Scene, lives: &mut Lives) -> Kernel {
    let mut kernel = before.clone();
    match step {
        Step::Call(own) => call(&mut kernel, own, scene, lives),
        Step::Tree(of) => drop(kernel.live(scene, of)),
        Step::Event(event) => drop(kernel.happens(scene, event)),
        Step::Time(at) => kernel.now = at,
    }
    settle(&mut kernel, scene, lives);
    kernel
}

fn call(kernel: &mut Kernel, own: u8, scene: &Scene, lives: &mut Lives) {
    let node = kernel.process(own).node;
    let op = lives.op(node).clone();
    let Some(reply) = kernel.perform(scene, own, &op) else {
        return;
    };
    if matches!(op, Op::Exit { .. }) {
        return;
    }
    kernel.processes[own as usize].node = lives.after(node, reply);
    if let Op::Fork { of } = op {
        kernel.processes[of as usize].node = lives.after(node, Reply::Number(0));
    }
}

fn settle(kernel: &mut Kernel, scene: &Scene, lives: &mut Lives) {
    for own in ACTORS {
        loop {
            let op = lives.op(kernel.process(own).node);
            if !kernel.runs(own) || !kernel.is_private(scene, own, op) {
                break;
            }
            call(kernel, own, scene, lives);
        }
        // The answers to the calls of a process that has ended do not matter any more.
        if !kernel.process(own).is_alive() {
            kernel.processes[own as usize].node = 0;
        }
    }
}

/// Searches all of `scene`. A broken promise is returned with the steps that lead to it.
pub fn search(scene: &Scene, limit: usize) -> Result<Count, String> {
    search_each(scene, limit, Lives::new(scene, true), &mut |_| ())
}

/// The states of the kernel, without what its processes remember. `merges`: see [`Lives::new`].
pub fn kernels(scene: &Scene, limit: usize, merges: bool) -> HashSet<(u64, u64)> {
    let mut seen = HashSet::new();
    let lives = Lives::new(scene, merges);
    let count = search_each(scene, limit, lives, &mut |kernel| {
        let mut kernel = kernel.clone();
        for process in &mut kernel.processes {
            process.node = 0;
        }
        seen.insert(digest(&kernel));
    });
    count.expect("a search to its end");
    seen
}

/// `each`: called for each state.
fn search_each(
    scene: &Scene,
    limit: usize,
    mut lives: Lives,
    each: &mut dyn FnMut(&Kernel),
) -> Result<Count, String> {
    let mut start = Kernel::new(scene);
    settle(&mut start, scene, &mut lives);
    let mut known = HashMap::from([(digest(&start), 0_u32)]);
    let mut way: Vec<(u32, Option<Step>)> = vec![(0, None)];
    let mut level = vec![(0_u32, start)];
    let mut count = Count::default();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, kernel) in level {
            each(&kernel);
            let steps = kernel.steps(scene, &|node| lives.op(node).clone());
            let at_rest = steps.iter().all(|step| matches!(step, Step::Event(_)));
            if at_rest {
                count.ends += 1;
                let mut end = kernel.clone();
                end.check_rest(scene);
                if let Some(promise) = end.broken {
                    return Err(explain(promise, &way, number, scene, &mut lives));
                }
            }
            for step in steps {
                count.steps += 1;
                let new = after(&kernel, step, scene, &mut lives);
                let index = way.len() as u32;
                if let Some(promise) = new.broken {
                    way.push((number, Some(step)));
                    return Err(explain(promise, &way, index, scene, &mut lives));
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = known.entry(digest(&new))
                {
                    entry.insert(index);
                    way.push((number, Some(step)));
                    next.push((index, new));
                }
            }
        }
        if way.len() > limit {
            return Err(format!(
                "{}: more than {limit} states; depth {}",
                scene.name, count.depth
            ));
        }
        level = next;
        count.depth += 1;
    }
    count.states = way.len();
    count.lives = lives.len();
    Ok(count)
}

/// The steps to a state, one a line.
fn explain(
    promise: &str,
    way: &[(u32, Option<Step>)],
    number: u32,
    scene: &Scene,
    lives: &mut Lives,
) -> String {
    let (mut at, mut steps) = (number, Vec::new());
    while let (before, Some(step)) = way[at as usize] {
        steps.push(step);
        at = before;
    }
    steps.reverse();
    let mut text = format!("{}: broken: {promise}\n", scene.name);
    let mut kernel = Kernel::new(scene);
    settle(&mut kernel, scene, lives);
    for step in steps {
        let line = match step {
            Step::Call(own) => {
                let op = lives.op(kernel.process(own).node).clone();
                let reply = kernel.clone().perform(scene, own, &op);
                let who = match own {
                    SHIM => "shim",
                    MONITOR => "monitor",
                    _ => "relay",
                };
                let word = match op {
                    Op::Get { word } | Op::Set { word, .. } | Op::Swap { word, .. } => name(word),
                    _ => "",
                };
                format!("{who}: {op:?} {word} -> {reply:?}")
            }
            other => format!("{other:?}"),
        };
        let _ = writeln!(text, "  {line}");
        kernel = after(&kernel, step, scene, lives);
    }
    let _ = writeln!(text, "{kernel:?}");
    text
}
