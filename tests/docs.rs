//! Options, `--help`, manuals, completions, `--doctor` and README say the same, in both directions.
//!
//! `UPDATE=1 cargo test --features fixtures --test docs` writes what is generated: `completions/`, the options of
//! the Python package and the npm package, and in README.md and the manual the table of the guarantees, the costs, and
//! how treaper is installed.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "docs/completions.rs"]
mod completions;
#[path = "docs/wrappers.rs"]
mod wrappers;

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use clap::ArgAction;
use common::{TREAPER, skip, sys};
use treaper::contain::Level;
use treaper::doctor::guarantees::{self, NOTES, OTHER_UIDS, ROWS};
use treaper::origin::hosts;
use treaper::output::status;
use treaper::plan::event::Trigger;
use treaper::settings::cli;
use treaper::settings::options::{self, GROUPS, Opt};

/// The lines and columns of the screen into which the help has to fit.
const SCREEN: (usize, usize) = (40, 100);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether this is the whole project. The package of the crate lacks folders, such as the packages for code.
fn whole() -> bool {
    let whole = root().join("packaging/README.md").exists();
    if !whole {
        skip("this is the package of the crate");
    }
    whole
}

fn help() -> String {
    cli::grammar().render_help().to_string()
}

/// The file `name` must contain `expected`. With `UPDATE=1` it is written.
fn same(name: &str, found: &str, expected: &str, whole: &str) {
    if found == expected {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        let path: PathBuf = root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, whole).unwrap();
    } else {
        panic!("{name} is out of date: UPDATE=1 cargo test --features fixtures --test docs");
    }
}

/// As [`same`], for the text between the lines `before` and `after` of the file `name`.
fn same_between(name: &str, before: &str, after: &str, expected: &str) {
    // Several tests write into one file, and they run at the same time.
    static WRITER: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITER.lock();
    let text = read(name);
    let (head, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{name}: no line {before}"));
    let (found, tail) = rest
        .split_once(after)
        .unwrap_or_else(|| panic!("{name}: no line {after}"));
    let whole = format!("{head}{before}{expected}{after}{tail}");
    same(name, found, expected, &whole);
}

/// Every manual, by its path.
fn manuals() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("man")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.map(|name| format!("man/{name}")).collect();
    names.sort();
    names
}

/// The value in brackets at the end of a help text.
fn default(option: &Opt) -> Option<String> {
    let help = option.argument().get_help()?.to_string();
    let (_, default) = help.rsplit_once(" [")?;
    Some(default.trim_end_matches(']').to_owned())
}

/// The names of all long options in `text`.
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
    let own = options::all().map(|option| option.long);
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

/// The items of a section that begin with `first`: the line of each, and the text below it.
fn items<'a>(section: &'a str, first: &str) -> Vec<(&'a str, &'a str)> {
    let start = format!("\n.It {first}");
    let items = section.split(&*start).skip(1);
    items
        .map(|item| item.split_once('\n').unwrap_or((item, "")))
        .collect()
}

#[test]
fn the_help_fits_a_screen_and_names_each_exit_status() {
    let help = help();
    let (lines, columns) = SCREEN;
    let count = help.lines().count();
    assert!(
        count <= lines,
        "{count} lines do not fit: make an option `rare`"
    );
    for line in help.lines() {
        assert!(line.chars().count() <= columns, "{line}");
    }
    for code in codes() {
        assert!(help.contains(&code), "no exit status {code} in the help");
    }
    assert_eq!(long_options(&help), known_options());
}

fn codes() -> [String; 5] {
    [
        status::SURVIVORS,
        status::CANCEL_TIMEOUT,
        status::OWN_FAILURE,
        status::NOT_EXECUTABLE,
        status::NOT_FOUND,
    ]
    .map(|code| code.to_string())
}

