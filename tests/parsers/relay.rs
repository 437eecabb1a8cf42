//! Messages and their members: any split of the bytes gives the same result, and JSON is read as another reader does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;
use treaper::relay::inbox::{self, Buffer, INCOMPLETE, Inbox, MAX_MESSAGE};
use treaper::relay::members::{self, Lines};
use treaper::relay::turns::{MAX_TURNS, Turns};
use treaper::settings::config::{Match, Writers};
use treaper::settings::value::matching;

use crate::config;

/// The text in pieces of the given lengths; the last one is what is left.
fn pieces<'a>(text: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut found) = (text, Vec::new());
    for length in lengths {
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        found.push(piece);
        rest = after;
    }
    found.push(rest);
    found
}

/// JSON of which some has a member that is wanted.
fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("type".to_owned()),
        Just("id".to_owned()),
        Just("result".to_owned()),
        Just("a/b".to_owned()),
        "\\PC{0,4}",
        Just("\u{1F600}\n\"\\".to_owned()),
    ];
    let leaf = prop_oneof![
        text.clone().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        // Exact in both notations: another reader does not keep how a number is written.
        any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 20, 4, move |inner| {
        let key = text.clone();
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Every character as an escape, as some writers do.
fn escaped(text: &str) -> String {
    let units = text.encode_utf16();
    units.map(|unit| format!("\\u{unit:04X}")).collect()
}

fn wanted() -> Vec<Match> {
    let texts = [
        "type=result",
        "a/b=type",
        "type=7",
        "type.id=result",
        "type=null",
        "x.type.id=true",
        "x.x.x=type",
    ];
    texts.map(|text| matching(text).unwrap()).to_vec()
}

/// What is found in one message: the members, the id, and whether it is an answer.
type Found = (u64, Option<Vec<u8>>, bool);

/// As another reader sees it. `None`: it is no object.
fn expected(line: &str) -> Option<Found> {
    let Ok(Value::Object(object)) = serde_json::from_str(line) else {
        return None;
    };
    let equal = |value: &Value, text: &str| match value {
        Value::String(string) => string == text,
        Value::Array(_) | Value::Object(_) => false,
        other => {
            let written = other.to_string();
            written == text
        }
    };
    let object = Value::Object(object);
    let found = wanted().iter().zip(0..).fold(0, |bits, (wanted, at)| {
        let mut steps = wanted.path.iter();
        let value = steps.try_fold(&object, |value, name| value.as_object()?.get(name));
        let is_there = value.is_some_and(|value| equal(value, &wanted.value));
        bits | u64::from(is_there) << at
    });
    let id = match object.get("id") {
        Some(Value::String(text)) if text.len() <= 256 => Some(format!("\"{text}").into_bytes()),
        // Older versions of serde_json display -947.0 as -947, but write it as it is.
        Some(number @ Value::Number(_)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let is_answer = ["result", "error"]
        .iter()
        .any(|name| object.get(name).is_some());
    Some((found, id, is_answer))
}

fn scan(pieces: &[&[u8]]) -> Vec<Found> {
    let (mut lines, mut all) = (Lines::default(), Vec::new());
    for piece in pieces {
        lines.take(piece, |line, _| {
            if let Some(members) = members::read(line, &wanted()) {
                all.push((members.found, members.id.map(Vec::from), members.is_answer));
            }
        });
    }
    all
}

/// A line of the server may be as long as a message, its newline included.
#[test]
fn a_line_in_pieces_is_whole_up_to_the_longest_message() {
    for (length, is_whole) in [
        (10_000, true),
        (MAX_MESSAGE - 1, true),
        (MAX_MESSAGE, false),
    ] {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let line = vec![b'x'; length];
        let (first, second) = line.split_at(length / 2);
        for piece in [first, second, b"\nend\n"] {
            lines.take(piece, |line, _| found.push(line.len()));
        }
        let expected = if is_whole { vec![length, 3] } else { vec![3] };
        assert_eq!(found, expected);
    }
}

/// Lines that are objects, other JSON, and no JSON without an object.
fn like_json() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => json().prop_map(|value| value.to_string()),
        2 => json().prop_map(|value| format!("{{\"x\":{value},\"type\":\"result\"}}")),
        2 => json().prop_map(|value| format!("{{\"id\":7,\"type\":\"result\",\"x\":{value}}}")),
        2 => json().prop_map(|value| format!("{{\"x\":{{\"type\":{value}}},\"type\":{value},\"id\":{value}}}")),
        1 => json().prop_map(|value| format!(" {{ \"type\" : \"result\" , \"type\" : {value} }}\r")),
        1 => Just(format!("{{\"{}\":\"{}\"}}", escaped("type"), escaped("result"))),
        1 => Just("{\"a\\/b\":\"type\"}".to_owned()),
        1 => Just(format!("{{\"type\":\"result\",\"x\":{}1{}}}", "[".repeat(100), "]".repeat(100))),
        1 => (250_usize..260).prop_map(|len| format!("{{\"id\":\"{}\"}}", "\u{e9}".repeat(len / 2) + &"x".repeat(len % 2))),
        1 => "[a-z0-9 \"\\[\\]]{0,12}",
    ]
}

/// The settings of `--turn=t=1 --cancel=c=1`.
fn followed(boundary: bool) -> Writers {
    let one = |text| vec![matching(text).unwrap()];
    Writers {
        source: "--cancel".to_owned(),
        sockets: Vec::new(),
        turns: one("t=1"),
        cancels: one("c=1"),
        boundaries: if boundary { one("b=1") } else { Vec::new() },
        cancel_drain: Duration::from_secs(5),
    }
}

#[test]
fn numbers_count_as_they_are_written() {
    let wanted = [matching("type=1e5").unwrap()];
    let one = |line: &str| members::read(line.as_bytes(), &wanted).unwrap();
    let found = one(r#"{"type":1e5,"id":-2.05e+64}"#);
    assert_eq!(
        (found.found, found.id.as_deref()),
        (1, Some(&b"-2.05e+64"[..]))
    );
    assert_eq!(one(r#"{"type":100000.0}"#).found, 0);
    assert_eq!(one(r#"{"type":"1e5"}"#).found, 1);
    for part in [
        "{\"type\":1e5",
        "{\"type\":\"1e5",
        "[{\"type\":1e5}]",
        "{\"type\"",
        "{\"",
        "",
    ] {
        assert!(members::read(part.as_bytes(), &wanted).is_none(), "{part}");
    }
}

#[test]
fn of_a_member_that_is_there_twice_the_last_one_counts() {
    let wanted = ["type=1", "type=2"].map(|text| matching(text).unwrap());
    for (line, found) in [
        (r#"{"type":2,"type":1}"#, 1),
        (r#"{"type":1,"type":2}"#, 2),
        (r#"{"type":2,"type":3}"#, 0),
    ] {
        let members = members::read(line.as_bytes(), &wanted).unwrap();
        assert_eq!(members.found, found, "{line}");
    }
}

/// Neither 64 passes nor a search in each key for each match. The least of ten times is that of the program, however busy
/// the machine is.
#[test]
fn sixty_four_matches_take_little_longer_than_one() {
    let members = format!("\"{}\":1,", "k".repeat(30)).repeat((2 << 20) / 35);
    let line = format!("{{{members}\"id\":1}}");
    let texts = (0..64).map(|at| format!("{}={at}", ["method", "one"][at % 2]));
    let wanted: Vec<Match> = texts.map(|text| matching(&text).unwrap()).collect();
    let time = |wanted: &[Match]| {
        let start = Instant::now();
        assert_eq!(members::read(line.as_bytes(), wanted).unwrap().found, 0);
        start.elapsed()
    };
    let times = (0..10).map(|_| (time(&wanted[..1]), time(&wanted)));
    let (one, all): (Vec<_>, Vec<_>) = times.unzip();
    let (one, all) = (one.iter().min().unwrap(), all.iter().min().unwrap());
    assert!(*all < 12 * *one, "{all:?}, and {one:?} for one");
}

#[test]
fn an_id_has_at_most_256_bytes_without_its_quotes() {
    for (quote, length, is_kept) in [
        ("\"", 256, true),
        ("\"", 257, false),
        ("", 256, true),
        ("", 257, false),
    ] {
        let id = "7".repeat(length);
        let line = format!("{{\"id\":{quote}{id}{quote}}}");
        let members = members::read(line.as_bytes(), &[]).unwrap();
        assert_eq!(members.id.is_some(), is_kept, "{line}");
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let (mut lines, mut all) = (Lines::default(), Vec::new());
    let long = vec![b'x'; 4 << 20];
    for bytes in [&long[..], &long, &long, &long, b"x\na\nb", b"c\n"] {
        lines.take(bytes, |line, end| all.push((line.to_vec(), end)));
    }
    assert_eq!(all, [(b"a".to_vec(), 4), (b"bc".to_vec(), 2)]);
}

#[test]
fn what_is_beyond_the_memory_for_turns_begins_none() {
    let mut turns = Turns::new(&followed(false));
    for id in 0..MAX_TURNS + 10 {
        let text = format!("{{\"t\":1,\"id\":{id}}}\n");
        let message = turns.read(text.as_bytes(), Duration::ZERO);
        turns.written(message, Duration::ZERO);
    }
    assert_eq!(turns.count(), MAX_TURNS as u64);
    for id in 0..MAX_TURNS + 10 {
        turns.output_read(format!("{{\"id\":{id},\"result\":0}}\n").as_bytes());
    }
    assert_eq!(turns.count(), 0);
    let long = format!("{{\"t\":1,\"id\":\"{}\"}}\n", "x".repeat(257));
    let message = turns.read(long.as_bytes(), Duration::ZERO);
    turns.written(message, Duration::ZERO);
    assert_eq!(turns.count(), 0);
}

#[test]
fn only_messages_that_begin_a_turn_begin_one() {
    for boundary in [false, true] {
        let mut turns = Turns::new(&followed(boundary));
        for line in ["{\"c\":1,\"id\":1}", "{\"t\":2,\"id\":2}"] {
            let message = turns.read(line.as_bytes(), Duration::ZERO);
            turns.written(message, Duration::ZERO);
            assert_eq!(turns.count(), 0, "{line} {boundary}");
        }
    }
}

/// Then the server could not run either (`docker pause`), and a busy machine does not delay a process for so long.
#[test]
fn the_time_of_a_cancelled_turn_begins_again_if_its_end_was_missed_by_more_than_five_seconds() {
    let cancelled = || {
        let mut turns = Turns::new(&followed(false));
        turns.host_read(b"{\"id\":1,\"t\":1}\n", Duration::ZERO);
        turns.host_read(b"{\"c\":1}\n", Duration::ZERO);
        assert_eq!(turns.deadline, Some(Duration::from_secs(5)));
        turns
    };
    let at = Duration::from_millis;
    for now in [5000, 5001, 10_000] {
        let mut turns = cancelled();
        assert!(!turns.is_over(at(4999)));
        assert!(turns.is_over(at(now)), "{now}");
        assert_eq!(turns.deadline, None);
        assert!(!turns.is_over(at(now)));
    }
    for now in [10_001, 3_600_000] {
        let mut turns = cancelled();
        assert!(!turns.is_over(at(now)), "{now}");
        assert_eq!(turns.deadline, Some(at(now + 5000)));
        assert!(!turns.is_over(at(now + 4999)));
        assert!(turns.is_over(at(now + 5000)));
        // The answer may have come meanwhile.
        let mut turns = cancelled();
        assert!(!turns.is_over(at(now)));
        turns.output_read(b"{\"id\":1,\"result\":0}\n");
        assert!(!turns.is_over(at(now + 5000)));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn members_are_those_that_another_reader_of_json_finds(lines in prop::collection::vec(like_json(), 0..4), lengths in prop::collection::vec(0_usize..20, 0..40)) {
        let all: Vec<Found> = lines.iter().filter_map(|line| expected(line)).collect();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(scan(&pieces(text.as_bytes(), &lengths)), all, "{}", text);
    }

    #[test]
    fn any_bytes_in_any_pieces_give_the_same_messages(text in "[\\[\\]{}:,\"\\\\\n a1]{0,80}", lengths in prop::collection::vec(0_usize..9, 0..40)) {
        prop_assert_eq!(scan(&pieces(text.as_bytes(), &lengths)), scan(&[text.as_bytes()]));
    }

    /// Turns begin when they are written, end by a boundary or their answer, and the clock runs as the manual says.
    #[test]
    fn turns_are_counted_as_a_simple_model_does(steps in prop::collection::vec((0_u8..7, 0_u8..3), 0..40), boundary in any::<bool>()) {
        let mut turns = Turns::new(&followed(boundary));
        let (mut ids, mut until) = (HashMap::<u8, u64>::new(), None);
        for (at, (what, id)) in steps.into_iter().enumerate() {
            let now = Duration::from_secs(at as u64);
            let count: u64 = ids.values().sum();
            match what {
                0 | 1 => {
                    let text = format!("{{\"id\":{id},\"t\":1}}\n");
                    if what == 0 {
                        turns.host_read(text.as_bytes(), now);
                        prop_assert_eq!(turns.count(), count);
                        turns.host_written(text.len() - 3, now);
                        prop_assert_eq!(turns.count(), count);
                        turns.host_written(text.len(), now);
                    } else {
                        let message = turns.read(text.as_bytes(), now);
                        prop_assert_eq!(turns.count(), count);
                        turns.written(message, now);
                    }
                    *ids.entry(id).or_default() += 1;
                }
                // A cancel behind its turn: in the same read, or of a writer that waits while the server reads nothing.
                2 | 3 => {
                    let turn = format!("{{\"id\":{id},\"t\":1}}\n");
                    let cancel = "{\"c\":1}\n";
                    let other = (what == 3).then(|| turns.read(cancel.as_bytes(), now));
                    turns.host_read([turn.as_str(), if what == 2 { cancel } else { "" }].concat().as_bytes(), now);
                    until = until.or((count > 0).then_some(now + Duration::from_secs(5)));
                    prop_assert_eq!(turns.deadline, until);
                    turns.host_written(turn.len(), now);
                    *ids.entry(id).or_default() += 1;
                    until = until.or(Some(now + Duration::from_secs(5)));
                    prop_assert_eq!(turns.deadline, until);
                    turns.host_written(turn.len() + cancel.len(), now);
                    if let Some(other) = other {
                        turns.written(other, now);
                    }
                }
                4 => {
                    turns.host_read(b"{\"c\":1}\n", now);
                    prop_assert_eq!(turns.deadline.is_some(), count > 0);
                    turns.host_written(8, now);
                    if count > 0 && until.is_none() {
                        until = Some(now + Duration::from_secs(5));
                    }
                }
                _ => {
                    let text = if boundary { "{\"b\":1}\n".to_owned() } else { format!("{{\"id\":{id},\"result\":0}}\n") };
                    turns.output_read(text.as_bytes());
                    let known = ids.iter().find(|(known, count)| **count > 0 && (boundary || **known == id)).map(|(known, _)| *known);
                    if let Some(known) = known {
                        *ids.get_mut(&known).unwrap() -= 1;
                        until = None;
                    }
                }
            }
            prop_assert_eq!(turns.count(), ids.values().sum::<u64>());
            prop_assert_eq!(turns.deadline, until);
            if turns.is_over(now) {
                prop_assert!(until.is_some_and(|until| until <= now));
                return Ok(());
            }
            prop_assert!(until.is_none_or(|until| until > now));
        }
    }

    /// What an inbox gives out is what was put in, message by message, whatever is read and written at a time.
    #[test]
    fn an_inbox_gives_whole_messages(text in "[ab\n]{0,60}", reads in prop::collection::vec(1_usize..9, 0..20), write in 1_usize..7) {
        let mut inbox = Inbox::default();
        let (mut found, mut fault) = (Vec::new(), None);
        let mut rest = text.as_bytes();
        let mut reads = reads.into_iter();
        while fault.is_none() && !inbox.is_done() {
            while inbox.message().is_some() && fault.is_none() {
                let bytes = inbox.message().unwrap();
                let count = bytes.len().min(write);
                found.extend_from_slice(&bytes[..count]);
                fault = inbox.written(count).err();
            }
            if inbox.ended || fault.is_some() {
                break;
            }
            let want = reads.next().unwrap_or(60);
            let result = inbox.fill(|room| {
                let count = rest.len().min(want).min(room.len());
                room[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                Some(count)
            });
            fault = result.err();
        }
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        prop_assert_eq!(std::str::from_utf8(&found).unwrap(), &text[..end]);
        prop_assert_eq!(fault, (end < text.len()).then_some(INCOMPLETE));
    }

    /// Of stdin everything is passed on, and nothing is put into the middle of a message.
    #[test]
    fn stdin_is_cut_between_messages_only(text in "[ab\n]{1,60}", waits in prop::collection::vec(any::<bool>(), 1..20)) {
        let mut inbox = Buffer::new();
        inbox.fill(usize::MAX, |room| {
            room[..text.len()].copy_from_slice(text.as_bytes());
            Ok::<usize, ()>(text.len())
        }).unwrap();
        let (mut found, mut waits) = (String::new(), waits.into_iter().cycle());
        while !inbox.rest().is_empty() {
            let others_wait = waits.next().unwrap();
            let bytes = inbox.writable(others_wait).to_vec();
            found += std::str::from_utf8(&bytes).unwrap();
            let (written, has_ended) = inbox.written(bytes.len());
            prop_assert_eq!(written, found.len());
            prop_assert_eq!(has_ended, found.ends_with('\n'));
            let messages = bytes.split_inclusive(|byte| *byte == b'\n').count();
            prop_assert!(!others_wait || messages <= 1);
        }
        prop_assert_eq!(found, text);
    }

    /// Between two messages of a writer, each other writer that has one has its own, and none is called that has none.
    #[test]
    fn every_writer_has_its_turn(ready in prop::collection::vec(any::<bool>(), 1..40), last in 0_usize..40) {
        let writers = ready.len();
        let expected: Vec<usize> = (0..writers).filter(|writer| ready[*writer]).collect();
        let mut last = last % writers;
        let mut called = Vec::new();
        while let Some(writer) = inbox::next(last, writers, |writer| ready[writer]).filter(|_| called.len() < 2 * writers) {
            called.push(writer);
            last = writer;
        }
        prop_assert_eq!(called.is_empty(), expected.is_empty());
        for round in called.chunks_exact(expected.len().max(1)) {
            let mut round = round.to_vec();
            round.sort_unstable();
            prop_assert_eq!(&round, &expected);
        }
    }
}
