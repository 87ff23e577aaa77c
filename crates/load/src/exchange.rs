//! The response to one request: where it ends, and what of it is wrong. Bytes in, verdict out; no socket.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use crate::chunks::Chunks;

/// Bytes of a head up to which it is read again with each piece that comes: so what is no response is seen soon. A longer one is read
/// when it is whole or has doubled, since its pieces may be of a byte each.
const SHORT_HEAD: usize = 8 << 10;

/// Bytes of the head of a response beyond which it is refused.
const MOST_HEAD: usize = 64 << 10;

/// Header lines of a response for which there is room at once; of more they are read again with room for as many as a head can have,
/// of three bytes and a line end each.
const USUAL_HEADERS: usize = 100;
const MOST_HEADERS: usize = MOST_HEAD / 4;

/// What came is no response that HTTP/1.1 (RFC 9112) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Neither a status line nor header lines.
    #[error("no HTTP response")]
    Head(#[from] httparse::Error),
    /// Too long to be one.
    #[error("a response whose head is larger than 64 KiB")]
    Long,
    /// Content-Length is no number, or there are several that differ.
    #[error("a response with a wrong Content-Length")]
    Length,
    /// A transfer coding other than chunked.
    #[error("a response with a Transfer-Encoding other than chunked")]
    Coding,
    /// The chunks of the body are wrong.
    #[error("a response whose chunks are wrong")]
    Chunk,
    /// Another protocol, which was not asked for.
    #[error("a switch to another protocol")]
    Switch,
    /// Bytes after the end of the response.
    #[error("bytes that no request asked for")]
    Unasked,
}

/// A whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Bytes of its body, without those of chunk sizes.
    pub body: u64,
    /// Whether the next request can go over the same connection.
    pub reusable: bool,
}

/// Where a response was when its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing of it had come.
    Nothing,
    /// In its head.
    Head,
    /// In its body.
    Body,
}

/// How the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    /// After so many more bytes.
    Length(u64),
    Chunked(Chunks),
    /// With the connection.
    UntilClosed,
}

/// The response to one request, as far as it has come. Used for one after the other, so that none allocates.
#[derive(Debug)]
pub struct Exchange {
    stage: Stage,
    /// Whether only the head of a response is asked for.
    head_only: bool,
    /// The beginning of a head, or of a line within chunks, that has not wholly come.
    part: Vec<u8>,
    /// Bytes of a head from which on it is read again although its end has not come.
    read_at: usize,
    answer: Answer,
    begun: bool,
}

impl Exchange {
    /// For responses to HEAD, which have no body, or to another method.
    pub fn new(head_only: bool) -> Self {
        let answer = Answer { status: 0, body: 0, reusable: false };
        Self { stage: Stage::Head, head_only, part: Vec::new(), read_at: 0, answer, begun: false }
    }

    /// Forgets the last response.
    pub fn restart(&mut self) {
        self.stage = Stage::Head;
        self.part.clear();
        self.answer.body = 0;
        self.begun = false;
    }

    /// Whether any byte of the response has come.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The status, once the head has come.
    pub fn status(&self) -> u16 {
        self.answer.status
    }