#[test]
fn the_manual_has_each_option_and_no_other() {
    let manual = read("man/treaper.1");
    let options = section(&manual, "OPTIONS");
    let mut seen = Vec::new();
    for (line, text) in items(options, "Fl ") {
        let words: Vec<&str> = line.split(' ').collect();
        let (short, words) = match words.as_slice() {
            [short, ",", "Fl", rest @ ..] => (Some((*short).to_owned()), rest),
            all => (None, all),
        };
        let ["Fl", long, ..] = words else {
            panic!("not an option: {line}");
        };
        seen.push(*long);
        let Some(option) = options::all().find(|option| option.long == *long) else {
            continue;
        };
        assert_eq!(short, option.short.map(String::from), "{line}");
        if let Some(default) = default(option) {
            let stated = format!("Default:\n.Cm {default} .");
            assert!(text.contains(&stated), "--{long}: no default {default}");
        }
        for word in completions::words(&option.argument()) {
            assert!(
                text.contains(&format!(".Cm {word}"))
                    || text.contains(&format!(".It Cm {word}\n"))
                    || line.contains(&format!("Cm {word}")),
                "--{long}: no word {word}"
            );
        }
        let repeatable = matches!(option.argument().get_action(), ArgAction::Append);
        assert_eq!(
            text.contains("\nRepeatable."),
            repeatable,
            "--{long}: repeatable?"
        );
    }
    let order = options::all().map(|option| option.long);
    let order: Vec<&str> = order.chain(["help", "version"]).collect();
    assert_eq!(seen, order, "options, in the order of the help");
}

#[test]
fn help_and_manual_have_the_same_groups_of_options() {
    let manual = read("man/treaper.1");
    let groups = section(&manual, "OPTIONS").split("\n.Ss ").skip(1);
    let groups: Vec<(&str, Vec<(&str, &str)>)> = groups
        .map(|group| (group.lines().next().unwrap(), items(group, "Fl ")))
        .collect();
    let headings: Vec<&str> = groups.iter().map(|(heading, _)| *heading).collect();
    assert_eq!(headings, GROUPS.map(|(heading, _)| heading));
    let help = help();
    for ((heading, options), (_, items)) in GROUPS.iter().zip(&groups) {
        let ((line, _), first) = (items[0], options[0].long);
        assert!(
            line.contains(&format!("Fl {first} ")) || line.ends_with(first),
            "{heading}: {line}"
        );
        let (_, below) = help.split_once(&format!("\n{heading}:\n")).unwrap();
        assert!(
            below
                .lines()
                .next()
                .unwrap()
                .contains(&format!("--{first}")),
            "{heading}: {below}"
        );
    }
}

#[test]
fn the_manual_has_each_trigger_and_exit_status() {
    let manual = read("man/treaper.1");
    let triggers = items(section(&manual, "TRIGGERS"), "Cm ");
    let named: Vec<&str> = triggers.iter().map(|(line, _)| *line).collect();
    assert_eq!(
        named,
        Trigger::ALL.map(Trigger::name),
        "triggers, in their order"
    );
    let statuses = items(section(&manual, "EXIT STATUS"), "");
    let named: Vec<&str> = statuses.iter().map(|(line, _)| *line).collect();
    let expected = [vec!["n".to_owned(), "128+n".to_owned()], codes().to_vec()].concat();
    assert_eq!(named, expected, "exit statuses");
}

