//! Shells that were given a command (`sh -c`): they are between a host and what it wants.

const SHELLS: [&[u8]; 13] = [
    b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"ksh93", b"mksh", b"yash", b"fish", b"rbash",
    b"tcsh", b"csh",
];

/// Whether this command line, from `/proc/PID/cmdline`, is that of a shell with `-c` (also as one
/// letter of several, `-ec`), and not that of a shell with a script file.
pub fn was_given_a_command(command_line: &[u8]) -> bool {
    let mut words = command_line.split(|byte| *byte == 0);
    let path = words.next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // A login shell has a dash before its name.
    let mut name = name.strip_prefix(b"-").unwrap_or(name);
    if name == b"busybox" {
        name = words.next().unwrap_or_default();
    }
    if !SHELLS.contains(&name) {
        return false;
    }
    loop {
        match words.next().unwrap_or_default() {
            b"--" | b"-" | b"+" => return false,
            word if word == b"--command" || word.starts_with(b"--command=") => return true,
            // Each takes the next word as its value.
            b"--rcfile" | b"--init-file" | b"--init-command" | b"--profile" | b"-C" | b"+C" => {
                words.next();
            }
            word if word.starts_with(b"--") => {}
            [b'-', letters @ ..] if letters.contains(&b'c') => return true,
            // `-o pipefail`, `-eo pipefail`, `+O extglob`: each of these letters takes a word.
            [b'-' | b'+', letters @ ..] => {
                for _ in letters.iter().filter(|letter| b"oO".contains(letter)) {
                    words.next();
                }
            }
            // A script file, or the end of the words.
            _ => return false,
        }
    }
}
