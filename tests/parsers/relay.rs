//! Framings and boundaries: any split of the bytes gives the same messages, and JSON is read as another reader does.

use proptest::prelude::*;
use serde_json::Value;
use treaper::relay::boundary::Output;
use treaper::relay::framing::{Found, Framing, Kind};
use treaper::relay::inbox::{Fault, HostInbox, Inbox};
use treaper::relay::schedule::{Schedule, Turn};

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

/// Where messages end, and whether the framing is broken, if the text comes in these pieces.
fn ends(kind: Kind, pieces: &[&[u8]]) -> (Vec<usize>, bool, bool) {
    let mut framing = Framing::new(kind);
    let (mut before, mut found) = (0, Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            match framing.take(rest) {
                Found::End(end) => {
                    before += end;
                    found.push(before);
                    rest = &rest[end..];
                }
                Found::Open | Found::Broken => {
                    before += rest.len();
                    rest = &[];
                }
            }
        }
    }
    (found, framing.is_broken(), framing.is_between())
}

fn header(body: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Streams that are nearly those of a client of LSP.
fn like_headers() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-z{}\r\n:]{0,30}".prop_map(|body| header(&body)),
        1 => Just("Content-Type: x\r\nCONTENT-LENGTH:  2 \r\n\r\nab".to_owned()),
        1 => Just("Content-Length: 0\r\n\r\n".to_owned()),
        1 => Just("Content-Length: 1\r\nContent-Length: 1\r\n\r\na".to_owned()),
        1 => Just("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_owned()),
        1 => "[A-Za-z-]{0,15}:? ?[0-9+]{0,3}\r?\n(\r\n)?",
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// JSON of which some is a boundary.
fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("type".to_owned()),
        Just("result".to_owned()),
        Just("a/b".to_owned()),
        "\\PC{0,4}",
        Just("\u{1F600}\n\"\\".to_owned()),
    ];
    let leaf = prop_oneof![
        text.clone().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
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

fn members() -> Vec<(String, String)> {
    [("type", "result"), ("a/b", "type"), ("", ""), ("type", "7")]
        .map(|(member, value)| (member.to_owned(), value.to_owned()))
        .to_vec()
}

/// As another reader sees it.
fn is_boundary(line: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_str(line) else {
        return false;
    };
    members()
        .iter()
        .any(|(member, value)| match object.get(member) {
            Some(Value::String(text)) => text == value,
            Some(Value::Number(number)) => number.to_string().as_str() == value,
            _ => false,
        })
}

fn boundaries(kind: Kind, pieces: &[&[u8]]) -> usize {
    let mut output = Output::new(kind, &members());
    pieces.iter().map(|piece| output.take(piece)).sum()
}

/// Lines that are JSON, nearly JSON, and neither.
fn like_json() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => json().prop_map(|value| value.to_string()),
        2 => json().prop_map(|value| format!("{{\"x\":{value},\"type\":\"result\"}}")),
        2 => json().prop_map(|value| format!("{{\"type\":\"result\",\"x\":{value}}}")),
        1 => json().prop_map(|value| format!(" {{ \"type\" : \"result\" , \"type\" : {value} }}\r")),
        2 => (json(), any::<prop::sample::Index>(), "[]{}:,\"\\\\0-9a-z. ]").prop_map(|(value, at, with)| {
            let mut text: Vec<char> = value.to_string().chars().collect();
            let at = at.index(text.len());
            text.splice(at..=at, with.chars());
            text.into_iter().filter(|c| *c != '\n').collect()
        }),
        1 => Just(format!("{{\"{}\":\"{}\"}}", escaped("type"), escaped("result"))),
        1 => Just("{\"a\\/b\":\"type\"}".to_owned()),
        1 => Just(format!("{{\"type\":\"result\",\"x\":{}1{}}}", "[".repeat(100), "]".repeat(100))),
        1 => "[-+0-9eE.]{1,8}".prop_map(|number| format!("{{\"type\":\"result\",\"n\":{number}}}")),
        1 => "\\{\"type\":[a-z0-9\"{}]{0,8}\\}",
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lines_end_where_newlines_are(text in "[ab\n\r]{0,60}", lengths in prop::collection::vec(0_usize..9, 0..20)) {
        let expected: Vec<usize> = text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at).collect();
        let (found, broken, between) = ends(Kind::Lines, &pieces(text.as_bytes(), &lengths));
        prop_assert_eq!(&found, &expected);
        prop_assert!(!broken);
        prop_assert_eq!(between, text.is_empty() || text.ends_with('\n'));
    }

    #[test]
    fn any_split_of_headers_and_bodies_gives_the_same_messages(text in like_headers(), lengths in prop::collection::vec(0_usize..9, 0..40)) {
        let whole = ends(Kind::Headers, &[text.as_bytes()]);
        prop_assert_eq!(ends(Kind::Headers, &pieces(text.as_bytes(), &lengths)), whole);
    }

    #[test]
    fn headers_and_bodies_end_where_the_writer_meant(bodies in prop::collection::vec("[a-z\r\n:]{0,20}", 0..6)) {
        let text: String = bodies.iter().map(|body| header(body)).collect();
        let (mut at, mut expected) = (0, Vec::new());
        for body in &bodies {
            at += header(body).len();
            expected.push(at);
        }
        prop_assert_eq!(ends(Kind::Headers, &[text.as_bytes()]), (expected, false, true));
    }

    #[test]
    fn a_boundary_is_what_another_reader_of_json_finds(lines in prop::collection::vec(like_json(), 0..4), lengths in prop::collection::vec(0_usize..20, 0..40)) {
        let expected = lines.iter().filter(|line| is_boundary(line)).count();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(boundaries(Kind::Lines, &pieces(text.as_bytes(), &lengths)), expected, "{}", text);
        let text: String = lines.iter().map(|line| header(line)).collect();
        prop_assert_eq!(boundaries(Kind::Headers, &pieces(text.as_bytes(), &lengths)), expected, "{}", text);
    }

    /// What an inbox gives out is what was put in, message by message, whatever is read and written at a time.
    #[test]
    fn an_inbox_gives_whole_messages(text in "[ab\n]{0,60}", reads in prop::collection::vec(0_usize..9, 0..20), write in 1_usize..7, max in 1_usize..20) {
        let mut inbox = Inbox::new(Kind::Lines, max);
        let (mut found, mut fault) = (Vec::new(), None);
        let mut rest = text.as_bytes();
        let mut reads = reads.into_iter();
        while fault.is_none() {
            while inbox.is_ready() && fault.is_none() {
                let bytes = inbox.writable();
                let count = bytes.len().min(write);
                found.extend_from_slice(&bytes[..count]);
                fault = inbox.written(count).err();
            }
            if rest.is_empty() || fault.is_some() {
                break;
            }
            let want = reads.next().unwrap_or(60);
            let result = inbox.fill(|room| {
                let count = rest.len().min(want).min(room.len());
                room[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                Ok::<usize, ()>(count)
            });
            fault = result.unwrap().err();
        }
        let lines = text.split_inclusive('\n').take_while(|line| line.len() <= max && line.ends_with('\n'));
        let expected: String = lines.collect();
        prop_assert_eq!(String::from_utf8(found).unwrap(), &*expected);
        let next = &text[expected.len()..];
        let end = fault.or_else(|| inbox.end().err());
        let expected = match next.split('\n').next() {
            Some(line) if line.len() >= max && !(line.len() == max && next.len() == max) => Some(Fault::TooLong(max)),
            Some("") | None => None,
            Some(_) => Some(Fault::Incomplete),
        };
        prop_assert_eq!(end, expected, "{:?}", next);
    }

    /// Of stdin everything is passed on, and nothing is put into the middle of a message.
    #[test]
    fn stdin_is_cut_between_messages_only(text in "[ab\n]{1,60}", waits in prop::collection::vec(any::<bool>(), 1..20)) {
        let mut inbox = HostInbox::new(Kind::Lines);
        inbox.fill(|room| {
            room[..text.len()].copy_from_slice(text.as_bytes());
            Ok::<usize, ()>(text.len())
        }).unwrap();
        let (mut found, mut waits) = (String::new(), waits.into_iter().cycle());
        while !inbox.is_empty() {
            let others_wait = waits.next().unwrap();
            let bytes = inbox.writable(others_wait).to_vec();
            found += std::str::from_utf8(&bytes).unwrap();
            let between = inbox.written(bytes.len());
            prop_assert_eq!(between, found.ends_with('\n'));
            let messages = bytes.split_inclusive(|byte| *byte == b'\n').count();
            prop_assert!(!others_wait || messages <= 1);
        }
        prop_assert_eq!(found, text);
    }

    /// No writer waits for ever, and none is called that has nothing.
    #[test]
    fn every_writer_has_its_turn(cancel in any::<u64>(), inject in any::<u64>(), host in any::<bool>(), start in prop::collection::vec(any::<(bool, u64, u64)>(), 0..10)) {
        let mut schedule = Schedule::default();
        for (host, cancel, inject) in start {
            schedule.next(host, cancel, inject & !cancel);
        }
        let inject = inject & !cancel;
        let (mut served, mut hosts) = (0_u64, 0);
        for _ in 0..130 {
            match schedule.next(host, cancel, inject) {
                Some(Turn::Host) => hosts += 1,
                Some(Turn::Writer(place)) => {
                    prop_assert!((cancel | inject) >> place & 1 == 1);
                    served |= 1 << place;
                }
                None => prop_assert!(!host && cancel | inject == 0),
            }
        }
        prop_assert_eq!(served, cancel | inject);
        prop_assert_eq!(hosts > 0, host);
    }
}
