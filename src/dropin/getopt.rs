//! `getopt(3)` and `getopt_long(3)` as in glibc, which the other inits use. They decide where the
//! options end, which options may be abbreviated, and what the message about a mistake says.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A long option: its name, whether it takes an argument, the letter that it stands for.
pub type Long = (&'static str, bool, u8);

/// An option as it was given: its letter, and its argument.
pub type FoundOption = (u8, Option<OsString>);

/// Appends the options among `words` to `found`, up to the first mistake, and returns the words
/// that are no options. The error is the message of glibc, without the program's name.
/// In `short`, a colon follows a letter that takes an argument. Without `long`, this is
/// `getopt(3)`. `permute`: options may come after a word that is not an option.
pub fn parse(
    short: &str,
    long: &[Long],
    permute: bool,
    words: &[OsString],
    found: &mut Vec<FoundOption>,
) -> Result<Vec<OsString>, String> {
    let mut operands = Vec::new();
    let mut words = words.iter().cloned();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => operands.extend(&mut words),
            [b'-', b'-', text @ ..] if !long.is_empty() => {
                found.push(long_option(long, text, &mut words)?);
            }
            [b'-', letters @ ..] if !letters.is_empty() => {
                let mut letters = letters;
                while let [letter, rest @ ..] = letters {
                    letters = rest;
                    let shown = char::from(*letter);
                    let known = short.split_once(shown).filter(|_| shown != ':');
                    let (_, after) = known.ok_or_else(|| format!("invalid option -- '{shown}'"))?;
                    let mut argument = None;
                    if after.starts_with(':') {
                        let attached = OsStr::from_bytes(std::mem::take(&mut letters));
                        let attached = Some(attached).filter(|text| !text.is_empty());
                        argument = attached.map(OsStr::to_owned).or_else(|| words.next());
                        if argument.is_none() {
                            return Err(format!("option requires an argument -- '{shown}'"));
                        }
                    }
                    found.push((*letter, argument));
                }
            }
            _ => {
                operands.push(word);
                if !permute {
                    operands.extend(&mut words);
                }
            }
        }
    }
    Ok(operands)
}

fn long_option(
    long: &[Long],
    text: &[u8],
    words: &mut impl Iterator<Item = OsString>,
) -> Result<FoundOption, String> {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().map(OsStr::from_bytes);
    let begun = |long: &&Long| long.0.as_bytes().starts_with(name);
    let mut meant: Vec<&Long> = long.iter().filter(begun).collect();
    if let Some(exact) = meant.iter().find(|long| long.0.as_bytes() == name) {
        meant = vec![exact];
    }
    let text = String::from_utf8_lossy(text);
    let [(full, takes_argument, letter)] = meant[..] else {
        let names = meant.iter().map(|long| format!(" '--{}'", long.0));
        let names = names.collect::<Vec<_>>().concat();
        return Err(match meant.len() {
            0 => format!("unrecognized option '--{text}'"),
            _ => format!("option '--{text}' is ambiguous; possibilities:{names}"),
        });
    };
    match (*takes_argument, value) {
        (false, None) => Ok((*letter, None)),
        (false, _) => Err(format!("option '--{full}' doesn't allow an argument")),
        (true, value) => match value.map(OsStr::to_owned).or_else(|| words.next()) {
            None => Err(format!("option '--{full}' requires an argument")),
            argument => Ok((*letter, argument)),
        },
    }
}