#[test]
fn the_schema_of_the_report_has_each_trigger() {
    let schema = read("packaging/report.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let listed = schema["properties"]["trigger"]["enum"].as_array().unwrap();
    let listed: Vec<Option<&str>> = listed.iter().map(serde_json::Value::as_str).collect();
    let triggers = Trigger::ALL.map(|trigger| Some(trigger.name()));
    assert_eq!(
        listed,
        [&[None][..], &triggers].concat(),
        "null, and the triggers in their order"
    );
}

/// Text as mdoc needs it: a hyphen that the user types is not a dash, and a sentence begins a line.
fn mdoc(text: &str) -> String {
    text.replace('-', "\\-").replace(". ", ".\n")
}

#[test]
fn readme_and_manual_have_the_guarantees_of_the_doctor() {
    let names: Vec<&str> = Level::NAMES.iter().map(|(name, _)| *name).collect();
    let mut readme = format!("| what happens | `{}` |\n", names.join("` | `"));
    readme += &"| --- ".repeat(names.len() + 1);
    readme += "|\n";
    // Two blanks between the columns, so that 80 columns hold the table.
    let mut manual = format!(".Pp\n.TS\ntab(|);\nl2 l2 l2 l.\n|{}\n", names.join("|"));
    for (event, left) in ROWS {
        let _ = writeln!(readme, "| {event} | {} |", left.join(" | "));
        let _ = writeln!(manual, "{}|{}", mdoc(event), left.join("|"));
    }
    manual += ".TE\n.Pp\n.Bl -tag -width \"[1]\" -compact\n";
    readme += "\n";
    for (at, note) in NOTES.iter().enumerate() {
        let number = at + 1;
        let _ = writeln!(readme, "[{number}] {note}  ");
        let _ = writeln!(manual, ".It [{number}]\n{}", mdoc(note));
    }
    manual += ".El\n";
    same_between(
        "README.md",
        "<!-- Written by `UPDATE=1 tests/run --test docs`, from src/doctor/guarantees.rs. -->\n",
        "<!-- The end. -->\n",
        &format!("\n{readme}\n"),
    );
    same_between(
        "man/treaper.1",
        ".\\\" Written by `UPDATE=1 tests/run --test docs`, from src/doctor/guarantees.rs.\n",
        ".\\\" The end of what was written.\n",
        &manual,
    );
}

#[test]
fn the_doctor_prints_each_guarantee_of_the_level_that_was_asked_for() {
    for (column, (level, _)) in Level::NAMES.iter().enumerate() {
        let mut doctor = Command::new(TREAPER);
        let doctor = doctor.args(["--doctor", &format!("--contain={level}")]);
        let text = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
        // The row of other uids depends on the machine.
        for (event, left) in ROWS.iter().filter(|(event, _)| *event != OTHER_UIDS) {
            let row = [*event, left[column]];
            let has = |line: &str| cells(line) == row;
            assert!(text.lines().any(has), "{level}: no row {row:?}: {text}");
            for number in row.iter().filter_map(|cell| guarantees::split(cell).1) {
                let note = format!("[{number}] {}", NOTES[number - 1]);
                assert!(text.lines().any(|line| line == note), "{level}: {note}");
            }
        }
    }
}

#[test]
fn each_note_of_the_guarantees_belongs_to_a_row() {
    let marked = ROWS
        .iter()
        .flat_map(|(event, left)| [*event].into_iter().chain(*left));
    let used: BTreeSet<usize> = marked
        .filter_map(|text| guarantees::split(text).1)
        .collect();
    assert_eq!(used, (1..=NOTES.len()).collect());
}

/// The manual `name` as plain text, as `renderer` shows it. `None` if the renderer is not installed.
fn rendered(renderer: &[&str], name: &str) -> Option<String> {
    let mut command = Command::new(renderer[0]);
    let command = command.args(&renderer[1..]).stdin(Stdio::piped());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skip(&format!("{} is not installed", renderer[0]));
        return None;
    };
    // Other manuals are not searched: whether they are installed does not matter here.
    let mut stdin = child.stdin.take().unwrap();
    let text = read(name);
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaints.is_empty(),
        "{}, {name}: {complaints}",
        renderer[0]
    );
    assert!(output.status.success(), "{}, {name}", renderer[0]);
    Some(String::from_utf8(output.stdout).unwrap())
}

/// As `man` shows it on a terminal of 80 columns, without bold and underlined.
const RENDERERS: [&[&str]; 2] = [
    &[
        "groff", "-t", "-mandoc", "-Tutf8", "-ww", "-rLL=78n", "-P-cbou",
    ],
    &["mandoc", "-Tutf8", "-Owidth=78"],
];

#[test]
fn both_renderers_show_the_manuals_without_a_warning_and_with_a_whole_table() {
    for renderer in RENDERERS {
        for name in manuals() {
            let Some(text) = rendered(renderer, &name) else {
                continue;
            };
            let text = without_overstrike(&text);
            for line in text.lines() {
                assert!(
                    line.chars().count() <= 80,
                    "{}, {name}: {line}",
                    renderer[0]
                );
            }
            if name != "man/treaper.1" {
                continue;
            }
            for (event, left) in ROWS {
                let row = [&[event][..], &left].concat();
                let has = |line: &str| cells(line) == row;
                assert!(
                    text.lines().any(has),
                    "{}: no row {row:?}: {text}",
                    renderer[0]
                );
            }
        }
    }
}

