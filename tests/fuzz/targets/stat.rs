//! `/proc/PID/stat`, with a name that the process itself chooses. The name must not shift the fields.
#![no_main]

use treaper::sys::proc::parse_stat;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = parse_stat(data);
    // As the kernel writes it, with this for the name.
    let name = &data[..data.len().min(15)];
    let text = [
        b"77 (",
        name,
        b") T 5 6 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0",
    ]
    .concat();
    let stat = parse_stat(&text).expect("what the kernel writes");
    assert_eq!(stat.name.as_bytes(), name);
    assert_eq!(
        (stat.state, stat.parent, stat.group, stat.started),
        (b'T', 5, 6, 4711)
    );
});
