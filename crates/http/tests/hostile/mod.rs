//! What hostile clients send, for tests without sockets and with them, and what may come back.
//!
//! No test needs all of it.
#![allow(dead_code)]

pub mod smuggling_cases;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::Config;

/// Requests as programs send them.
const VALID_REQUESTS: [&str; 8] = [
    "GET /a.txt HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n",
    "GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n\
     sec-ch-ua: \"Chromium\";v=\"140\"\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
     Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\nAccept-Encoding: gzip, deflate, br\r\n\
     Accept-Language: en-GB,en;q=0.9\r\nCookie: a=b; c=\"d\"\r\nIf-None-Match: \"5f.1-10\"\r\n\
     If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
    "GET /sub/ HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Wget/1.25.0\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\
     Connection: Keep-Alive\r\n\r\n",
    "GET /large HTTP/1.0\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
    "GET /a.txt HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n",
    "GET /large HTTP/1.1\r\nHost: [::1]:8080\r\nRange: bytes=0-99,5000-5999,-7\r\nIf-Range: \"5f.1-10\"\r\n\r\n",
    "GET http://localhost/%61.txt?a=b HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: Keep-Alive\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n",
];

/// Pieces that mean something to a parser.
const PARSER_TOKENS: [&str; 24] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\0",
    "\t",
    " ",
    "\x0b",
    "\u{a0}",
    "%",
    "%2f..",
    "../",
    ":",
    ",",
    "-",
    ";",
    "bytes=",
    "HTTP/",
    "?",
    "#",
    "http://",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: a\r\n",
];

/// Several requests, most of them right, in one piece, with bytes replaced at some places.
pub fn mutated_requests() -> impl Strategy<Value = Vec<u8>> {
    let request = prop_oneof![
        4 => select(&VALID_REQUESTS[..]).prop_map(|text| text.as_bytes().to_vec()),
        1 => select(&smuggling_cases::CASES[..]).prop_map(|(bytes, _)| bytes.to_vec()),
    ];
    let mutations = prop::collection::vec(mutation(), 0..6);
    (prop::collection::vec(request, 1..6), mutations).prop_map(|(requests, mutations)| {
        let mut bytes = requests.concat();
        mutations.into_iter().for_each(|mutation| mutation.apply(&mut bytes));
        // The answer to HEAD states a length of bytes that do not follow.
        while let Some(index) = bytes.windows(4).position(|word| word == b"HEAD") {
            bytes[index] = b'h';
        }
        bytes
    })
}

/// What is done to a stream of requests.
#[derive(Clone, Debug)]
enum Mutation {
    /// Bytes are replaced by others, which may be none.
    Replace(Index, usize, Vec<u8>),
    /// A bit is flipped.
    Flip(Index, u8),
    /// A piece stands there again, somewhere else.
    Repeat(Index, usize, Index),
    /// It ends here.
    Cut(Index),
}

impl Mutation {
    fn apply(self, bytes: &mut Vec<u8>) {
        let end = |begin: usize, length: usize| (begin + length).min(bytes.len());
        match self {
            Self::Replace(position, length, replacement) => {
                let begin = position.index(bytes.len() + 1);
                bytes.splice(begin..end(begin, length), replacement);
            }
            Self::Flip(position, bit) => {
                let index = position.index(bytes.len().max(1));
                bytes.get_mut(index).into_iter().for_each(|byte| *byte ^= 1 << bit);
            }
            Self::Repeat(source, length, target) => {
                let begin = source.index(bytes.len() + 1);
                let piece = bytes[begin..end(begin, length)].to_vec();
                let target_index = target.index(bytes.len() + 1);
                bytes.splice(target_index..target_index, piece);
            }
            Self::Cut(position) => bytes.truncate(position.index(bytes.len() + 1)),
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let bytes = prop_oneof![
        3 => select(&PARSER_TOKENS[..]).prop_map(|text| text.as_bytes().to_vec()),
        2 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (1usize..3000).prop_map(|length| vec![b'a'; length]),
    ];
    let place = any::<Index>;
    prop_oneof![
        4 => (place(), 0usize..8, bytes).prop_map(|(place, length, replacement)| Mutation::Replace(place, length, replacement)),
        2 => (place(), 0u8..8).prop_map(|(place, bit)| Mutation::Flip(place, bit)),
        1 => (place(), 1usize..200, place()).prop_map(|(source, length, target)| Mutation::Repeat(source, length, target)),
        1 => place().prop_map(Mutation::Cut),
    ]
}

/// This many cases, and `KELVIN_FUZZ_TIMES` times as many. They are others each time, unless `PROPTEST_RNG_SEED` fixes them; of those
/// that fail the smallest is printed.
pub fn fuzz_config(number: u32) -> Config {
    let times = std::env::var("KELVIN_FUZZ_TIMES").map_or(1, |times| times.parse().unwrap());
    Config { failure_persistence: None, ..Config::with_cases(number * times) }
}

/// The status codes of whole answers one after another, by their lengths.
pub fn answer_statuses(mut sent: &[u8]) -> Vec<u16> {
    let mut codes = Vec::new();
    while !sent.is_empty() {
        let end = sent.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let head = std::str::from_utf8(&sent[..end]).unwrap();
        let code: u16 = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let length = head.split_once("\r\nContent-Length: ").map(|(_, rest)| rest.lines().next().unwrap());
        assert!(length.is_some() || code == 304, "{head}");
        sent = &sent[end + length.map_or(0, |length| length.parse().unwrap())..];
        codes.push(code);
    }
    codes
}