/// The cells of a line, which two or more blanks separate.
fn cells(line: &str) -> Vec<&str> {
    let cells = line.split("  ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect()
}

/// Removes bold, which is a letter, a backspace, and the letter again.
fn without_overstrike(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        if letter == '\u{8}' {
            plain.pop();
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[test]
fn variables_that_are_named_exist() {
    let known: BTreeSet<String> = options::all().filter_map(Opt::variable).collect();
    let also = ["TREAPER_NAME", "TREAPER_"];
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "docs/hosts.md",
        "docs/programs.md",
        "docs/survivors.md",
        "docs/troubleshooting.md",
    ];
    for name in documents.map(str::to_owned).into_iter().chain(manuals()) {
        let text = read(&name);
        for (at, _) in text.match_indices("TREAPER_") {
            let is_part = |c: &char| c.is_ascii_uppercase() || *c == '_';
            let variable: String = text[at..].chars().take_while(is_part).collect();
            let exists = known.contains(&variable) || also.contains(&variable.as_str());
            assert!(exists, "{name}: no such variable: {variable}");
        }
    }
}

/// Each option that the manual `name` mentions as mdoc writes it, and in its examples.
fn options_in_manual(text: &str) -> BTreeSet<String> {
    let marked = text.split("Fl Fl ").skip(1);
    let marked = marked.map(|rest| rest.split([' ', '\n']).next().unwrap().to_owned());
    let typed = text.replace("\\-", "-");
    // Other programs may be in front of it, with options of their own.
    let typed = typed
        .lines()
        .filter_map(|line| line.find("treaper --").map(|at| &line[at..]));
    let typed = typed.flat_map(|line| long_options(line.split(" -- ").next().unwrap()));
    marked.chain(typed).collect()
}

#[test]
fn manuals_and_readme_name_only_options_that_exist() {
    // An option of `setpriv`.
    let foreign = "pdeathsig";
    let known = known_options();
    for name in manuals() {
        for option in options_in_manual(&read(&name)) {
            let exists = known.contains(&option) || option == foreign;
            assert!(exists, "{name}: no such option: --{option}");
        }
    }
    let readme = read("README.md");
    let own = |line: &&str| line.contains("treaper -") || line.contains("`--");
    for line in readme.lines().filter(own) {
        // Options after a lone `--` belong to another program.
        for option in long_options(line.split(" -- ").next().unwrap()) {
            assert!(
                known.contains(&option),
                "README.md: no such option: --{option} in: {line}"
            );
        }
    }
    // The recipes name options of the hosts, too. After the word treaper there are only its own.
    for page in ["hosts", "programs", "troubleshooting"] {
        let page = format!("docs/{page}.md");
        let recipes = read(&page);
        for text in recipes.split("treaper --").skip(1) {
            let words = format!("--{text}");
            let own = words.split(' ').take_while(|word| word.starts_with("--"));
            for option in own.flat_map(long_options) {
                assert!(
                    known.contains(&option),
                    "{page}: no such option: --{option}"
                );
            }
        }
    }
}

/// The recipes are run in their hosts, so what README.md tells to type has to be one of them.
#[test]
fn each_line_that_the_readme_tells_to_type_is_in_a_recipe() {
    let readme = read("README.md");
    let recipes = read("docs/hosts.md");
    let (_, table) = readme
        .split_once("| you have | type |\n| --- | --- |\n")
        .unwrap();
    let rows: Vec<&str> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let typed = row.split('|').nth(2).unwrap().split('`').nth(1).unwrap();
        assert!(recipes.contains(typed), "docs/hosts.md has no {typed}");
    }
}

#[test]
fn the_readme_names_each_trigger_and_both_processes() {
    let readme = read("README.md");
    let manual = read("man/treaper.1");
    for trigger in Trigger::ALL {
        let named = readme.contains(&format!("`{trigger}`"));
        assert!(named, "README.md does not name {trigger}");
    }
    let monitor = hosts::MONITOR.to_str().unwrap();
    for name in ["treaper", monitor] {
        assert!(readme.contains(&format!("`{name}`")), "README.md: {name}");
        assert!(manual.contains(&format!(".Ql {name} .")), "manual: {name}");
    }
}

#[test]
fn help_and_manual_say_in_the_same_words_what_treaper_does() {
    let about = cli::ABOUT;
    assert!(help().starts_with(&format!("treaper: {about}\n")));
    assert!(read("man/treaper.1").contains(&format!("\n.Nd {about}\n")));
}

/// The cell of the row that begins with `row`, below the heading `part` and in the column `column`.
fn measured<'a>(results: &'a str, part: &str, column: &str, row: &str) -> &'a str {
    let (_, below) = results.split_once(&format!("## {part}\n")).unwrap();
    let cells = |line: &'a str| line.split('|').map(str::trim).collect::<Vec<&str>>();
    let mut lines = below
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(cells);
    let head = lines.next().unwrap();
    let at = head.iter().position(|cell| *cell == column).unwrap();
    lines.find(|cells| cells[1] == row).unwrap()[at]
}

