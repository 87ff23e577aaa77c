//! The response to one request: where it ends, and what of it is wrong. Bytes in, verdict out; no socket.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

/// Bytes of a head up to which it is read again with each piece that comes: so what is no response is seen soon. A longer one is read
/// when it is whole or has doubled, since its pieces may be of a byte each.
const REPARSE_LIMIT: usize = 8 << 10;

/// Bytes of the head of a response beyond which it is refused.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Header lines of a response for which there is room at once; of more they are read again with room for as many as a head can have,
/// of three bytes and a line end each.
const INITIAL_HEADERS: usize = 100;
const MAX_HEADERS: usize = MAX_HEAD_BYTES / 4;

/// Longest line of a chunk's size with its extensions, or of a trailer.
const MAX_LINE_BYTES: usize = 8 << 10;

/// What came is no response that HTTP/1.1 (RFC 9112) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedResponse {
    /// Neither a status line nor header lines.
    #[error("no HTTP response")]
    Head(#[from] httparse::Error),
    /// Too long to be one.
    #[error("a response whose head is larger than 64 KiB")]
    TooLong,
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
    UnexpectedUpgrade,
    /// Bytes after the end of the response.
    #[error("bytes that no request asked for")]
    TrailingBytes,
}

/// A result of this parser.
pub type Result<T, E = MalformedResponse> = std::result::Result<T, E>;

/// A whole response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParsedResponse {
    /// Its status.
    pub status: u16,
    /// Bytes of its body, without those of chunk sizes.
    pub body: u64,
    /// Whether the next request can go over the same connection.
    pub is_reusable: bool,
}

/// Where a response was when its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedAt {
    /// In its head, or before it.
    Head,
    /// In its body.
    Body,
}

/// How the body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyFraming {
    #[default]
    Head,
    /// After this many more bytes.
    Length(u64),
    Chunked(ChunkedDecoder),
    /// With the connection.
    UntilClosed,
}

/// The response to one request, as far as it has come. Used for one after the other, so that none allocates.
#[derive(Debug, Default)]
pub struct ResponseParser {
    framing: BodyFraming,
    /// Whether only the head of a response is asked for.
    head_only: bool,
    /// The beginning of a head, or of a line within chunks, that has not wholly come.
    partial: Vec<u8>,
    /// Bytes of a head from which on it is read again although its end has not come.
    reparse_length: usize,
    /// The response as far as it has come: its status once the head has.
    pub answer: ParsedResponse,
    /// Whether any byte of it has come.
    pub has_begun: bool,
}

impl ResponseParser {
    /// For responses to HEAD, which have no body, or to another method.
    pub fn new(head_only: bool) -> Self {
        Self { head_only, ..Self::default() }
    }

    /// Forgets the last response; the next is one to HEAD, or to another method.
    pub fn restart(&mut self, head_only: bool) {
        self.head_only = head_only;
        self.framing = BodyFraming::Head;
        self.partial.clear();
        self.answer.body = 0;
        self.has_begun = false;
    }

