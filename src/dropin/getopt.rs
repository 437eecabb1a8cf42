//! `getopt(3)` and `getopt_long(3)` as in glibc, which the other inits use. They decide where the
//! options end, which options may be abbreviated, and what the message about a mistake says.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A long option: its name, whether it takes an argument, the letter that it stands for.
pub type Long = (&'static str, bool, u8);

/// An option as it was given: its letter, and its argument.
pub type FoundOption = (u8, Option<OsString>);

/// Reads the arguments, one option after the other.
#[derive(Debug)]
pub struct Getopt<'a> {
    /// The letters, as `getopt(3)` takes them: a colon follows a letter that has an argument.
    short: &'static str,
    /// Empty for `getopt(3)`, which has no long options.
    long: &'static [Long],
    /// Whether options may come after a word that is not an option.
    permute: bool,
    words: std::slice::Iter<'a, OsString>,
    /// The rest of a word of several letters.
    cluster: Vec<u8>,
    /// The words that are not options: all of them, once there is no further option.
    pub operands: Vec<OsString>,
}

impl<'a> Getopt<'a> {
    /// `arguments` without the program's name.
    pub fn new(
        short: &'static str,
        long: &'static [Long],
        permute: bool,
        arguments: &'a [OsString],
    ) -> Self {
        Self {
            short,
            long,
            permute,
            words: arguments.iter(),
            cluster: Vec::new(),
            operands: Vec::new(),
        }
    }

    /// The next option. `None`: there is no further one. The error is the message of glibc, without
    /// the program's name.
    pub fn next_option(&mut self) -> Result<Option<FoundOption>, String> {
        while self.cluster.is_empty() {
            let Some(word) = self.words.next() else {
                return Ok(None);
            };
            match word.as_bytes() {
                b"--" => self.operands.extend(self.words.by_ref().cloned()),
                [b'-', b'-', text @ ..] if !self.long.is_empty() => {
                    return self.long_option(text).map(Some);
                }
                [b'-', letters @ ..] if !letters.is_empty() => self.cluster = letters.to_vec(),
                _ => {
                    self.operands.push(word.clone());
                    if !self.permute {
                        self.operands.extend(self.words.by_ref().cloned());
                    }
                }
            }
        }
        self.letter().map(Some)
    }

    fn letter(&mut self) -> Result<FoundOption, String> {
        let letter = self.cluster.remove(0);
        let short = self.short.as_bytes();
        let known = short.iter().position(|at| *at == letter && letter != b':');
        let shown = char::from(letter);
        let at = known.ok_or_else(|| format!("invalid option -- '{shown}'"))?;
        if short.get(at + 1) != Some(&b':') {
            return Ok((letter, None));
        }
        let rest = std::mem::take(&mut self.cluster);
        let rest = Some(OsString::from_vec(rest)).filter(|rest| !rest.is_empty());
        match rest.or_else(|| self.words.next().cloned()) {
            None => Err(format!("option requires an argument -- '{shown}'")),
            argument => Ok((letter, argument)),
        }
    }

    fn long_option(&mut self, text: &[u8]) -> Result<FoundOption, String> {
        let mut parts = text.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().map(<[u8]>::to_vec).map(OsString::from_vec);
        let begun = |long: &&Long| long.0.as_bytes().starts_with(name);
        let mut all: Vec<&Long> = self.long.iter().filter(begun).collect();
        if let Some(exact) = all.iter().position(|long| long.0.as_bytes() == name) {
            all = vec![all[exact]];
        }
        match (all.as_slice(), value) {
            ([], _) => Err(format!(
                "unrecognized option '--{}'",
                String::from_utf8_lossy(text)
            )),
            ([(full, false, _)], Some(_)) => {
                Err(format!("option '--{full}' doesn't allow an argument"))
            }
            ([(_, false, letter)], None) => Ok((*letter, None)),
            ([(full, true, letter)], value) => match value.or_else(|| self.words.next().cloned()) {
                None => Err(format!("option '--{full}' requires an argument")),
                argument => Ok((*letter, argument)),
            },
            (several, _) => {
                let names: Vec<String> = several.iter().map(|l| format!("'--{}'", l.0)).collect();
                let (name, names) = (String::from_utf8_lossy(name), names.join(" "));
                Err(format!(
                    "option '--{name}' is ambiguous; possibilities: {names}"
                ))
            }
        }
    }
}