/// The rows of the table of costs: the name in benches/results.md, and what README.md calls it.
const COSTS: [(&str, &str); 7] = [
    ("the command alone", "nothing: the command alone"),
    ("tini-static", "tini-static, Docker's init"),
    ("dumb-init", "dumb-init"),
    ("catatonit", "catatonit"),
    ("bubblewrap", "bubblewrap"),
    ("treaper", "treaper, as the static release"),
    (
        "treaper (cargo build)",
        "treaper, as `cargo install` builds it",
    ),
];

#[test]
fn the_costs_in_the_readme_were_measured() {
    let Ok(results) = std::fs::read_to_string(root().join("benches/results.md")) else {
        // A package of the crate has no benches.
        return skip("there is no benches/results.md");
    };
    let mut table = "| in front of the command | start-up of `true`, µs | ratio | memory, KiB | wake-ups in 30 s |\n\
                     | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (row, name) in COSTS {
        let cell = |part, column| {
            // The command alone was only timed: nothing is in front of it that could use memory.
            let none = row == COSTS[0].0 && part != "Start-up";
            if none {
                "–"
            } else {
                measured(&results, part, column, row)
            }
        };
        let [time, ratio] = ["median", "ratio"].map(|column| cell("Start-up", column));
        let memory = cell("Memory at rest", "Pss, one of 50");
        let wakes = cell("At rest", "context switches in 30 s");
        let _ = writeln!(table, "| {name} | {time} | {ratio} | {memory} | {wakes} |");
    }
    let (_, below) = results.split_once("## Start-up\n").unwrap();
    let machine = below.lines().find(|line| line.contains(", load ")).unwrap();
    same_between(
        "README.md",
        "<!-- Written by `UPDATE=1 tests/run --test docs`, from benches/results.md. -->\n",
        "<!-- The end. -->\n",
        &format!("\n{table}\nStart-up measured on {machine}.\n\n"),
    );
}

/// The address of the project, or `None` before a release is published.
///
/// This is the one variable: `Cargo.toml` has a reserved name until there is an address.
fn address() -> Option<String> {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("\nrepository = \"").unwrap();
    let (address, _) = rest.split_once('"').unwrap();
    (!address.contains("treaper.example")).then(|| address.to_owned())
}

