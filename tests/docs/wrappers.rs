//! The options as the Python package and the npm package know them: their names, and the types of their values.

use std::fmt::Write;

use clap::ArgAction;
use treaper::settings::options;

use crate::completions::words;

const NOTE: &str = "Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.";
/// Keywords that have another meaning in `subprocess`.
const TAKEN: [&str; 3] = ["stdin", "stdout", "stderr"];

/// The path and the content of each file.
pub fn all() -> [(&'static str, String); 3] {
    [
        ("packaging/python/treaper/_options.py", python()),
        ("packaging/npm/options.d.ts", typescript()),
        ("packaging/npm/options.json", json()),
    ]
}

/// What a setting is in code.
struct Setting {
    name: &'static str,
    help: String,
    action: ArgAction,
    words: Vec<String>,
    value: String,
}

/// `--doctor` starts no command, so it is no setting.
fn settings() -> impl Iterator<Item = Setting> {
    let settings = options::all().filter(|option| option.long != "doctor");
    settings.map(|option| {
        let argument = option.argument();
        let value = argument.get_value_names().map(|names| names[0].to_string());
        Setting {
            name: option.long,
            help: argument.get_help().unwrap().to_string(),
            action: argument.get_action().clone(),
            words: words(&argument),
            value: value.unwrap_or_default(),
        }
    })
}

impl Setting {
    /// Its type, where `types` are those of a switch, a number, a time, a number or a word, a path, and any other value.
    fn of(&self, types: [&str; 6], list: &str, literal: impl Fn(&str) -> String) -> String {
        let [switch, number, time, either, path, text] = types;
        let one = match (&self.action, self.value.as_str()) {
            (ArgAction::SetTrue, _) => switch.to_owned(),
            (ArgAction::Count, _) => number.to_owned(),
            _ if !self.words.is_empty() => literal(&self.words.join("\", \"")),
            (_, "TIME") => time.to_owned(),
            (_, "PID" | "SIGNAL" | "STATUS") => either.to_owned(),
            (_, "FILE") => path.to_owned(),
            _ => text.to_owned(),
        };
        match self.action {
            ArgAction::Append => list.replace('T', &one),
            _ => one,
        }
    }
}

fn python() -> String {
    let mut shared = String::new();
    let mut own = String::new();
    for setting in settings() {
        let types = ["bool", "int", "Time", "Union[int, str]", "Path", "str"];
        let literal = |words: &str| format!("Literal[\"{words}\"]");
        let kind = setting.of(types, "Union[T, Sequence[T]]", literal);
        // Each may be None, which is the same as no keyword.
        let kind = format!("Optional[{kind}]");
        let (name, help) = (setting.name.replace('-', "_"), setting.help);
        if TAKEN.contains(&setting.name) {
            writeln!(shared, "    {name}_: {kind}  # {help}").unwrap();
            writeln!(own, "    {name}: {kind}").unwrap();
        } else if name == "finally" {
            // A word of Python itself.
            writeln!(shared, "    {name}_: {kind}  # {help}").unwrap();
        } else {
            writeln!(shared, "    {name}: {kind}  # {help}").unwrap();
        }
    }
    format!(
        "# {NOTE}
\"\"\"The options of treaper as keywords.\"\"\"

from __future__ import annotations

import datetime
import os
from typing import Literal, Optional, Sequence, TypedDict, Union

Time = Union[str, int, float, datetime.timedelta]  # a number is seconds
Path = Union[str, bytes, \"os.PathLike[str]\", \"os.PathLike[bytes]\"]


class Settings(TypedDict, total=False):
    required: Optional[bool]  # Without treaper: raise an error (True), or run the bare command with a warning (False) [True]
{shared}

class CommandSettings(Settings, total=False):
    # Here the names of subprocess are free.
{own}"
    )
}

/// `kill-mode` is `killMode`.
fn camel(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| {
        format!("{name}{}{}", word[..1].to_uppercase(), &word[1..])
    })
}

fn typescript() -> String {
    let mut text = format!(
        "// {NOTE}

/** A number is seconds. */
export type Time = string | number;

/** The options of treaper. Each may be undefined or null, which is the same as absent. */
export interface Settings {{
  /** Without treaper: throw an error (true), or run the bare command with a warning (false) [true] */
  required?: boolean | null | undefined;
"
    );
    for setting in settings() {
        let types = [
            "boolean",
            "number",
            "Time",
            "number | string",
            "string",
            "string",
        ];
        let literal = |words: &str| format!("\"{}\"", words.replace(", ", " | "));
        let kind = setting.of(types, "T | readonly (T)[]", literal);
        let (name, help) = (camel(setting.name), setting.help);
        writeln!(
            text,
            "  /** {help} */\n  {name}?: {kind} | null | undefined;"
        )
        .unwrap();
    }
    text + "}\n"
}

fn json() -> String {
    let names: Vec<String> = settings()
        .map(|s| format!("  \"{}\": \"{}\"", camel(s.name), s.name))
        .collect();
    format!("{{\n{}\n}}\n", names.join(",\n"))
}
