//! The other inits' command lines, against the C library that they themselves use.
#![allow(unsafe_code, reason = "the oracles are functions of the C library")]

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Mutex;

use proptest::prelude::*;
use treaper::dropin::getopt::{self, Long};
use treaper::dropin::{Answer, Program, leading_number};

use crate::config;

/// `struct option` of `<getopt.h>`.
#[repr(C)]
struct LongOption {
    name: *const c_char,
    has_argument: c_int,
    flag: *mut c_int,
    value: c_int,
}

unsafe extern "C" {
    static mut optind: c_int;
    static mut opterr: c_int;
    static optarg: *const c_char;
    fn getopt_long(
        count: c_int,
        words: *mut *mut c_char,
        short: *const c_char,
        long: *const LongOption,
        index: *mut c_int,
    ) -> c_int;
}

/// The options of a program.
struct Grammar {
    short: &'static str,
    long: &'static [Long],
    permute: bool,
}

/// What a command line gives: options up to the first mistake (`None`), then the operands.
type Outcome = (Vec<Option<(u8, Option<OsString>)>>, Vec<OsString>);

fn of_the_c_library(grammar: &Grammar, words: &[String]) -> Outcome {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let text = |text: &str| CString::new(text).unwrap();
    let words: Vec<CString> = ["program"]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .map(text)
        .collect();
    let mut pointers: Vec<*mut c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let names: Vec<CString> = grammar.long.iter().map(|long| text(long.0)).collect();
    let end = LongOption {
        name: std::ptr::null(),
        has_argument: 0,
        flag: std::ptr::null_mut(),
        value: 0,
    };
    let long = grammar
        .long
        .iter()
        .zip(&names)
        .map(|(long, name)| LongOption {
            name: name.as_ptr(),
            has_argument: long.1.into(),
            flag: std::ptr::null_mut(),
            value: long.2.into(),
        });
    let long: Vec<LongOption> = long.chain([end]).collect();
    let short = text(&format!(
        "{}{}",
        if grammar.permute { "" } else { "+" },
        grammar.short
    ));
    let owned = |pointer: *const c_char| {
        // SAFETY: one of the words, or a part of one.
        let text = unsafe { CStr::from_ptr(pointer) };
        OsString::from_vec(text.to_bytes().to_vec())
    };
    // SAFETY: the lock is held, and nothing else here uses getopt. Zero resets it.
    unsafe { optind = 0 };
    // SAFETY: as above.
    unsafe { opterr = 0 };
    let mut options = Vec::new();
    loop {
        let (count, list) = (words.len() as c_int, pointers.as_mut_ptr());
        // SAFETY: all lists are alive, and end as it expects.
        let found = unsafe {
            getopt_long(
                count,
                list,
                short.as_ptr(),
                long.as_ptr(),
                std::ptr::null_mut(),
            )
        };
        if found == -1 {
            break;
        }
        if found == c_int::from(b'?') {
            options.push(None);
            return (options, Vec::new());
        }
        // SAFETY: set by the call.
        let argument = unsafe { optarg };
        options.push(Some((
            found as u8,
            (!argument.is_null()).then(|| owned(argument)),
        )));
    }
    // SAFETY: the lock is held.
    let first = unsafe { optind } as usize;
    let operands = pointers[first..words.len()].iter().map(|word| owned(*word));
    (options, operands.collect())
}

fn of_ours(grammar: &Grammar, words: &[String]) -> Outcome {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let mut found = Vec::new();
    let operands = getopt::parse(
        grammar.short,
        grammar.long,
        grammar.permute,
        &words,
        &mut found,
    );
    let mut options: Vec<_> = found.into_iter().map(Some).collect();
    if let Ok(operands) = operands {
        return (options, operands);
    }
    options.push(None);
    (options, Vec::new())
}

/// The grammars of dumb-init and catatonit, and one with several long options.
const GRAMMARS: [Grammar; 3] = [
    Grammar {
        short: "hvVcr:",
        long: &[
            ("help", false, b'h'),
            ("single-child", false, b'c'),
            ("rewrite", true, b'r'),
            ("verbose", false, b'v'),
            ("version", false, b'V'),
        ],
        permute: false,
    },
    Grammar {
        short: "ghLPV",
        long: &[("version", false, b'V')],
        permute: true,
    },
    Grammar {
        short: "r:e:v",
        long: &[
            ("re", true, b'e'),
            ("rewrite", true, b'r'),
            ("verbose", false, b'v'),
        ],
        permute: true,
    },
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "--?(he|help|single|re|rewrite|ver|verb|verbose|version|vx)(=(1:2)?)?",
        "-[hvVcrgLPex:=-]{1,4}",
        "-{0,3}",
        "[a-c:]{0,2}",
    ]
}

