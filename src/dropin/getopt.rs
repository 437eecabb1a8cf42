//! `getopt(3)` and `getopt_long(3)` as in glibc, which the other inits use. They decide where the options end, which
//! options may be abbreviated, and what the message about a mistake says.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A long option: its name, whether it takes an argument, the letter that it stands for.
pub type Long = (&'static str, bool, u8);

/// The options of a program.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    /// The letters, as `getopt(3)` takes them: a colon follows a letter that has an argument.
    pub short: &'static str,
    /// Empty for `getopt(3)`, which has no long options.
    pub long: &'static [Long],
    /// Whether options may come after a word that is not an option (not if `POSIXLY_CORRECT` is set).
    pub permute: bool,
}

/// An option as it was given: its letter, and its argument.
pub type Given = (u8, Option<OsString>);

/// Reads the arguments, one option after the other.
#[derive(Debug)]
pub struct Getopt {
    grammar: Grammar,
    words: std::vec::IntoIter<OsString>,
    /// The rest of a word of several letters.
    cluster: Vec<u8>,
    /// Words that are not options.
    operands: Vec<OsString>,
}

impl Getopt {
    /// `arguments` without the program's name.
    #[must_use]
    pub fn new(grammar: Grammar, arguments: Vec<OsString>) -> Self {
        Self {
            grammar,
            words: arguments.into_iter(),
            cluster: Vec::new(),
            operands: Vec::new(),
        }
    }

    /// The next option. The error is the message of glibc, without the program's name.
    pub fn next_option(&mut self) -> Option<Result<Given, String>> {
        if !self.cluster.is_empty() {
            return Some(self.letter());
        }
        loop {
            let word = self.words.next()?;
            let bytes = word.as_bytes();
            if bytes == b"--" {
                self.end_options();
                return None;
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                self.operands.push(word);
                if self.grammar.permute {
                    continue;
                }
                self.end_options();
                return None;
            }
            if bytes[1] == b'-' && !self.grammar.long.is_empty() {
                let text = bytes[2..].to_vec();
                return Some(self.long(&text));
            }
            self.cluster = bytes[1..].to_vec();
            return Some(self.letter());
        }
    }

    /// The words that are not options, after [`Self::next_option`] has returned `None`.
    #[must_use]
    pub fn operands(self) -> Vec<OsString> {
        self.operands
    }

    fn end_options(&mut self) {
        self.operands.extend(self.words.by_ref());
    }

    fn letter(&mut self) -> Result<Given, String> {
        let letter = self.cluster.remove(0);
        let known = self.grammar.short.bytes().position(|at| at == letter);
        let Some(at) = known.filter(|_| letter != b':') else {
            return Err(format!("invalid option -- '{}'", char::from(letter)));
        };
        if self.grammar.short.as_bytes().get(at + 1) != Some(&b':') {
            return Ok((letter, None));
        }
        let rest = std::mem::take(&mut self.cluster);
        let argument = if rest.is_empty() {
            self.words.next()
        } else {
            Some(OsString::from_vec(rest))
        };
        match argument {
            Some(argument) => Ok((letter, Some(argument))),
            None => Err(format!(
                "option requires an argument -- '{}'",
                char::from(letter)
            )),
        }
    }

    fn long(&mut self, text: &[u8]) -> Result<Given, String> {
        let end = text.iter().position(|byte| *byte == b'=');
        let (name, value) = match end {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]))),
            None => (text, None),
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        let exact = |long: &&Long| long.0.as_bytes() == name;
        let begun = |long: &&Long| long.0.as_bytes().starts_with(name);
        let all: Vec<&Long> = match self.grammar.long.iter().find(exact) {
            Some(long) => vec![long],
            None => self.grammar.long.iter().filter(begun).collect(),
        };
        let (full, takes, letter) = match all.as_slice() {
            [] => {
                let text = String::from_utf8_lossy(text);
                return Err(format!("unrecognized option '--{text}'"));
            }
            [one] => **one,
            several => {
                let names: Vec<String> = several.iter().map(|l| format!("'--{}'", l.0)).collect();
                return Err(format!(
                    "option '--{shown}' is ambiguous; possibilities: {}",
                    names.join(" ")
                ));
            }
        };
        match (takes, value) {
            (false, None) => Ok((letter, None)),
            (false, Some(_)) => Err(format!("option '--{full}' doesn't allow an argument")),
            (true, Some(value)) => Ok((letter, Some(value.to_owned()))),
            (true, None) => match self.words.next() {
                Some(value) => Ok((letter, Some(value))),
                None => Err(format!("option '--{full}' requires an argument")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &[Long] = &[
        ("verbose", false, b'v'),
        ("version", false, b'V'),
        ("rewrite", true, b'r'),
    ];

    fn run(grammar: Grammar, words: &[&str]) -> (Vec<String>, Vec<OsString>) {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let (mut getopt, mut seen) = (Getopt::new(grammar, words), Vec::new());
        while let Some(item) = getopt.next_option() {
            seen.push(match item {
                Ok((letter, None)) => char::from(letter).to_string(),
                Ok((letter, Some(text))) => format!("{}={}", char::from(letter), text.display()),
                Err(complaint) => complaint,
            });
        }
        (seen, getopt.operands())
    }

    #[test]
    fn letters_can_be_joined_and_take_arguments() {
        let grammar = Grammar {
            short: "p:vs",
            long: &[],
            permute: true,
        };
        let (seen, left) = run(grammar, &["-svvpX", "a", "-p", "Y", "-", "--", "-s"]);
        assert_eq!(seen, ["s", "v", "v", "p=X", "p=Y"]);
        assert_eq!(left, ["a", "-", "-s"]);
        let (seen, _) = run(grammar, &["--x", "-p"]);
        let expected = [
            "invalid option -- '-'",
            "invalid option -- 'x'",
            "option requires an argument -- 'p'",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn long_names_can_be_abbreviated_while_they_are_unique() {
        let grammar = Grammar {
            short: "vVr:",
            long: LONG,
            permute: false,
        };
        let words = [
            "--re=1:2",
            "--rewrite",
            "3:4",
            "--verb",
            "--ver",
            "--versio=x",
            "--no",
            "c",
            "-v",
        ];
        let (seen, left) = run(grammar, &words);
        let expected = [
            "r=1:2",
            "r=3:4",
            "v",
            "option '--ver' is ambiguous; possibilities: '--verbose' '--version'",
            "option '--version' doesn't allow an argument",
            "unrecognized option '--no'",
        ];
        assert_eq!(seen, expected);
        assert_eq!(left, ["c", "-v"]);
    }
}
