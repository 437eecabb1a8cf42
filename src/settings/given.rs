//! The values that were given for each option, on the command line or in a variable.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

use crate::output::error::Error;
use crate::settings::cli::Args;
use crate::settings::options::{OPTIONS, Opt, Takes};
use crate::settings::value;

/// The names of all variables of treaper begin with this.
pub const PREFIX: &str = "TREAPER_";
/// The only variable without an option.
const LOG: &str = "TREAPER_LOG";

/// The environment variable of an option.
#[must_use]
pub fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// One value, and where it was given.
struct Value {
    source: String,
    text: OsString,
}

impl Value {
    fn parse<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Error> {
        let text = self
            .text
            .to_str()
            .ok_or_else(|| "not valid UTF-8".to_owned());
        text.and_then(parse)
            .map_err(|expected| self.refuse(&expected))
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::Misuse(format!(
            "{}: invalid value '{}': {expected}",
            self.source,
            self.text.display()
        ))
    }
}

/// All values that were given.
pub(super) struct Given<'a> {
    args: &'a Args,
    variables: Vec<(String, OsString)>,
}

impl<'a> Given<'a> {
    /// Also returns the names of variables with the prefix that belong to no option.
    pub fn new(
        args: &'a Args,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> (Self, Vec<String>) {
        let (variables, unknown) = variables_of_treaper(environment);
        (Self { args, variables }, unknown)
    }

    /// Every value of `long` on the command line. If there is none, those of the variable.
    fn all(&self, long: &str) -> Vec<Value> {
        let typed: Vec<Value> = self
            .args
            .values
            .iter()
            .filter(|(name, _)| *name == long)
            .map(|(_, text)| Value {
                source: format!("--{long}"),
                text: text.clone(),
            })
            .collect();
        if !typed.is_empty() || self.variables.is_empty() {
            return typed;
        }
        let name = variable(long);
        let Some((_, text)) = self.variables.iter().find(|(known, _)| *known == name) else {
            return typed;
        };
        let many = OPTIONS
            .iter()
            .any(|o| o.long == long && matches!(o.takes, Takes::Many(_)));
        let given = |text: OsString| Value {
            source: name.clone(),
            text,
        };
        match text.to_str().filter(|_| many) {
            None => vec![given(text.clone())],
            Some(list) => list
                .split([',', ' '])
                .filter(|item| !item.is_empty())
                .map(|item| given(item.into()))
                .collect(),
        }
    }

    /// Whether `long` was given, on the command line or by a variable.
    pub fn has(&self, long: &str) -> bool {
        !self.all(long).is_empty()
    }

    /// What sets `long`: the option, or its variable.
    pub fn source(&self, long: &str) -> String {
        let first = self.all(long).into_iter().next();
        first.map_or_else(|| format!("--{long}"), |value| value.source)
    }

    /// The last value of `long`, unchecked.
    pub fn text(&self, long: &str) -> Option<OsString> {
        self.all(long).pop().map(|given| given.text)
    }

    /// The last value of `long`, which may hold any bytes.
    pub fn path<T>(
        &self,
        long: &str,
        parse: impl FnOnce(&OsStr) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let parse = |given: Value| parse(&given.text).map_err(|expected| given.refuse(&expected));
        self.all(long).pop().map(parse).transpose()
    }

    /// Every value of `long`, unchecked.
    pub fn texts(&self, long: &str) -> Vec<OsString> {
        let given = self.all(long).into_iter();
        given.map(|given| given.text).collect()
    }

    /// The last value of `long`.
    pub fn one<T>(
        &self,
        long: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        self.all(long)
            .pop()
            .map_or(Ok(default), |given| given.parse(parse))
    }

    /// The last value of `long`, which must be one of `words`.
    pub fn word<T: Copy>(&self, long: &str, default: T, words: &[(&str, T)]) -> Result<T, Error> {
        self.one(long, default, |text| value::word(text, words))
    }

    /// Every value of `long`.
    pub fn many<T>(
        &self,
        long: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Error> {
        self.all(long)
            .iter()
            .map(|given| given.parse(&parse))
            .collect()
    }

    pub fn log_filter(&self) -> Result<Option<String>, Error> {
        let given = self.variables.iter().find(|(name, _)| name == LOG);
        let given = given.map(|(name, text)| Value {
            source: name.clone(),
            text: text.clone(),
        });
        given
            .map(|given| given.parse(value::log_filter))
            .transpose()
    }

    pub fn switch(&self, long: &str) -> Result<bool, Error> {
        self.one(long, false, value::switch)
    }
}

/// The variables of treaper that are set (an empty one is not), and the names of those that belong to no option. The
/// latter are no error: Kubernetes makes TREAPER_SERVICE_HOST for a service of that name.
fn variables_of_treaper(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<(String, OsString)>, Vec<String>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (name, text) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let has = |option: &Opt| {
            variable(option.long) == name && !matches!(option.takes, Takes::Maybe(_))
        };
        if name != LOG && !OPTIONS.iter().any(has) {
            unknown.push(name.to_owned());
        } else if !text.is_empty() {
            known.push((name.to_owned(), text));
        }
    }
    (known, unknown)
}