/// How treaper is installed: from this tree, or once it is published, by system.
fn installation(address: Option<&str>) -> String {
    let rust = env!("CARGO_PKG_RUST_VERSION");
    let Some(address) = address else {
        return format!(
            "treaper has not been released yet. In this source tree, with Rust {rust} or later (rustup has it), type:\n\n\
             ```console\n$ cargo install --path . --locked\n```\n\n\
             That puts the binary into `~/.cargo/bin`; copy it to `/usr/bin` for desktop apps, sudo and services. On Debian, as root,\n\
             `packaging/static/build` makes a static binary for containers and boards, and `packaging/release` makes packages for\n\
             apt, dnf, apk, pacman, pip and npm.\n"
        );
    };
    let version = env!("CARGO_PKG_VERSION");
    let archive = format!("treaper-{version}-x86_64-linux.tar.gz");
    let files = format!("{address}/releases/download/v{version}");
    // As `packaging/publish` names it.
    let image = address.replace("https://github.com/", "ghcr.io/");
    let unpack = "tar xz -C /usr/local --strip-components=1";
    let rows = [
        (
            "any, as root",
            format!("curl -fL {files}/{archive} \\| {unpack}"),
        ),
        (
            "Debian, Ubuntu",
            format!("apt install ./treaper_{version}_amd64.deb"),
        ),
        (
            "Fedora, RHEL, SUSE",
            format!("dnf install ./treaper-{version}-1.x86_64.rpm"),
        ),
        (
            "Alpine",
            format!("apk add --allow-untrusted treaper-{version}-r1.apk"),
        ),
        (
            "Arch",
            format!("pacman -U treaper-{version}-1-x86_64.pkg.tar.zst"),
        ),
        (
            "Python",
            "pip install treaper` or `uvx treaper -- SERVER".to_owned(),
        ),
        (
            "Node",
            "npm install -g treaper` or `npx -y treaper -- SERVER".to_owned(),
        ),
        (
            "Rust",
            format!("cargo install --locked treaper`, with Rust {rust} or later"),
        ),
        (
            "Nix",
            "nix profile install .`, in the source tree".to_owned(),
        ),
        (
            "containers",
            format!("COPY --from={image}:{version} /treaper /usr/bin/treaper"),
        ),
    ];
    let mut table = format!(
        "The files of the distributions are on {address}/releases.\n\n| system | what to type |\n| --- | --- |\n"
    );
    for (system, command) in rows {
        let end = if command.contains("`, ") { "" } else { "`" };
        let _ = writeln!(table, "| {system} | `{command}{end} |");
    }
    table
}

/// `CONTRIBUTING.md` lists these files.
#[test]
fn every_file_with_the_version_has_that_of_the_crate() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("debian/changelog", format!("treaper ({version}")),
        ("rpm/treaper.spec", version.to_owned()),
        ("arch/PKGBUILD", format!("pkgver={version}")),
        ("alpine/APKBUILD", format!("pkgver={version}")),
        ("action/action.yml", format!("default: {version}")),
        (
            "devcontainer/devcontainer-feature.json",
            format!("\"default\": \"{version}\""),
        ),
        ("devcontainer/install.sh", format!("VERSION:-{version}}}")),
    ] {
        assert!(read(&format!("packaging/{file}")).contains(&line), "{file}");
        assert!(read("CONTRIBUTING.md").contains(file.split('/').next().unwrap()));
    }
}

#[test]
fn the_readme_says_how_to_install_what_is_published() {
    let text = installation(address().as_deref());
    same_between(
        "README.md",
        "<!-- Written by `UPDATE=1 tests/run --test docs`: how to install. -->\n",
        "<!-- The end. -->\n",
        &format!("\n{text}\n"),
    );
    // A reader meets neither form of what does not work.
    for name in ["README.md", "docs/hosts.md", "docs/troubleshooting.md"] {
        assert!(!read(name).contains("treaper.example"), "{name}");
    }
    let released = installation(Some("https://some.host/treaper"));
    assert!(released.contains("https://some.host/treaper/releases/download/v"));
    assert!(!released.contains("--path"), "{released}");
    let image = installation(Some("https://github.com/some/treaper"));
    assert!(
        image.contains("COPY --from=ghcr.io/some/treaper:"),
        "{image}"
    );
}