/// C reads its own kind of text only.
fn c_text() -> impl Strategy<Value = String> {
    "[ \t\n\x0b]?[-+]?[0-9]{0,22}[ :x]?[-+]?[0-9]{0,3}"
}

#[test]
fn the_last_part_of_the_path_names_the_program() {
    let (tini, dumb_init, catatonit) = (
        "tini version 0.19.0 ",
        "dumb-init v1.2.5\n",
        "tini version 0.1.7_catatonit ",
    );
    for (name, version) in [
        ("tini", tini),
        ("/usr/bin/tini-static", tini),
        ("/sbin/docker-init", tini),
        ("./dumb-init", dumb_init),
        ("/run/podman-init", catatonit),
        ("catatonit", catatonit),
    ] {
        let answer = program(name).parse(&[name, "--version"].map(OsString::from), &[]);
        let Err(Answer::Stdout(text) | Answer::Stderr(0, text)) = answer else {
            panic!("{name} --version runs a command");
        };
        assert!(text.starts_with(version), "{name}: {text}");
    }
    for name in ["treaper", "tini/", ""] {
        assert!(Program::named(OsStr::new(name)).is_none(), "{name}");
    }
}

fn program(name: &str) -> Program {
    Program::named(OsStr::new(name)).unwrap()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    #[cfg(target_env = "gnu")]
    fn options_are_what_the_c_library_finds(which in 0..3_usize, words in prop::collection::vec(word(), 0..7)) {
        let grammar = &GRAMMARS[which];
        prop_assert_eq!(of_ours(grammar, &words), of_the_c_library(grammar, &words));
    }

    #[test]
    fn numbers_are_what_the_c_library_finds(text in c_text()) {
        let c = CString::new(text.as_str()).unwrap();
        let mut end = std::ptr::null_mut();
        // 64 bits on every processor.
        // SAFETY: a string that is alive, and a place for the end.
        let number = unsafe { libc::strtoll(c.as_ptr(), &raw mut end, 10) };
        let read = end as usize - c.as_ptr() as usize;
        let expected = ((read > 0).then_some(number), &text[read..]);
        prop_assert_eq!(leading_number(&text), expected);
    }

    /// dumb-init reads them with sscanf, which is undefined for numbers out of the range of an int.
    #[test]
    fn rewrites_of_dumb_init_are_what_the_c_library_finds(text in "[ \t]?[-+]?[0-9]{0,3}:?[ +-]?[0-9]{0,3}[:x ]?") {
        let (mut from, mut to): (c_int, c_int) = (0, 0);
        let c = CString::new(text.as_str()).unwrap();
        // SAFETY: strings that are alive, and a place for each of the two numbers.
        let count = unsafe { libc::sscanf(c.as_ptr(), c"%d:%d".as_ptr(), &raw mut from, &raw mut to) };
        let expected = count == 2 && (1..=31).contains(&from) && (0..=31).contains(&to);
        let words = ["dumb-init", "-c", "-r", &text, "true"].map(OsString::from);
        match program("dumb-init").parse(&words, &[]) {
            Ok(start) => {
                let config = start.config.unwrap();
                prop_assert!(expected, "{} was accepted", text);
                let found = config.rewrites.iter().map(|(from, to)| (from.number().into(), to.map_or(0, |to| to.number().into())));
                // No process can take these two.
                let expected = if matches!(from, libc::SIGKILL | libc::SIGSTOP) { vec![] } else { vec![(from, to)] };
                prop_assert_eq!(found.collect::<Vec<(c_int, c_int)>>(), expected);
            }
            Err(answer) => prop_assert!(!expected && matches!(answer, Answer::Stderr(1, _)), "{} was refused", text),
        }
    }

    #[test]
    fn no_command_line_of_another_init_crashes_it(
        which in 0..3_usize,
        words in prop::collection::vec(prop_oneof![word().prop_map(String::into_bytes), prop::collection::vec(1..=255_u8, 0..5)], 0..6),
    ) {
        let name = ["tini", "dumb-init", "catatonit"][which];
        let words = words.into_iter().map(OsString::from_vec);
        let words: Vec<OsString> = [OsString::from(name)].into_iter().chain(words).collect();
        if let Ok(start) = program(name).parse(&words, &[]) {
            let (command, pauses) = (&start.command, start.pauses);
            prop_assert!(!command.is_empty());
            let all = command.iter().all(|word| words.contains(word) || word.as_bytes().is_empty());
            prop_assert!(all || pauses, "{:?}", command);
            prop_assert!(start.config.is_ok());
        }
    }
}
