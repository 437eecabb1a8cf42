//! The rules of `src/` that the compiler does not check: a module names only modules before it, in the order of
//! ARCHITECTURE.md; `unsafe` is in `src/sys/` alone; nothing panics.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

struct Source {
    /// For example `src/dropin/tini.rs`.
    path: String,
    /// The top module, for example `dropin`.
    module: String,
    /// The code without comments, strings and tests.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let below = dirs.iter().flat_map(|dir| self::files(dir));
    let rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
    files.into_iter().chain(below).filter(rust).collect()
}

fn sources() -> Vec<Source> {
    let read = |path: PathBuf| {
        let whole = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let module = path.split('/').nth(1).unwrap().trim_end_matches(".rs");
        Source {
            path: path.to_owned(),
            module: module.to_owned(),
            code: code_only(&whole),
        }
    };
    files(&root().join("src")).into_iter().map(read).collect()
}

/// Blanks comments, strings and characters, and all that follows `#[cfg(test)]`. That is enough for code from rustfmt.
fn code_only(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\n").next().unwrap();
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").unwrap() + 5
        } else if first == '"' {
            let mut end = 1;
            while rest.as_bytes()[end] != b'"' {
                end += 1 + usize::from(rest.as_bytes()[end] == b'\\');
            }
            end + 1
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

/// The first words of the lines in the block of ARCHITECTURE.md that is marked `order`.
fn order() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let block = text
        .split("```order\n")
        .nth(1)
        .unwrap_or_else(|| panic!("ARCHITECTURE.md has no block of the order"));
    let block = block.split("```").next().unwrap();
    block.split_whitespace().map(str::to_owned).collect()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The modules named after `crate::`, alone or in braces.
fn named(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c == '$' || is_word(c as u8)) {
            continue;
        }
        let after = &code[at + found.len()..];
        let first_word = |text: &str| -> String {
            text.trim_start()
                .bytes()
                .take_while(|byte| is_word(*byte))
                .map(char::from)
                .collect()
        };
        let Some(group) = after.strip_prefix('{') else {
            names.push(first_word(after));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (at, byte) in group.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b',' | b'}' if depth == 0 => {
                    names.push(first_word(&group[start..at]));
                    start = at + 1;
                    if byte == b'}' {
                        break;
                    }
                }
                b'}' => depth -= 1,
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].bytes().last().is_some_and(is_word);
        let after = code[at + word.len()..].bytes().next().is_some_and(is_word);
        !before && !after
    })
}

fn fail_on(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn modules_name_only_modules_before_them() {
    let order = order();
    let place = |module: &str| order.iter().position(|known| known == module);
    let mut broken = Vec::new();
    for source in sources() {
        if ["lib", "main"].contains(&source.module.as_str()) {
            continue;
        }
        let Some(own) = place(&source.module) else {
            broken.push(format!(
                "{}: not in the order of ARCHITECTURE.md",
                source.path
            ));
            continue;
        };
        for name in named(&source.code) {
            // Other names are those of macros or types in the root of the crate.
            let above = place(&name).is_none_or(|other| other > own);
            if above {
                broken.push(format!(
                    "{}: names crate::{name}, which comes later",
                    source.path
                ));
            }
        }
    }
    for module in &order {
        let exists = sources().iter().any(|source| source.module == *module);
        if !exists {
            broken.push(format!("ARCHITECTURE.md: there is no module {module}"));
        }
    }
    fail_on(&broken);
}

#[test]
fn unsafe_is_in_sys_alone() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.module != "sys") {
        if has_word(&source.code, "unsafe") {
            broken.push(format!("{}: unsafe", source.path));
        }
        // Cargo.toml denies unsafe code, and no other file may allow it again.
        if has_word(&source.code, "unsafe_code") {
            broken.push(format!("{}: allows unsafe code", source.path));
        }
    }
    fail_on(&broken);
}

#[test]
fn nothing_panics_or_prints() {
    let never = [
        ".unwrap()",
        ".expect(",
        "panic!",
        "todo!",
        "unimplemented!",
        "unreachable!",
        "dbg!",
        "println!",
        "eprintln!",
    ];
    let mut broken = Vec::new();
    for source in sources() {
        for word in never.iter().filter(|word| source.code.contains(*word)) {
            broken.push(format!("{}: {word}", source.path));
        }
    }
    fail_on(&broken);
}

#[test]
fn architecture_has_a_line_for_each_file() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let paths = sources().into_iter().map(|source| source.path);
    let missing = paths.filter(|path| !text.contains(&format!("`{path}`")));
    fail_on(
        &missing
            .map(|path| format!("ARCHITECTURE.md: no line for {path}"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn the_checks_see_what_they_look_for() {
    let text = "use crate::{a::{b, c}, d};\nfn f() { crate::e::g(); } // crate::h\nlet s = \"crate::i \\\" unsafe\";\n\
                \n#[cfg(test)]\nmod tests { crate::k; }";
    let code = code_only(text);
    assert_eq!(named(&code), ["a", "d", "e"]);
    assert!(!has_word(&code, "unsafe"));
    assert!(has_word("x unsafe {", "unsafe") && !has_word("unsafe_code", "unsafe"));
}
