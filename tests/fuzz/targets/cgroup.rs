//! `/proc/self/mountinfo` and `/proc/self/cgroup`, separated by a NUL. Any user may choose the name of a mount point.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (mounts, groups) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    if let Err(sentence) = treaper::contain::cgroup::find(mounts, groups) {
        assert!(!sentence.is_empty());
    }
});