#[test]
fn the_manuals_for_a_browser_are_those_of_man() {
    for (program, argument) in [("mandoc", "/dev/null"), ("python3", "-V")] {
        if Command::new(program).arg(argument).output().is_err() {
            return skip(&format!("{program} is not installed"));
        }
    }
    let written = Command::new("python3")
        .arg(root().join("docs/manuals"))
        .args(std::env::var_os("UPDATE").is_none().then_some("--check"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&written.stdout);
    assert!(
        written.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&written.stderr)
    );
    // Longer ones are not read. What few need has a page of its own. At a terminal of 80 columns, man uses 78.
    let shown = Command::new("mandoc")
        .args(["-T", "ascii", "-O", "width=78"])
        .arg(root().join("man/treaper.1"))
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&shown.stdout).lines().count();
    assert!((400..900).contains(&lines), "treaper(1) has {lines} lines");
}

/// The text that `tests/hosts/survivors` has written into the file `name`.
fn played(name: &str) -> String {
    let text = read(name);
    let begin = "<!-- Written by tests/hosts/survivors: the table. -->\n";
    let (_, rest) = text.split_once(begin).unwrap();
    let (table, _) = rest.split_once("<!-- The end. -->").unwrap();
    table.to_owned()
}

#[test]
fn the_readme_has_the_survivors_that_were_played() {
    let table = played("docs/survivors.md");
    assert!(table.contains("| `treaper` | **none** |"), "{table}");
    assert_eq!(played("README.md"), table);
}

