//! Notifications of the server: whole lines are kept or left out, in order.
#![no_main]

use treaper::sys::notify::Message;

const LONGEST: usize = 4096;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let data = &data[..data.len().min(LONGEST)];
    let mut message = Message::new(data);
    assert!(message.retain_lines(|_| true) && message.text() == data);
    message.retain_lines(|line| !line.starts_with(b"MAINPID"));
    // systemd ends a line at either of the two.
    let mut lines = message.text().split(|byte| matches!(byte, b'\n' | b'\r'));
    assert!(lines.all(|line| !line.starts_with(b"MAINPID")));
    let empty = message.text().is_empty();
    assert_eq!(message.retain_lines(|_| false), empty);
    assert_eq!(message.text(), b"");
});
