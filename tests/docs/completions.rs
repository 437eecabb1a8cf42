//! Completions for three shells, made from the options. After the options there is another command, which has a
//! completion of its own.

use std::fmt::Write;

use treaper::settings::options::{OPTIONS, Opt, Takes};

const NOTE: &str = "# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.";

/// The name and the content of each file.
pub fn all() -> [(&'static str, String); 3] {
    [
        ("treaper.bash", bash()),
        ("_treaper", zsh()),
        ("treaper.fish", fish()),
    ]
}

/// The words that an option takes: "Stop signal to: staged, tree, mixed [staged]", "..., and exit; =json".
pub fn words(option: &Opt) -> Vec<&'static str> {
    if matches!(option.takes, Takes::Maybe(_)) {
        return option
            .help
            .rsplit_once('=')
            .map(|(_, word)| word)
            .into_iter()
            .collect();
    }
    match value_name(option) {
        Some("MODE" | "WHAT" | "TARGET" | "LEVEL") => {
            let text = option.help.split(" [").next().unwrap_or_default();
            let list = text.rsplit_once(": ").map_or(text, |(_, list)| list);
            list.split(", ").collect()
        }
        _ => Vec::new(),
    }
}

fn value_name(option: &Opt) -> Option<&'static str> {
    match option.takes {
        Takes::Nothing | Takes::Count => None,
        Takes::One(name) | Takes::Many(name) | Takes::Maybe(name) => Some(name),
    }
}

/// Whether the value is a word of its own. That of `--doctor` is not.
fn takes_next_word(option: &Opt) -> bool {
    value_name(option).is_some() && !matches!(option.takes, Takes::Maybe(_))
}

/// `-s|--signal`
fn pattern(option: &Opt) -> String {
    let short = option.short.map(|short| format!("-{short}|"));
    format!("{}--{}", short.unwrap_or_default(), option.long)
}

fn bash() -> String {
    let mut longs: Vec<String> = OPTIONS
        .iter()
        .map(|option| format!("--{}", option.long))
        .collect();
    longs.extend(["--help".to_owned(), "--version".to_owned()]);
    let with_value: Vec<String> = OPTIONS
        .iter()
        .filter(|o| takes_next_word(o))
        .map(pattern)
        .collect();
    let mut values = String::new();
    for option in OPTIONS {
        let command = match (value_name(option), words(option)) {
            (Some("SIGNAL"), _) => "$(compgen -A signal | sed 's/^SIG//')".to_owned(),
            (Some("PID"), _) => "$(cd /proc && compgen -G '[0-9]*')".to_owned(),
            (Some("NAME"), _) => "$(ps -eo comm= 2>/dev/null)".to_owned(),
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
    # `--option=value` comes as three words.
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $prev == '=' ]]; then
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
        =)
            at=$((at + 2)) ;;
        -*)
            at=$((at + 1)) ;;
        *)
            break ;;
        esac
    done
    if ((at < COMP_CWORD)) ||
        [[ $at -eq $COMP_CWORD && ${{COMP_WORDS[COMP_CWORD]}} != '=' && ($cur != -* || $prev == --) ]]; then
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
{values}        *)
            words='{longs}' ;;
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
    for option in OPTIONS {
        let help = zsh_text(option.help);
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
        let long = option.long;
        let (star, equals) = match option.takes {
            Takes::Count | Takes::Many(_) => ("'*'", "="),
            Takes::Maybe(_) => ("", "=-"),
            Takes::One(_) | Takes::Nothing => ("", "="),
        };
        let equals = if value_name(option).is_some() {
            equals
        } else {
            ""
        };
        let action = if matches!(option.takes, Takes::Maybe(_)) {
            format!(":{action}")
        } else {
            action
        };
        let _ = match option.short {
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

_arguments -S -A '-*' \
{lines}    '(- *)'{{-h,--help}}'[Print help]' \
    '(- *)'{{-V,--version}}'[Print version]' \
    '(-)1:command: _command_names -e' \
    '*::arguments: _normal'
"
    )
}

fn fish() -> String {
    let mut lines = String::new();
    for option in OPTIONS {
        let _ = write!(lines, "complete -c treaper -n __treaper_options");
        if let Some(short) = option.short {
            let _ = write!(lines, " -s {short}");
        }
        let _ = write!(lines, " -l {}", option.long);
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
        let _ = writeln!(lines, " -d '{}'", option.help.replace('\'', "\\'"));
    }
    let with_value = |name: fn(&Opt) -> Option<String>| -> String {
        let names = OPTIONS
            .iter()
            .filter(|o| takes_next_word(o))
            .filter_map(name);
        names.collect::<Vec<String>>().join(" ")
    };
    let longs = with_value(|option| Some(format!("--{}", option.long)));
    let shorts = with_value(|option| option.short.map(|short| format!("-{short}")));
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
