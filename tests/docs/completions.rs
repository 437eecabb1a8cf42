//! Completions for three shells, made from the options. After the options there is another command, which has a
//! completion of its own. Those of `clap_complete` would offer treaper's options to that command.

use std::fmt::Write;

use clap::builder::Str;
use clap::{Arg, ArgAction};
use treaper::settings::options;

const NOTE: &str = "# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.";

/// The name and the content of each file.
pub fn all() -> [(&'static str, String); 3] {
    [
        ("treaper.bash", bash()),
        ("_treaper", zsh()),
        ("treaper.fish", fish()),
    ]
}

fn all_options() -> Vec<Arg> {
    options::all().map(options::Opt::argument).collect()
}

/// The words that an option takes.
pub fn words(option: &Arg) -> Vec<String> {
    let values = option.get_possible_values().into_iter();
    let values = values.filter(|_| value_name(option).is_some());
    values.map(|value| value.get_name().to_owned()).collect()
}

fn value_name(option: &Arg) -> Option<&str> {
    let names = option.get_value_names()?;
    names.first().map(Str::as_str)
}

/// Whether the value is a word of its own. That of `--doctor` is not.
fn takes_next_word(option: &Arg) -> bool {
    value_name(option).is_some() && !option.is_require_equals_set()
}

fn long(option: &Arg) -> &str {
    option.get_long().unwrap()
}

fn help(option: &Arg) -> String {
    option.get_help().unwrap().to_string()
}

/// `-s|--signal`
fn pattern(option: &Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}|"));
    format!("{}--{}", short.unwrap_or_default(), long(option))
}

fn bash() -> String {
    let options = all_options();
    let mut longs: Vec<String> = options.iter().map(|o| format!("--{}", long(o))).collect();
    longs.extend(["--help".to_owned(), "--version".to_owned()]);
    let with_value: Vec<String> = options
        .iter()
        .filter(|o| takes_next_word(o))
        .map(pattern)
        .collect();
    let mut values = String::new();
    for option in &options {
        let command = match (value_name(option), words(option)) {
            (Some("SIGNAL"), _) => "$(compgen -A signal | sed 's/^SIG//')".to_owned(),
            (Some("PID"), _) => "$(cd /proc && compgen -G '[0-9]*')".to_owned(),
            // Every user can name a process as they like, and `compgen -W` executes what stands
            // in `$(...)` in a word. So a name with special characters is not offered.
            (Some("NAME"), _) => {
                "$(ps -eo comm= 2>/dev/null | grep -x '[[:alnum:]._+-]*')".to_owned()
            }
            (Some("FILE"), _) => {
                let _ = writeln!(
                    values,
                    "        {})\n            compopt -o filenames 2>/dev/null\n            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n            return ;;",
                    pattern(option)
                );
                continue;
            }
            (_, words) if !words.is_empty() => words.join(" "),
            _ => continue,
        };
        let _ = writeln!(
            values,
            "        {})\n            words=\"{command}\" ;;",
            pattern(option)
        );
    }
    format!(
        r#"{NOTE}
# bash completion for treaper

_treaper() {{
    local cur prev word words='' at=1
    cur=${{COMP_WORDS[COMP_CWORD]}}
    prev=${{COMP_WORDS[COMP_CWORD - 1]}}
    # `--option=value` comes as three words, and so does `HUP:TERM`.
    if [[ $cur == [=:] ]]; then
        cur=''
    elif [[ $prev == [=:] ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    # The first word that is no option, and no option's value, is the command.
    while ((at < COMP_CWORD)); do
        word=${{COMP_WORDS[at]}}
        case $word in
        --)
            at=$((at + 1))
            break ;;
        {with_value})
            at=$((at + 2))
            if [[ ${{COMP_WORDS[at - 1]}} == '=' ]]; then at=$((at + 1)); fi ;;
        [=:])
            at=$((at + 2)) ;;
        -*)
            at=$((at + 1)) ;;
        *)
            break ;;
        esac
    done
    if ((at < COMP_CWORD)) ||
        [[ $at -eq $COMP_CWORD && ${{COMP_WORDS[COMP_CWORD]}} != [=:] && ($cur != -* || $prev == --) ]]; then
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "$at"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "$at"
        else
            mapfile -t COMPREPLY < <(compgen -A command -- "$cur")
        fi
        return
    fi
    case $prev in
{values}        unix)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        *)
            if [[ $cur == -* ]]; then words='{longs}'; fi ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}

complete -F _treaper treaper
"#,
        with_value = with_value.join("|"),
        longs = longs.join(" "),
    )
}

