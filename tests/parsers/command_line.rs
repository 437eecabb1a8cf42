//! Command lines and variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::PossibleValue;
use proptest::prelude::*;
use treaper::settings::cli::{self, Parsed};
use treaper::settings::config::Config;
use treaper::settings::options;

use crate::config;

fn words(line: &str) -> Vec<OsString> {
    let words = ["treaper"].into_iter().chain(line.split(' '));
    words.map(OsString::from).collect()
}

/// What the grammar of all options makes of the words.
fn by_the_whole_grammar(words: &[OsString]) -> Option<String> {
    let matches = cli::grammar().try_get_matches_from(words).ok()?;
    let config = Config::new(matches, Vec::new()).ok()?;
    Some(format!("{config:?}"))
}

fn by_the_small_grammar(words: &[OsString]) -> Option<String> {
    match cli::parse(words, &[]).ok()? {
        Parsed::Run(config) => Some(format!("{config:?}")),
        Parsed::Print(_) => None,
    }
}

/// A value that the option takes, and that is not its default.
fn value_of(long: &str, name: &str, words: &[&str]) -> &'static str {
    match (long, name) {
        ("stdin" | "hup", _) => "watch forward"
            .split(' ')
            .find(|word| words.contains(word))
            .unwrap(),
        ("contain", _) => "pidns",
        ("stdout", _) => "watch",
        ("kill-mode" | "until" | "forward-to", _) => "tree",
        ("term", _) => "forward",
        ("doctor", _) => "json",
        ("log", _) => "debug",
        (_, "TIME") => "77s",
        (_, "PID") => "77",
        (_, "SIGNAL" | "STATUS") => "USR1",
        (_, "FROM:TO") => "USR1:USR2",
        (_, "unix:PATH") => "unix:/x",
        (_, "MATCH") => "a=b",
        (_, "NAME" | "FILE" | "COMMAND") => "x",
        _ => unreachable!("--{long} {name}: add a value here"),
    }
}

/// Otherwise an option would be accepted and have no effect.
#[test]
fn each_option_and_each_variable_changes_the_settings() {
    // These need another option.
    let with = [
        ("turn", "--cancel=a=b "),
        ("cancel", "--turn=a=b "),
        ("boundary", "--cancel=a=b --turn=a=b "),
        ("cancel-drain", "--cancel=a=b --turn=a=b "),
    ];
    for option in options::all() {
        let (long, arg) = (option.long, option.argument());
        let more = with
            .iter()
            .find(|(known, _)| *known == long)
            .map_or("", |(_, more)| more);
        let possible = arg.get_possible_values();
        let possible: Vec<&str> = possible.iter().map(PossibleValue::get_name).collect();
        let name = arg.get_value_names().map(|names| names[0].to_string());
        let value = name.map(|name| value_of(long, &name, &possible));
        let command = if long == "doctor" { "" } else { "cmd" };
        let line = match value {
            Some(value) => format!("{more}--{long}={value} {command}"),
            None => format!("{more}--{long} {command}"),
        };
        let without = words(&format!("{more}{command}"));
        let line = words(line.trim());
        let changed = by_the_small_grammar(&line);
        assert!(changed.is_some(), "--{long}");
        assert_ne!(changed, by_the_small_grammar(&without), "--{long}");
        let Some(variable) = option.variable() else {
            continue;
        };
        let text = OsString::from(value.unwrap_or("1"));
        match cli::parse(&without, &[(OsString::from(&variable), text)]) {
            Ok(Parsed::Run(config)) => {
                // Only for messages, some settings say where they come from.
                let found = format!("{config:?}").replace(&variable, &format!("--{long}"));
                assert_eq!(Some(found), changed, "--{long}");
            }
            other => unreachable!("{variable}: {other:?}"),
        }
    }
}

#[test]
fn the_small_grammar_parses_as_the_whole_one_does() {
    for line in [
        "cmd",
        "-- cmd",
        "cmd -s KILL --drain 1 -h --help --version",
        "-- -s --signal",
        "-sKILL cmd",
        "-s KILL -g 1s cmd -v",
        "-vvs KILL -- cmd -v",
        "--signal=KILL --signal TERM --watch-pid 1 --watch-pid=2 cmd",
        "--stderr --help cmd",
        "--stderr -- -- cmd",
        "--no-guard --no-parent -v -v cmd --no-guard",
        "--stderr -g -k tree -- cmd",
        "--stdin auto --stdout=watch x --until tree",
    ] {
        let words = words(line);
        let whole = by_the_whole_grammar(&words);
        assert!(whole.is_some(), "{line}");
        assert_eq!(by_the_small_grammar(&words), whole, "{line}");
    }
}

#[test]
fn each_mistake_is_named() {
    for (line, text) in [
        (
            "--sginal TERM cmd",
            "'--sginal' found; did you mean --signal?",
        ),
        ("-x cmd", "-x"),
        ("--signal", "--signal <SIGNAL>"),
        ("-v=2 cmd", "unexpected argument"),
        ("-vv3 cmd", "unexpected argument '-3'"),
        ("--verbose=2 cmd", "'--verbose...'"),
        ("-vx cmd -v=2", "-x"),
        ("--no-guard=1 cmd", "--no-guard"),
        (
            "--stdin=x cmd",
            "--stdin: invalid value 'x': expected one of auto, watch, ignore",
        ),
        ("-v", "no COMMAND"),
    ] {
        let error = cli::parse(&words(line), &[]).unwrap_err().to_string();
        assert!(
            error.contains(text) && error.lines().count() == 1,
            "{line}: {error}"
        );
    }
    for line in ["--help", "-h", "-vh", "--version", "-V"] {
        assert!(
            matches!(cli::parse(&words(line), &[]), Ok(Parsed::Print(_))),
            "{line}"
        );
    }
    let bytes = [
        OsString::from("treaper"),
        OsStr::from_bytes(b"--grace=\xff").into(),
        "x".into(),
    ];
    let error = cli::parse(&bytes, &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("--grace: ") && error.ends_with("not valid UTF-8"),
        "{error}"
    );
}

fn word() -> impl Strategy<Value = String> {
    let longs: Vec<&str> = options::all().map(|option| option.long).collect();
    prop_oneof![
        4 => (prop::sample::select(longs), "(=[a-z0-9]{0,3})?").prop_map(|(long, value)| format!("--{long}{value}")),
        2 => "-[skdgvhVx]{1,3}[0-9=]?",
        2 => "[a-z0-9]{0,4}|tree|TERM|--|-",
        1 => "-{0,2}[a-z=-]{0,6}|\\PC{0,6}",
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_command_line_is_too_strange(words in prop::collection::vec(word(), 0..6)) {
        let words: Vec<OsString> = [&["treaper".to_owned()], &words[..]].concat().into_iter().map(Into::into).collect();
        prop_assert_eq!(by_the_small_grammar(&words), by_the_whole_grammar(&words));
        if let Err(error) = cli::parse(&words, &[]) {
            let text = error.to_string();
            prop_assert!(!text.is_empty() && !text.starts_with("error") && !text.contains('\n'), "{}", text);
        }
    }
}
