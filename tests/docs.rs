//! Options, `--help`, manual, completions and README say the same, in both directions.
//!
//! `UPDATE=1 cargo test --test docs` writes what is generated: `completions/` and the help in README.md.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

#[path = "docs/completions.rs"]
mod completions;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use treaper::cli::{self, OPTIONS, Opt, Takes};
use treaper::config;
use treaper::event::Trigger;
use treaper::status;

/// What a help text has to fit on.
const SCREEN: (usize, usize) = (40, 100);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn help() -> String {
    cli::grammar().render_help().to_string()
}

/// `name` must hold `expected`, or gets it with `UPDATE=1`.
fn same(name: &str, found: &str, expected: &str, whole: &str) {
    if found == expected {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        let path: PathBuf = root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, whole).unwrap();
    } else {
        panic!("{name} is out of date: UPDATE=1 cargo test --test docs");
    }
}

/// The value in brackets at the end of a help text.
fn default(option: &Opt) -> Option<&'static str> {
    Some(option.help.rsplit_once(" [")?.1.trim_end_matches(']'))
}

/// The words between "--" and whatever ends a long option, wherever `text` has one.
fn long_options(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| -> String {
        let is_part = |c: &char| c.is_ascii_lowercase() || *c == '-';
        rest.chars().take_while(is_part).collect()
    };
    let all = text.split("--").skip(1).map(name);
    all.filter(|name| !name.is_empty() && !name.starts_with('-'))
        .collect()
}

fn known_options() -> BTreeSet<String> {
    let own = OPTIONS.iter().map(|option| option.long);
    own.chain(["help", "version"]).map(str::to_owned).collect()
}

/// The section of the manual under `heading`.
fn section<'a>(manual: &'a str, heading: &str) -> &'a str {
    let start = format!(".Sh {heading}\n");
    let (_, rest) = manual
        .split_once(&start)
        .unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n.Sh ").next().unwrap()
}

/// The items of a section: the line of each, and what is below it.
fn items(section: &str) -> Vec<(&str, &str)> {
    let items = section.split("\n.It ").skip(1);
    items
        .map(|item| item.split_once('\n').unwrap_or((item, "")))
        .collect()
}

#[test]
fn the_help_fits_a_screen_and_names_each_exit_status() {
    let help = help();
    let (lines, columns) = SCREEN;
    assert!(
        help.lines().count() <= lines,
        "{} lines",
        help.lines().count()
    );
    for line in help.lines() {
        assert!(line.chars().count() <= columns, "{line}");
    }
    for code in codes() {
        assert!(help.contains(&code), "no exit status {code} in the help");
    }
    assert_eq!(long_options(&help), known_options());
}

fn codes() -> [String; 4] {
    [
        status::SURVIVORS,
        status::OWN_FAILURE,
        status::NOT_EXECUTABLE,
        status::NOT_FOUND,
    ]
    .map(|code| code.to_string())
}

#[test]
fn the_manual_has_each_option_and_no_other() {
    let manual = read("man/treaper.1");
    let items = items(section(&manual, "OPTIONS"));
    let mut seen = Vec::new();
    for (line, text) in &items {
        let words: Vec<&str> = line.split(' ').collect();
        let long = words.windows(3).find(|three| three[..2] == ["Fl", "Fl"]);
        let long = long.unwrap_or_else(|| panic!("not an option: {line}"))[2];
        seen.push(long);
        let Some(option) = OPTIONS.iter().find(|option| option.long == long) else {
            continue;
        };
        let short = words
            .starts_with(&["Fl"])
            .then(|| words[1])
            .filter(|word| *word != "Fl");
        let expected = option.short.map(String::from);
        assert_eq!(short.map(str::to_owned), expected, "{line}");
        if let Some(default) = default(option) {
            let stated = format!("Default:\n.Cm {default} .");
            assert!(text.contains(&stated), "--{long}: no default {default}");
        }
        for word in completions::words(option) {
            assert!(
                text.contains(&format!(".Cm {word}")) || line.contains(&format!("Cm {word}")),
                "--{long}: no word {word}"
            );
        }
        let repeatable = matches!(option.takes, Takes::Many(_));
        assert_eq!(
            text.contains("\nRepeatable."),
            repeatable,
            "--{long}: repeatable?"
        );
    }
    let order = OPTIONS.iter().map(|option| option.long);
    let order: Vec<&str> = order.chain(["help", "version"]).collect();
    assert_eq!(seen, order, "options, in the order of the help");
}

#[test]
fn the_manual_has_each_trigger_exit_status_and_variable() {
    let manual = read("man/treaper.1");
    let triggers = items(section(&manual, "TRIGGERS"));
    let named: Vec<&str> = triggers
        .iter()
        .map(|(line, _)| line.trim_start_matches("Cm "))
        .collect();
    assert_eq!(
        named,
        Trigger::ALL.map(Trigger::name),
        "triggers, in their order"
    );
    let statuses = items(section(&manual, "EXIT STATUS"));
    let named: Vec<&str> = statuses.iter().map(|(line, _)| *line).collect();
    let expected = [vec!["n".to_owned(), "128+n".to_owned()], codes().to_vec()].concat();
    assert_eq!(named, expected, "exit statuses");
}

#[test]
fn variables_that_are_named_exist() {
    let known: BTreeSet<String> = OPTIONS
        .iter()
        .map(|option| config::variable(option.long))
        .collect();
    let also = ["TREAPER_LOG", "TREAPER_NAME", "TREAPER_"];
    for name in [
        "README.md",
        "man/treaper.1",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ] {
        let text = read(name);
        for (at, _) in text.match_indices("TREAPER_") {
            let is_part = |c: &char| c.is_ascii_uppercase() || *c == '_';
            let variable: String = text[at..].chars().take_while(is_part).collect();
            let exists = known.contains(&variable) || also.contains(&variable.as_str());
            assert!(exists, "{name}: no such variable: {variable}");
        }
    }
}

#[test]
fn the_readme_shows_the_help_and_only_options_that_exist() {
    let readme = read("README.md");
    let (before, rest) = readme.split_once("```console\n$ treaper --help\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    let expected = help();
    let whole = format!("{before}```console\n$ treaper --help\n{expected}```\n{after}");
    same("README.md", shown, &expected, &whole);
    let known = known_options();
    for line in readme
        .lines()
        .filter(|line| line.contains("treaper -") || line.contains("treaper`"))
    {
        // What follows a lone `--` is another program's.
        let own = line.split(" -- ").next().unwrap();
        for option in long_options(own) {
            assert!(
                known.contains(&option),
                "README.md: no such option: --{option} in: {line}"
            );
        }
    }
    for trigger in Trigger::ALL {
        assert!(
            readme.contains(trigger.name()),
            "README.md does not name {trigger}"
        );
    }
}

#[test]
fn completions_are_those_of_the_options() {
    for (name, expected) in completions::all() {
        let name = format!("completions/{name}");
        let found = std::fs::read_to_string(root().join(&name)).unwrap_or_default();
        same(&name, &found, &expected, &expected);
    }
}