/// The words between back quotes in the first cell of each row below `heading`, without their values.
fn words_in_table(text: &str, heading: &str) -> BTreeSet<String> {
    let (_, below) = text.split_once(heading).unwrap();
    let below = below.split("\n## ").next().unwrap();
    let rows = below.lines().filter(|line| line.starts_with("| `"));
    let quoted = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    quoted
        .map(|word| word.split('=').next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_words_of_the_trees_are_those_that_the_actor_knows() {
    let sources = ["arena", "groups", "host", "node", "scenes"];
    let mut known = BTreeSet::new();
    for source in sources {
        let text = read(&format!("tests/fixtures/actor/{source}.rs"));
        for ask in ["has", "value", "number", "signals", "time"] {
            let asked = format!(".{ask}(\"");
            let words = text.split(&asked).skip(1);
            known.extend(words.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    // These words belong to the host that the actor plays.
    known.retain(|word| !word.starts_with("--"));
    let listed = words_in_table(&read("CONTRIBUTING.md"), "## The tree language");
    assert_eq!(listed, known);
}

#[test]
fn files_that_documents_name_exist() {
    if !whole() {
        return;
    }
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/hosts.md",
        "docs/programs.md",
        "docs/survivors.md",
        "docs/troubleshooting.md",
    ] {
        let text = read(name);
        let quoted = text.split('`').skip(1).step_by(2);
        let linked = text
            .split("](")
            .skip(1)
            .map(|rest| rest.split([')', '#']).next().unwrap());
        for path in quoted.chain(linked) {
            let is_path = [
                "src/",
                "tests/",
                "man/",
                "benches/",
                "packaging/",
                "completions/",
                "docs/",
                ".ci/",
            ]
            .iter()
            .any(|folder| path.starts_with(folder));
            // NAME stands for any.
            let pattern = path.contains("NAME") || path.contains('*') || path.contains(' ');
            assert!(
                !is_path || pattern || root().join(path).exists(),
                "{name}: {path}"
            );
        }
    }
}

/// The anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        line.starts_with('#').then(|| heading.strip_prefix(' '))?
    });
    let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let anchor = |heading: &str| heading.to_lowercase().chars().filter(is_kept).collect();
    headings
        .map(anchor)
        .map(|anchor: String| anchor.replace(' ', "-"))
        .collect()
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    if !whole() {
        return;
    }
    let pages = [
        "README.md",
        "CONTRIBUTING.md",
        "docs/hosts.md",
        "docs/programs.md",
        "docs/survivors.md",
        "docs/troubleshooting.md",
    ];
    let mut count = 0;
    for name in pages {
        let text = read(name);
        let links = text.split("](").skip(1);
        for link in links.map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = root().join(name).parent().unwrap().to_owned();
            let target = if path.is_empty() {
                root().join(name)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{name}: {link}");
            // A browser shows roff as it is.
            assert!(!path.contains("man/"), "{name}: {link}: use docs/");
            if !anchor.is_empty() {
                let page = std::fs::read_to_string(&target).unwrap();
                assert!(anchors(&page).contains(anchor), "{name}: {link}");
                count += 1;
            }
        }
    }
    assert!(count > 30, "only {count} links to headings were seen");
}

/// A number that is wrong is worse than none.
#[test]
fn the_numbers_of_the_tests_are_those_of_the_files() {
    if !whole() {
        return;
    }
    for part in ["counts", "mutants", "delays"] {
        let output = Command::new(root().join("tests/numbers"))
            .arg(part)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        let before = format!("<!-- Written by `UPDATE=1 tests/run --test docs`: {part}. -->\n");
        let numbers = format!("\n{}\n", String::from_utf8(output.stdout).unwrap());
        same_between(
            "docs/testing.md",
            &before,
            &format!("<!-- The end of {part}. -->"),
            &numbers,
        );
    }
}

#[test]
fn the_packages_for_code_know_the_options() {
    if !whole() {
        return;
    }
    for (name, expected) in wrappers::all() {
        let found = std::fs::read_to_string(root().join(name)).unwrap_or_default();
        same(name, &found, &expected, &expected);
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

#[test]
fn bash_offers_the_names_of_processes_and_executes_none_of_them() {
    let folder = std::env::temp_dir().join(format!("treaper-completion-{}", common::unique()));
    std::fs::create_dir_all(&folder).unwrap();
    let [(_, mut script), ..] = completions::all();
    script += r#"
        ps() { printf '%s\n' COMM good-name_1.0+x '$(: >executed)' '`: >executed`' 'x[$(: >executed)]'; }
        for option in --watch-ancestor --spare; do
            COMP_WORDS=(treaper "$option" good) COMP_CWORD=2
            _treaper
            echo "$option ${COMPREPLY[*]}"
        done"#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]).current_dir(&folder);
    let output = bash.stdin(Stdio::null()).output().unwrap();
    let executed = folder.join("executed").exists();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!executed, "the name of a process was executed");
    let offered = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        offered,
        "--watch-ancestor good-name_1.0+x\n--spare good-name_1.0+x\n"
    );
}

#[test]
fn bash_finds_the_command_behind_a_value_with_a_colon() {
    let folder = std::env::temp_dir().join(format!("treaper-colon-{}", common::unique()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("socket"), "").unwrap();
    // The words as readline splits them, and what is offered for the last one.
    let scenes = [
        ("treaper --rewrite HUP : TERM ls -", "command at 5"),
        ("treaper --rewrite = HUP : TERM ls", "command at 6"),
        ("treaper --inject unix : /x --turn a = b ls", "command at 9"),
        ("treaper --report fd : 3 --gra", "--grace"),
        ("treaper --rewrite HUP :", ""),
        ("treaper --rewrite HUP : T", ""),
        ("treaper --inject unix : so", "socket"),
        ("treaper --stdin = au", "auto"),
    ];
    let [(_, mut script), ..] = completions::all();
    script += "_comp_command_offset() { COMPREPLY=(\"command at $1\"); }\n";
    for (words, _) in &scenes {
        script += "COMP_WORDS=(";
        script += words;
        script += ") COMPREPLY=()\n";
        script += "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _treaper; echo \"${COMPREPLY[*]}\"\n";
    }
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]).current_dir(&folder);
    let output = bash.stdin(Stdio::null()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    let offered: Vec<&str> = offered.lines().collect();
    assert_eq!(offered, scenes.map(|(_, offer)| offer));
}

#[test]
fn zsh_completes_the_command_behind_two_dashes() {
    if Command::new("zsh").arg("--version").output().is_err() {
        return skip("zsh is not installed");
    }
    let [_, (_, script), _] = completions::all();
    // The last argument is the one for the words of the command. zsh 5.9 puts `--` in front of them if there are no options.
    let functions = "_arguments() { words=(-- ls x) CURRENT=3; eval \"${@[-1]#*arguments:}\"; }\n\
                     _normal() { print -r -- \"$CURRENT $words\"; }\n";
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", &format!("{functions}{script}")]);
    let output = zsh.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2 ls x\n");
}