    /// Takes bytes; `body` is given those of the body. Returns the answer once it is whole.
    ///
    /// # Errors
    /// What of the response is wrong.
    pub fn feed(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<Option<ParsedResponse>> {
        self.has_begun |= !bytes.is_empty();
        let mut rest = bytes;
        // After the heads of interim responses one more comes.
        while self.framing == BodyFraming::Head {
            let Some(consumed) = self.parse_head(rest)? else { return Ok(None) };
            rest = &rest[consumed..];
        }
        let (consumed, is_complete) = self.feed_body(rest, body)?;
        match is_complete {
            true if consumed < rest.len() => Err(MalformedResponse::TrailingBytes),
            true => Ok(Some(self.answer)),
            false => Ok(None),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// How far the response had come, if it is not whole.
    pub fn finish(&self) -> Result<ParsedResponse, TruncatedAt> {
        match self.framing {
            BodyFraming::UntilClosed => Ok(ParsedResponse { is_reusable: false, ..self.answer }),
            BodyFraming::Head => Err(TruncatedAt::Head),
            BodyFraming::Length(_) | BodyFraming::Chunked(_) => Err(TruncatedAt::Body),
        }
    }

    /// Reads the head of a response; returns how many of the bytes belong to it, once it has wholly come.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let previous_length = self.partial.len();
        // A large body may come with the rest of its head: no more is kept than a head may have.
        let head_bytes = &bytes[..bytes.len().min(MAX_HEAD_BYTES - previous_length)];
        if previous_length > 0 {
            self.partial.extend_from_slice(head_bytes);
        }
        if previous_length > REPARSE_LIMIT
            && self.partial.len() < self.reparse_length.min(MAX_HEAD_BYTES)
            && !ends_head(&self.partial, previous_length)
        {
            return Ok(None);
        }
        match parse_response_head(if previous_length > 0 { &self.partial } else { head_bytes }, self.head_only)? {
            Some((length, framing, answer)) => {
                self.partial.clear();
                (self.framing, self.answer) = (framing, answer);
                Ok(Some(length - previous_length))
            }
            None if head_bytes.len() < bytes.len() => Err(MalformedResponse::TooLong),
            None => {
                if previous_length == 0 {
                    self.partial.extend_from_slice(head_bytes);
                }
                self.reparse_length = 2 * self.partial.len();
                Ok(None)
            }
        }
    }

    /// Takes bytes of the body; returns how many, and whether it is whole.
    fn feed_body(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<(usize, bool)> {
        let mut count = |chunk: &[u8]| {
            if !chunk.is_empty() {
                self.answer.body += chunk.len() as u64;
                body(chunk);
            }
        };
        match &mut self.framing {
            BodyFraming::Head => Ok((0, false)),
            BodyFraming::Length(remaining) => {
                let consumed = usize::try_from(*remaining).unwrap_or(usize::MAX).min(bytes.len());
                count(&bytes[..consumed]);
                *remaining -= consumed as u64;
                Ok((consumed, *remaining == 0))
            }
            BodyFraming::Chunked(chunks) => chunks.decode(bytes, &mut self.partial, &mut count),
            BodyFraming::UntilClosed => {
                count(bytes);
                Ok((bytes.len(), false))
            }
        }
    }
}

/// A body in chunks (RFC 9112 7.1): where in them the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkedDecoder {
    /// In the line that states the size of the next chunk.
    Size,
    /// Before this many bytes of data.
    Data(u64),
    /// In the line end after the data.
    DataEnd,
    /// In the trailer lines after the last chunk.
    Trailer,
}

impl ChunkedDecoder {
    /// Takes bytes, of which `data` is given those of the body; `part` keeps a line that has not wholly come. Returns how many
    /// were taken and whether the body is whole.
    fn decode(
        &mut self,
        bytes: &[u8],
        partial_line: &mut Vec<u8>,
        data: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool)> {
        let mut consumed = 0;
        while consumed < bytes.len() {
            let rest = &bytes[consumed..];
            if let Self::Data(remaining) = *self {
                let length = usize::try_from(remaining).unwrap_or(usize::MAX).min(rest.len());
                data(&rest[..length]);
                consumed += length;
                let remaining = remaining - length as u64;
                *self = if remaining == 0 { Self::DataEnd } else { Self::Data(remaining) };
                continue;
            }
            let end = memchr::memchr(b'\n', rest);
            let length = end.map_or(rest.len(), |end| end + 1);
            if partial_line.len() + length > MAX_LINE_BYTES {
                return Err(MalformedResponse::Chunk);
            }
            partial_line.extend_from_slice(&rest[..length]);
            consumed += length;
            if end.is_none() {
                continue;
            }
            let is_empty = partial_line == b"\r\n" || partial_line == b"\n";
            match self {
                Self::Size => match parse_chunk_size(partial_line)? {
                    0 => *self = Self::Trailer,
                    size => *self = Self::Data(size),
                },
                Self::Trailer if is_empty => {
                    partial_line.clear();
                    return Ok((consumed, true));
                }
                Self::Trailer => {}
                Self::DataEnd if is_empty => *self = Self::Size,
                Self::DataEnd | Self::Data(_) => return Err(MalformedResponse::Chunk),
            }
            partial_line.clear();
        }
        Ok((consumed, false))
    }
}

/// The size that a line begins with: hexadecimal digits, of which any number may be leading zeros, then the line's end, blanks or an extension.
fn parse_chunk_size(line: &[u8]) -> Result<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let is_complete = matches!(rest, [b'\n'] | [b'\r', b'\n'] | [b';' | b' ' | b'\t', ..]);
    let size =
        str::from_utf8(digits).ok().filter(|_| is_complete).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.ok_or(MalformedResponse::Chunk)
}

/// Whether an empty line ends among the bytes that came after this many.
fn ends_head(buffer: &[u8], previous_length: usize) -> bool {
    memchr::memchr_iter(b'\n', &buffer[previous_length..]).any(|index| {
        let line = &buffer[..previous_length + index];
        line.ends_with(b"\n") || line.ends_with(b"\n\r")
    })
}

/// A head that has wholly come: its bytes, how the body ends, and the response as far as the head states it.
type ParsedHead = (usize, BodyFraming, ParsedResponse);

fn parse_response_head(bytes: &[u8], head_only: bool) -> Result<Option<ParsedHead>> {
    match parse_with_headers(&mut [const { MaybeUninit::uninit() }; INITIAL_HEADERS], bytes, head_only) {
        Err(MalformedResponse::Head(httparse::Error::TooManyHeaders)) => {
            parse_with_headers(&mut vec![MaybeUninit::uninit(); MAX_HEADERS], bytes, head_only)
        }
        // A client may read a later minor version of HTTP/1 as the one that it knows (RFC 9110, section 6.2).
        Err(MalformedResponse::Head(httparse::Error::Version)) => match downgrade_to_1_1(bytes) {
            Some(downgraded) => parse_response_head(&downgraded, head_only),
            None => Err(MalformedResponse::Head(httparse::Error::Version)),
        },
        result => result,
    }
}

/// A head of HTTP/1.2 or later, as one of 1.1.
fn downgrade_to_1_1(bytes: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"HTTP/1.";
    let minor = bytes.strip_prefix(NAME)?.first()?;
    (b'2'..=b'9').contains(minor).then(|| [NAME, b"1", &bytes[NAME.len() + 1..]].concat())
}

fn parse_with_headers<'b>(
    headers: &mut [MaybeUninit<Header<'b>>],
    bytes: &'b [u8],
    head_only: bool,
) -> Result<Option<ParsedHead>> {
    let mut response = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // What a user agent must take (RFC 9112, section 5.2), and what all of them take: a line that is no field means nothing, also for
    // where the body ends.
    config
        .ignore_invalid_headers_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_multiple_spaces_in_response_status_delimiters(true);
    let length = config.parse_response_with_uninit_headers(&mut response, bytes, headers)?;
    let Status::Complete(bytes) = length else { return Ok(None) };
    let status = response.code.unwrap_or(0);
    let fields = FramingFields::scan(response.headers)?;
    let framing = match status {
        ..100 => return Err(MalformedResponse::Head(httparse::Error::Status)),
        101 => return Err(MalformedResponse::UnexpectedUpgrade),
        100..200 => BodyFraming::Head,
        204 | 304 => BodyFraming::Length(0),
        _ if head_only => BodyFraming::Length(0),
        // RFC 9112 6.3: chunks come before a length, and without either the connection ends the body.
        _ if fields.chunked => BodyFraming::Chunked(ChunkedDecoder::Size),
        _ => fields.length.map_or(BodyFraming::UntilClosed, BodyFraming::Length),
    };
    // HTTP/1.0 closes unless it states otherwise, HTTP/1.1 stays open (RFC 9112 9.3).
    let is_persistent = if response.version == Some(0) { fields.keep_alive } else { !fields.close };
    let is_reusable = is_persistent && framing != BodyFraming::UntilClosed;
    Ok(Some((bytes, framing, ParsedResponse { status, body: 0, is_reusable })))
}

/// The header fields that determine where the body ends and whether the connection does.
#[derive(Default)]
struct FramingFields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl FramingFields {
    fn scan(headers: &[Header<'_>]) -> Result<Self> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            // No name of interest has another length: most are passed over without a comparison.
            match name.len() {
                14 if name.eq_ignore_ascii_case("content-length") => fields.read_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                    if !fields.chunked {
                        return Err(MalformedResponse::Coding);
                    }
                }
                10 if name.eq_ignore_ascii_case("connection") => {
                    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// The same length may be repeated (RFC 9112 6.3).
    fn read_length(&mut self, value: &[u8]) -> Result<()> {
        for element in value.split(|&byte| byte == b',') {
            let digits = element.trim_ascii();
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let number = str::from_utf8(digits).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
            let number = number.ok_or(MalformedResponse::Length)?;
            if self.length.replace(number).is_some_and(|previous| previous != number) {
                return Err(MalformedResponse::Length);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes of a response in pieces of these sizes, and its body.
    fn feed_in_pieces(
        response: &[u8],
        piece: usize,
        head_only: bool,
    ) -> (Result<Option<ParsedResponse>, MalformedResponse>, Vec<u8>, ResponseParser) {
        let mut exchange = ResponseParser::new(head_only);
        let mut body = Vec::new();
        for bytes in response.chunks(piece) {
            match exchange.feed(bytes, &mut |part| body.extend_from_slice(part)) {
                Ok(None) => {}
                done => return (done, body, exchange),
            }
        }
        (Ok(None), body, exchange)
    }

    fn parse_response(response: &[u8]) -> (ParsedResponse, Vec<u8>) {
        let (answer, body, _) = feed_in_pieces(response, response.len(), false);
        (answer.unwrap().unwrap(), body)
    }

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nX: y\r\n\r\n";
    const EMPTY: &[u8] = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
    const AFTER_INTERIM: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn body_end_follows_head() {
        for response in [LENGTH, CHUNKED, AFTER_INTERIM] {
            let (answer, body) = parse_response(response);
            assert_eq!(
                (answer, &body[..]),
                (ParsedResponse { status: 200, body: 5, is_reusable: true }, &b"hello"[..])
            );
        }
        assert_eq!(parse_response(EMPTY).0, ParsedResponse { status: 304, body: 0, is_reusable: true });
        // As servers write them: many zeros, blanks, other line ends.
        for body in
            ["00000000000000000000005\r\nhello\r\n00\r\n\r\n", "5  \r\nhello\r\n0 ;x\r\n\r\n", "5\nhello\n0\n\n"]
        {
            let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(parse_response(chunked.as_bytes()).1, b"hello", "{body:?}");
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(
            feed_in_pieces(head, 9, true).0,
            Ok(Some(ParsedResponse { status: 200, body: 0, is_reusable: true }))
        );
    }

    #[test]
    fn result_is_independent_of_segmentation() {
        for response in [LENGTH, CHUNKED, EMPTY, AFTER_INTERIM] {
            let expected = parse_response(response);
            for piece in 1..response.len() {
                let (answer, body, _) = feed_in_pieces(response, piece, false);
                assert_eq!((answer.unwrap().unwrap(), body), expected, "{piece}");
            }
        }
    }

    #[test]
    fn keep_alive_follows_version_and_fields() {
        let is_reusable = |first: &str, header: &str| {
            parse_response(format!("{first} 200 OK\r\n{header}Content-Length: 0\r\n\r\n").as_bytes()).0.is_reusable
        };
        assert!(is_reusable("HTTP/1.1", "") && is_reusable("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(!is_reusable("HTTP/1.0", "") && !is_reusable("HTTP/1.1", "connection: x, Close\r\n"));
    }

    #[test]
    fn many_and_folded_fields_are_accepted() {
        let many_fields =
            format!("HTTP/1.1 200 OK\r\n{}Content-Length: 5\r\n\r\nhello", "X-Some: value\r\n".repeat(4000));
        let max_fields =
            format!("HTTP/1.1 200 OK\r\n{}Content-Length:5\r\n\r\nhello", "a:\r\n".repeat(MAX_HEADERS - 20));
        for response in [
            &many_fields,
            &max_fields,
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
                let (answer, body, _) = feed_in_pieces(response.as_bytes(), piece, false);
                let expected = (Ok(Some(ParsedResponse { status: 200, body: 5, is_reusable: true })), &b"hello"[..]);
                assert_eq!((answer, &body[..]), expected, "{:.80}", response);
            }
        }
        let closes = "HTTP/1.1 200 OK\r\nConnection: a,\r\n close\r\nContent-Length: 0\r\n\r\n";
        assert!(!parse_response(closes.as_bytes()).0.is_reusable);
    }

    #[test]
    fn close_ends_only_unframed_body() {
        let finish_after = |response: &[u8]| feed_in_pieces(response, response.len().max(1), false).2.finish();
        let unframed = b"HTTP/1.1 200 OK\r\n\r\nhello";
        assert_eq!(finish_after(unframed), Ok(ParsedResponse { status: 200, body: 5, is_reusable: false }));
        assert_eq!(finish_after(b""), Err(TruncatedAt::Head));
        assert_eq!(finish_after(b"HTTP/1.1 2"), Err(TruncatedAt::Head));
        assert_eq!(finish_after(&LENGTH[..LENGTH.len() - 1]), Err(TruncatedAt::Body));
        assert_eq!(finish_after(&CHUNKED[..CHUNKED.len() - 1]), Err(TruncatedAt::Body));
    }

    #[test]
    fn non_response_is_refused() {
        let parse_error = |response: &[u8]| feed_in_pieces(response, response.len(), false).0.unwrap_err();
        let head = |fields: &str| parse_error(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        for status_line in ["SSH-2.0-OpenSSH", "HTTP/2.0 200 OK", "HTTP/0.9 200 OK", "HTTP/1.x 200 OK"] {
            assert!(
                matches!(parse_error(format!("{status_line}\r\n\r\n").as_bytes()), MalformedResponse::Head(_)),
                "{status_line}"
            );
        }
        for length in ["-1", "+5", "", "5, 6", "99999999999999999999", "0x10"] {
            assert_eq!(head(&format!("Content-Length: {length}\r\n")), MalformedResponse::Length, "{length}");
        }
        assert_eq!(head("Content-Length: 5\r\nContent-Length: 6\r\n"), MalformedResponse::Length);
        assert_eq!(head("Transfer-Encoding: gzip, chunked\r\n"), MalformedResponse::Coding);
        let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(MAX_HEAD_BYTES));
        for piece in [1000, long_head.len()] {
            assert_eq!(
                feed_in_pieces(long_head.as_bytes(), piece, false).0,
                Err(MalformedResponse::TooLong),
                "{piece}"
            );
        }
        assert!(matches!(parse_error(b"HTTP/1.1 099 Low\r\nContent-Length: 1\r\n\r\n"), MalformedResponse::Head(_)));
        assert_eq!(parse_error(b"HTTP/1.1 101 Switching\r\n\r\n"), MalformedResponse::UnexpectedUpgrade);
        assert_eq!(parse_error(&[LENGTH, b"!"].concat()), MalformedResponse::TrailingBytes);
    }

    #[test]
    fn invalid_chunks_are_refused() {
        let parse_error = |response: &[u8]| feed_in_pieces(response, response.len(), false).0.unwrap_err();
        let chunks =
            |body: &str| parse_error(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes());
        for chunk in ["x\r\n", "3x\r\n", "3\r\r\n", "3\r\nhelp\r\n", "-1\r\n", "\r\n", "11111111111111111\r\n"] {
            assert_eq!(chunks(chunk), MalformedResponse::Chunk, "{chunk:?}");
        }
        assert_eq!(chunks(&"1".repeat(10_000)), MalformedResponse::Chunk);
    }

    #[test]
    fn split_head_with_large_body_is_accepted() {
        let body = "b".repeat(3 * MAX_HEAD_BYTES);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (first, rest) = response.as_bytes().split_at(20);
        let mut exchange = ResponseParser::new(false);
        assert_eq!(exchange.feed(first, &mut |_| ()), Ok(None));
        let expected = ParsedResponse { status: 200, body: body.len() as u64, is_reusable: true };
        assert_eq!(exchange.feed(rest, &mut |_| ()), Ok(Some(expected)));
    }

    #[test]
    fn endless_head_is_bounded() {
        let heads = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
        let lines = b"X: y\r\n".repeat(100_000);
        let chunked = [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"[..], &lines].concat();
        for endless in [&heads, &chunked] {
            for piece in [7, 100_000] {
                let (answer, body, exchange) = feed_in_pieces(endless, piece, false);
                assert_eq!((answer, body.len()), (Ok(None), 0));
                assert!(exchange.partial.capacity() <= 2 * MAX_HEAD_BYTES, "{}", exchange.partial.capacity());
            }
        }
    }

    #[test]
    fn repeated_equal_length_is_accepted() {
        assert_eq!(parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nhi").1, b"hi");
    }

    /// A right response of which bytes were changed, put in, taken out or doubled.
    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let change = (any::<proptest::sample::Index>(), 0u8..4, any::<u8>(), 1usize..40);
        let changes = proptest::collection::vec(change, 1..6);
        (proptest::sample::select(vec![LENGTH, CHUNKED, EMPTY, AFTER_INTERIM]), changes).prop_map(|(valid, changes)| {
            let mut bytes = valid.to_vec();
            for (position, kind, byte, length) in changes {
                let start = position.index(bytes.len().max(1)).min(bytes.len());
                let end = (start + length).min(bytes.len());
                match kind {
                    0 => bytes.insert(start, byte),
                    1 => drop(bytes.drain(start..end)),
                    2 => drop(bytes.splice(start..start, bytes[start..end].to_vec())),
                    _ => bytes[start..end].fill(byte),
                }
            }
            bytes
        })
    }

    proptest! {
        /// A damaged response is an answer, a fault or not yet whole; which one does not depend on the pieces it comes in.
        #[test]
        fn mutated_response_result_ignores_segmentation(response in mutated(), piece in 1usize..60) {
            let (whole_result, body, whole_parser) = feed_in_pieces(&response, response.len().max(1), false);
            let (pieces_result, body_in_pieces, pieces_parser) = feed_in_pieces(&response, piece, false);
            match (whole_result, pieces_result) {
                // The bytes after an answer come with it or not at all.
                (Err(MalformedResponse::TrailingBytes), Ok(Some(_))) => prop_assert_eq!(body, body_in_pieces),
                (Ok(None), Ok(None)) => prop_assert_eq!((whole_parser.finish(), body), (pieces_parser.finish(), body_in_pieces)),
                // Which of several faults is seen first may differ.
                (Err(_), Err(_)) => {}
                (whole, in_pieces) => prop_assert_eq!((whole, body), (in_pieces, body_in_pieces)),
            }
            prop_assert!(whole_parser.partial.len() <= MAX_HEAD_BYTES);
        }

        /// Any bytes after any head are taken without a panic, and never as more body than came.
        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..50) {
            for head in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
                let (_, body, _) = feed_in_pieces(&[head, &bytes].concat(), piece, false);
                prop_assert!(body.len() <= bytes.len());
            }
        }
    }
}
