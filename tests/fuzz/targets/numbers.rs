//! Lists of process numbers (`children`, `cgroup.procs`), also where a number is cut in two by the end of a buffer.
#![no_main]

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;

libfuzzer_sys::fuzz_target!(|data: (u16, Vec<u8>)| {
    let (blanks, text) = data;
    let text = [vec![b' '; usize::from(blanks) % 8192], text].concat();
    let mut expected = Vec::new();
    for word in text.split(|byte| !byte.is_ascii_digit()) {
        let number = word.iter().fold(0_i32, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(i32::from(digit - b'0'))
        });
        if number != 0 {
            expected.push(number);
        }
    }
    // A last number without a separator does not count: the kernel writes one after each number.
    if text.last().is_some_and(u8::is_ascii_digit) {
        return;
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create(c"numbers", flags).expect("memory"));
    file.write_all(&text).expect("memory");
    file.rewind().expect("a file");
    let mut found = Vec::new();
    treaper::sys::proc::each_number(file.as_fd(), &mut |number| found.push(number))
        .expect("a read");
    assert_eq!(found, expected);
});
