//! The command lines and variables of the other inits: each input gives an answer or a configuration.
//!
//! The first byte chooses the program. Words end with a NUL. A word after a byte 1 is a variable: `NAME=VALUE`.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use treaper::dropin::Program;

const NAMES: [&str; 3] = ["tini", "dumb-init", "catatonit"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let name = OsString::from(NAMES[usize::from(*choice) % NAMES.len()]);
    let (mut arguments, mut variables) = (vec![name.clone()], Vec::new());
    for word in rest.split(|byte| *byte == 0) {
        match word.strip_prefix(b"\x01") {
            Some(variable) => {
                let at = variable
                    .iter()
                    .position(|byte| *byte == b'=')
                    .unwrap_or(variable.len());
                let value = variable.get(at + 1..).unwrap_or_default();
                variables.push((owned(&variable[..at]), owned(value)));
            }
            None => arguments.push(owned(word)),
        }
    }
    let program = Program::named(&name).expect("a name that is known");
    let _ = program.parse(&arguments, &variables);
});

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