    /// Takes bytes; `body` is given those of the body. Returns the answer once it is whole.
    ///
    /// # Errors
    /// What of the response is wrong.
    pub fn feed(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<Option<Answer>, Malformed> {
        self.begun |= !bytes.is_empty();
        let mut rest = bytes;
        if self.stage == Stage::Head {
            match self.head(bytes)? {
                Some(taken) => rest = &bytes[taken..],
                None => return Ok(None),
            }
        }
        let (taken, is_whole) = self.body(rest, body)?;
        match is_whole {
            true if taken < rest.len() => Err(Malformed::Unasked),
            true => Ok(Some(self.answer)),
            false => Ok(None),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// How far the response had come, if it is not whole.
    pub fn end(&self) -> Result<Answer, Cut> {
        match self.stage {
            Stage::UntilClosed => Ok(Answer { reusable: false, ..self.answer }),
            Stage::Head if self.begun => Err(Cut::Head),
            Stage::Head => Err(Cut::Nothing),
            Stage::Length(_) | Stage::Chunked(_) => Err(Cut::Body),
        }
    }

    /// Reads the head, and those of interim responses before it; returns how many of the bytes belong to them.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut taken = 0;
        while let Some(length) = self.one_head(&bytes[taken..])? {
            taken += length;
            if self.answer.status >= 200 {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn one_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let before = self.part.len();
        // A large body may come with the rest of its head: no more is kept than a head may have.
        let some = &bytes[..bytes.len().min(MOST_HEAD - before)];
        if before > 0 {
            self.part.extend_from_slice(some);
        }
        if before > SHORT_HEAD && self.part.len() < self.read_at.min(MOST_HEAD) && !ends_head(&self.part, before) {
            return Ok(None);
        }
        match parsed(if before > 0 { &self.part } else { some }, self.head_only)? {
            Some(head) => {
                self.part.clear();
                Ok(Some(self.begin(head) - before))
            }
            None if some.len() < bytes.len() => Err(Malformed::Long),
            None => {
                if before == 0 {
                    self.part.extend_from_slice(some);
                }
                self.read_at = 2 * self.part.len();
                Ok(None)
            }
        }
    }

    fn begin(&mut self, head: Head) -> usize {
        self.stage = head.stage;
        self.answer = Answer { status: head.status, body: 0, reusable: head.reusable };
        head.bytes
    }

    /// Takes bytes of the body; returns how many, and whether it is whole.
    fn body(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<(usize, bool), Malformed> {
        let mut count = |of_body: &[u8]| {
            if !of_body.is_empty() {
                self.answer.body += of_body.len() as u64;
                body(of_body);
            }
        };
        match &mut self.stage {
            Stage::Head => Ok((0, false)),
            Stage::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                count(&bytes[..taken]);
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            Stage::Chunked(chunks) => chunks.take(bytes, &mut self.part, &mut count),
            Stage::UntilClosed => {
                count(bytes);
                Ok((bytes.len(), false))
            }
        }
    }
}

/// Whether an empty line ends among the bytes that came after so many.
fn ends_head(part: &[u8], before: usize) -> bool {
    memchr::memchr_iter(b'\n', &part[before..]).any(|place| {
        let line = &part[..before + place];
        line.ends_with(b"\n") || line.ends_with(b"\n\r")
    })
}

/// A head that has wholly come.
struct Head {
    bytes: usize,
    status: u16,
    stage: Stage,
    reusable: bool,
}

fn parsed(bytes: &[u8], head_only: bool) -> Result<Option<Head>, Malformed> {
    match parsed_with(&mut [const { MaybeUninit::uninit() }; USUAL_HEADERS], bytes, head_only) {
        Err(Malformed::Head(httparse::Error::TooManyHeaders)) => {
            parsed_with(&mut vec![MaybeUninit::uninit(); MOST_HEADERS], bytes, head_only)
        }
        // A later version of HTTP/1 means the same to whoever knows the former (RFC 9110, section 6.2).
        Err(Malformed::Head(httparse::Error::Version)) => match as_known_version(bytes) {
            Some(known) => parsed(&known, head_only),
            None => Err(Malformed::Head(httparse::Error::Version)),
        },
        done => done,
    }
}

/// A head of HTTP/1.2 or later, as one of 1.1.
fn as_known_version(bytes: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"HTTP/1.";
    let minor = bytes.strip_prefix(NAME)?.first()?;
    (b'2'..=b'9').contains(minor).then(|| [NAME, b"1", &bytes[NAME.len() + 1..]].concat())
}

fn parsed_with<'b>(
    headers: &mut [MaybeUninit<Header<'b>>],
    bytes: &'b [u8],
    head_only: bool,
) -> Result<Option<Head>, Malformed> {
    let mut response = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // What a user agent must take (RFC 9112, section 5.2), and what all of them take: a line that is no field says nothing, also of
    // where the body ends.
    config
        .ignore_invalid_headers_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_multiple_spaces_in_response_status_delimiters(true);
    let length = config.parse_response_with_uninit_headers(&mut response, bytes, headers)?;
    let Status::Complete(bytes) = length else { return Ok(None) };
    let status = response.code.unwrap_or(0);
    let fields = Fields::of(response.headers)?;
    let stage = match status {
        ..100 => return Err(Malformed::Head(httparse::Error::Status)),
        101 => return Err(Malformed::Switch),
        100..200 => Stage::Head,
        204 | 304 => Stage::Length(0),
        _ if head_only => Stage::Length(0),
        _ => fields.stage(),
    };
    // HTTP/1.0 closes unless it says otherwise, HTTP/1.1 stays open (RFC 9112 9.3).
    let stays = if response.version == Some(0) { fields.keeps } else { !fields.closes };
    Ok(Some(Head { bytes, status, reusable: stays && stage != Stage::UntilClosed, stage }))
}

/// The header fields that say where the body ends and whether the connection does.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    keeps: bool,
}

impl Fields {
    fn of(headers: &[Header<'_>]) -> Result<Self, Malformed> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            // No name of interest has another length: most are passed over without a comparison.
            match name.len() {
                14 if name.eq_ignore_ascii_case("content-length") => fields.read_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                    if !fields.chunked {
                        return Err(Malformed::Coding);
                    }
                }
                10 if name.eq_ignore_ascii_case("connection") => fields.read_connection(value),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// The same length may be repeated (RFC 9112 6.3).
    fn read_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for one in value.split(|&byte| byte == b',') {
            let digits = one.trim_ascii();
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let number = str::from_utf8(digits).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
            let number = number.ok_or(Malformed::Length)?;
            if self.length.replace(number).is_some_and(|before| before != number) {
                return Err(Malformed::Length);
            }
        }
        Ok(())
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112 6.3: chunks come before a length, and without either the connection ends the body.
    fn stage(&self) -> Stage {
        match self.length {
            _ if self.chunked => Stage::Chunked(Chunks::new()),
            Some(length) => Stage::Length(length),
            None => Stage::UntilClosed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes of a response in pieces of these sizes, and its body.
    fn fed(response: &[u8], piece: usize, head_only: bool) -> (Result<Option<Answer>, Malformed>, Vec<u8>, Exchange) {
        let mut exchange = Exchange::new(head_only);
        let mut body = Vec::new();
        for bytes in response.chunks(piece) {
            match exchange.feed(bytes, &mut |part| body.extend_from_slice(part)) {
                Ok(None) => {}
                done => return (done, body, exchange),
            }
        }
        (Ok(None), body, exchange)
    }

    fn whole(response: &[u8]) -> (Answer, Vec<u8>) {
        let (answer, body, _) = fed(response, response.len(), false);
        (answer.unwrap().unwrap(), body)
    }

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nX: y\r\n\r\n";
    const EMPTY: &[u8] = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
    const AFTER_INTERIM: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn a_body_ends_as_its_head_says() {
        for response in [LENGTH, CHUNKED, AFTER_INTERIM] {
            let (answer, body) = whole(response);
            assert_eq!((answer, &body[..]), (Answer { status: 200, body: 5, reusable: true }, &b"hello"[..]));
        }
        assert_eq!(whole(EMPTY).0, Answer { status: 304, body: 0, reusable: true });
        // As servers write them: many zeros, blanks, other line ends.
        for body in
            ["00000000000000000000005\r\nhello\r\n00\r\n\r\n", "5  \r\nhello\r\n0 ;x\r\n\r\n", "5\nhello\n0\n\n"]
        {
            let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(whole(chunked.as_bytes()).1, b"hello", "{body:?}");
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(fed(head, 9, true).0, Ok(Some(Answer { status: 200, body: 0, reusable: true })));
    }

    #[test]
    fn every_piece_of_every_size_gives_the_same_answer() {
        for response in [LENGTH, CHUNKED, EMPTY, AFTER_INTERIM] {
            let expected = whole(response);
            for piece in 1..response.len() {
                let (answer, body, _) = fed(response, piece, false);
                assert_eq!((answer.unwrap().unwrap(), body), expected, "{piece}");
            }
        }
    }

    #[test]
    fn a_connection_stays_open_as_its_version_and_its_header_say() {
        let reusable = |first: &str, header: &str| {
            whole(format!("{first} 200 OK\r\n{header}Content-Length: 0\r\n\r\n").as_bytes()).0.reusable
        };
        assert!(reusable("HTTP/1.1", "") && reusable("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(!reusable("HTTP/1.0", "") && !reusable("HTTP/1.1", "connection: x, Close\r\n"));
    }

    #[test]
    fn a_head_may_have_many_fields_folded_ones_and_a_later_version() {
        let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 5\r\n\r\nhello", "X-Some: value\r\n".repeat(4000));
        let most = format!("HTTP/1.1 200 OK\r\n{}Content-Length:5\r\n\r\nhello", "a:\r\n".repeat(MOST_HEADERS - 20));
        for response in [
            &many,
            &most,
            "HTTP/1.1 200 OK\r\nX-Some: one,\r\n two,\r\n\tthree\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\nConnection: a,\r\n keep-alive\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
            "HTTP/1.1  200  OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
            "HTTP/1.1 200 OK\r\nX Some: value\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n: value\r\nno field\r\nContent-Length: 5\r\n\r\nhello",
        ] {
            for piece in [7, response.len()] {
                let (answer, body, _) = fed(response.as_bytes(), piece, false);
                let expected = (Ok(Some(Answer { status: 200, body: 5, reusable: true })), &b"hello"[..]);
                assert_eq!((answer, &body[..]), expected, "{:.80}", response);
            }
        }
        let closes = "HTTP/1.1 200 OK\r\nConnection: a,\r\n close\r\nContent-Length: 0\r\n\r\n";
        assert!(!whole(closes.as_bytes()).0.reusable);
    }

    #[test]
    fn the_end_of_the_connection_ends_only_a_body_without_a_length() {
        let at_end = |response: &[u8]| fed(response, response.len().max(1), false).2.end();
        let until_closed = b"HTTP/1.1 200 OK\r\n\r\nhello";
        assert_eq!(at_end(until_closed), Ok(Answer { status: 200, body: 5, reusable: false }));
        assert_eq!(at_end(b""), Err(Cut::Nothing));
        assert_eq!(at_end(b"HTTP/1.1 2"), Err(Cut::Head));
        assert_eq!(at_end(&LENGTH[..LENGTH.len() - 1]), Err(Cut::Body));
        assert_eq!(at_end(&CHUNKED[..CHUNKED.len() - 1]), Err(Cut::Body));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let refused = |response: &[u8]| fed(response, response.len(), false).0.unwrap_err();
        let head = |fields: &str| refused(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        for other in ["SSH-2.0-OpenSSH", "HTTP/2.0 200 OK", "HTTP/0.9 200 OK", "HTTP/1.x 200 OK"] {
            assert!(matches!(refused(format!("{other}\r\n\r\n").as_bytes()), Malformed::Head(_)), "{other}");
        }
        for wrong in ["-1", "+5", "", "5, 6", "99999999999999999999", "0x10"] {
            assert_eq!(head(&format!("Content-Length: {wrong}\r\n")), Malformed::Length, "{wrong}");
        }
        assert_eq!(head("Content-Length: 5\r\nContent-Length: 6\r\n"), Malformed::Length);
        assert_eq!(head("Transfer-Encoding: gzip, chunked\r\n"), Malformed::Coding);
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(MOST_HEAD));
        for piece in [1000, long.len()] {
            assert_eq!(fed(long.as_bytes(), piece, false).0, Err(Malformed::Long), "{piece}");
        }
        assert!(matches!(refused(b"HTTP/1.1 099 Low\r\nContent-Length: 1\r\n\r\n"), Malformed::Head(_)));
        assert_eq!(refused(b"HTTP/1.1 101 Switching\r\n\r\n"), Malformed::Switch);
        assert_eq!(refused(&[LENGTH, b"!"].concat()), Malformed::Unasked);
    }

    #[test]
    fn wrong_chunks_are_refused() {
        let refused = |response: &[u8]| fed(response, response.len(), false).0.unwrap_err();
        let chunks =
            |body: &str| refused(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes());
        for wrong in ["x\r\n", "3x\r\n", "3\r\r\n", "3\r\nhelp\r\n", "-1\r\n", "\r\n", "11111111111111111\r\n"] {
            assert_eq!(chunks(wrong), Malformed::Chunk, "{wrong:?}");
        }
        assert_eq!(chunks(&"1".repeat(10_000)), Malformed::Chunk);
    }

    #[test]
    fn a_head_in_two_pieces_may_come_with_a_body_larger_than_any_head() {
        let body = "b".repeat(3 * MOST_HEAD);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (first, rest) = response.as_bytes().split_at(20);
        let mut exchange = Exchange::new(false);
        assert_eq!(exchange.feed(first, &mut |_| ()), Ok(None));
        let expected = Answer { status: 200, body: body.len() as u64, reusable: true };
        assert_eq!(exchange.feed(rest, &mut |_| ()), Ok(Some(expected)));
    }

    #[test]
    fn what_never_ends_is_kept_within_the_size_of_a_head() {
        let heads = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
        let lines = b"X: y\r\n".repeat(100_000);
        let chunked = [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"[..], &lines].concat();
        for endless in [&heads, &chunked] {
            for piece in [7, 100_000] {
                let (answer, body, exchange) = fed(endless, piece, false);
                assert_eq!((answer, body.len()), (Ok(None), 0));
                assert!(exchange.part.capacity() <= 2 * MOST_HEAD, "{}", exchange.part.capacity());
            }
        }
    }

    #[test]
    fn a_repeated_length_is_one_length() {
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nhi").1, b"hi");
    }

    /// A right response of which bytes were changed, put in, taken out or doubled.
    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let change = (any::<proptest::sample::Index>(), 0u8..4, any::<u8>(), 1usize..40);
        let changes = proptest::collection::vec(change, 1..6);
        (proptest::sample::select(vec![LENGTH, CHUNKED, EMPTY, AFTER_INTERIM]), changes).prop_map(|(right, changes)| {
            let mut bytes = right.to_vec();
            for (place, how, byte, length) in changes {
                let at = place.index(bytes.len().max(1)).min(bytes.len());
                let to = (at + length).min(bytes.len());
                match how {
                    0 => bytes.insert(at, byte),
                    1 => drop(bytes.drain(at..to)),
                    2 => drop(bytes.splice(at..at, bytes[at..to].to_vec())),
                    _ => bytes[at..to].fill(byte),
                }
            }
            bytes
        })
    }

    proptest! {
        /// A damaged response is an answer, a fault or not yet whole; which one does not depend on the pieces it comes in.
        #[test]
        fn a_damaged_response_is_judged_alike_in_all_pieces(response in mutated(), piece in 1usize..60) {
            let (whole, body, exchange) = fed(&response, response.len().max(1), false);
            let (in_pieces, body_in_pieces, other) = fed(&response, piece, false);
            match (whole, in_pieces) {
                // The bytes after an answer come with it or not at all.
                (Err(Malformed::Unasked), Ok(Some(_))) => prop_assert_eq!(body, body_in_pieces),
                (Ok(None), Ok(None)) => prop_assert_eq!((exchange.end(), body), (other.end(), body_in_pieces)),
                // Which of several faults is seen first may differ.
                (Err(_), Err(_)) => {}
                (whole, in_pieces) => prop_assert_eq!((whole, body), (in_pieces, body_in_pieces)),
            }
            prop_assert!(exchange.part.len() <= MOST_HEAD);
        }

        /// Any bytes after any head are taken without a panic, and never as more body than came.
        #[test]
        fn any_bytes_are_an_answer_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..50) {
            for head in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
                let (_, body, _) = fed(&[head, &bytes].concat(), piece, false);
                prop_assert!(body.len() <= bytes.len());
            }
        }
    }
}