/// Text within single quotes and brackets of zsh's `_arguments`.
fn zsh_text(text: &str) -> String {
    text.replace('\'', "'\\''")
        .replace('[', "(")
        .replace(']', ")")
        .replace(':', "\\:")
}

fn zsh() -> String {
    let mut lines = String::new();
    for option in &all_options() {
        let help = zsh_text(&help(option));
        let action = match (value_name(option), words(option)) {
            (None, _) => String::new(),
            (Some("SIGNAL"), _) => ":signal:_signals".to_owned(),
            (Some("PID"), _) => ":process:_pids".to_owned(),
            (Some("FILE"), _) => ":file:_files".to_owned(),
            (Some(name), words) if words.is_empty() => {
                format!(":{}: ", name.to_lowercase().replace(':', " "))
            }
            (Some(name), words) => format!(":{}:({})", name.to_lowercase(), words.join(" ")),
        };
        let long = long(option);
        let (star, equals) = match option.get_action() {
            ArgAction::Count | ArgAction::Append => ("'*'", "="),
            _ if option.is_require_equals_set() => ("", "=-"),
            _ => ("", "="),
        };
        let equals = if value_name(option).is_some() {
            equals
        } else {
            ""
        };
        let action = if option.is_require_equals_set() {
            format!(":{action}")
        } else {
            action
        };
        let _ = match option.get_short() {
            Some(short) if star.is_empty() => {
                let plus = if equals.is_empty() { "" } else { "+" };
                writeln!(
                    lines,
                    "    '(-{short} --{long})'{{-{short}{plus},--{long}{equals}}}'[{help}]{action}' \\"
                )
            }
            Some(short) => writeln!(
                lines,
                "    '*'{{-{short},--{long}{equals}}}'[{help}]{action}' \\"
            ),
            None => writeln!(lines, "    {star}'--{long}{equals}[{help}]{action}' \\"),
        };
    }
    format!(
        r"#compdef treaper
{NOTE}

# If `--` is the first word of all, zsh leaves it in the words of the command.
_arguments -S -A '-*' \
{lines}    '(- *)'{{-h,--help}}'[Print help]' \
    '(- *)'{{-V,--version}}'[Print version]' \
    '(-)1:command: _command_names -e' \
    '*::arguments:{{ if [[ $words[1] == -- ]]; then shift words; (( CURRENT-- )); fi; _normal }}'
"
    )
}

fn fish() -> String {
    let (mut lines, options) = (String::new(), all_options());
    for option in &options {
        let _ = write!(lines, "complete -c treaper -n __treaper_options");
        if let Some(short) = option.get_short() {
            let _ = write!(lines, " -s {short}");
        }
        let _ = write!(lines, " -l {}", long(option));
        if takes_next_word(option) {
            let files = value_name(option) == Some("FILE");
            let _ = write!(lines, "{}", if files { " -r -F" } else { " -x" });
        }
        let values = match (value_name(option), words(option)) {
            (Some("SIGNAL"), _) => Some("(kill -l | string split -n ' ')".to_owned()),
            (Some("PID"), _) => Some("(__fish_complete_pids)".to_owned()),
            (_, words) if !words.is_empty() => Some(words.join(" ")),
            _ => None,
        };
        if let Some(values) = values {
            let _ = write!(lines, " -a \"{values}\"");
        }
        let _ = writeln!(lines, " -d '{}'", help(option).replace('\'', "\\'"));
    }
    let with_value = |name: fn(&Arg) -> Option<String>| -> String {
        let names = options
            .iter()
            .filter(|o| takes_next_word(o))
            .filter_map(name);
        names.collect::<Vec<String>>().join(" ")
    };
    let longs = with_value(|option| Some(format!("--{}", long(option))));
    let shorts = with_value(|option| option.get_short().map(|short| format!("-{short}")));
    format!(
        r"{NOTE}
# fish completion for treaper

# What stands behind the options: the command, as far as it is typed.
function __treaper_command
    set -l words (commandline -opc) (commandline -ct)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                break
            case {shorts} {longs}
                set -e words[1..2]
            case '-*'
                set -e words[1]
            case '*'
                break
        end
    end
    string join \n -- $words
end

function __treaper_options
    set -l words (__treaper_command)
    test (count $words) -eq 0; and not contains -- -- (commandline -opc)
end

complete -c treaper -f
complete -c treaper -n 'not __treaper_options' -x -a '(__fish_complete_subcommand {shorts} {longs})'
{lines}complete -c treaper -n __treaper_options -s h -l help -d 'Print help'
complete -c treaper -n __treaper_options -s V -l version -d 'Print version'
"
    )
}
