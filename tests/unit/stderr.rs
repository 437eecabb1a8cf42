//! What only `src/output/stderr.rs` itself can see of its work.

use super::*;

#[test]
fn a_long_line_is_cut_and_has_one_line_end() {
    let mut line = Line::new();
    let _ = write!(line, "a\nb\x1b{}", "x".repeat(5000));
    let bytes = line.finish();
    assert_eq!(bytes.len(), 1024);
    assert!(bytes.starts_with(b"a?b?xx"));
    assert_eq!(bytes.split(|b| *b == b'\n').count(), 2);
}

#[test]
fn letters_are_kept_and_control_characters_are_replaced() {
    let mut line = Line::new();
    let _ = write!(line, "größe 日本 \u{9b}31m\u{85}\u{7f}\u{a0}");
    assert_eq!(line.finish(), "größe 日本 ?31m??\u{a0}\n".as_bytes());
}

#[test]
fn a_character_is_never_cut_in_two() {
    for before in 1015..1024 {
        let mut line = Line::new();
        let _ = write!(line, "{}日本 and more", "x".repeat(before));
        let text = std::str::from_utf8(line.finish()).unwrap();
        assert!(text.len() > 1020 && text.ends_with('\n'), "{text}");
        assert!(!text.contains("日本 and"), "{text}");
    }
}

#[test]
fn deferred_lines_without_room_are_counted() {
    let mut lines = DEFERRED.try_lock().unwrap();
    for _ in 0..100 {
        lines.add(&[b'x'; 1024]);
    }
    assert_eq!((lines.len, lines.lost), (ROOM, 68));
    (lines.len, lines.lost) = (0, 0);
}
