//! Requests that two programs on the way could read differently: none gets another answered behind it.

use super::hostile::{answer_statuses, smuggling_cases};
use super::*;

/// What would be answered if a request before it ended elsewhere.
const NEXT_REQUEST: &[u8] = b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn ambiguous_request_closes_connection() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    for (bytes, status) in smuggling_cases::CASES {
        let input = [bytes, NEXT_REQUEST].concat();
        for cut in [(input.len(), 1 << 20), (1, 1 << 20)] {
            let (sent, is_over) = exchange(&mut site, &input, cut);
            let text = String::from_utf8_lossy(bytes);
            assert_eq!((answer_statuses(&sent), is_over), (vec![status], true), "{text:?}");
        }
    }
}

#[test]
fn unambiguous_request_and_next_are_answered() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    for bytes in [
        &b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"[..],
        b"\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost:localhost\r\nX:\r\nY: \t z \t\r\n\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nX: \xff\xfe\r\n\r\n",
        b"GET http://localhost/a.txt HTTP/1.1\r\nHost: other.example\r\n\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nTransfer_Encoding: chunked\r\nContent_Length: 31\r\n\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nTE: chunked\r\nTrailer: X\r\n\r\n",
    ] {
        let (sent, is_over) = exchange(&mut site, &[bytes, NEXT_REQUEST].concat(), (7, 1 << 20));
        assert_eq!((answer_statuses(&sent), is_over), (vec![200, 200], false), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn unknown_method_of_any_length_is_refused() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    for length in [1, 3, 63, 64, 65, 500, 1990, 10_000, 1 << 20] {
        for rest in ["", " / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            let input = format!("{}{rest}", "A".repeat(length));
            let (sent, is_over) = exchange(&mut site, input.as_bytes(), (1000, 4096));
            let is_incomplete = rest.is_empty() && length < 565;
            let expected = if is_incomplete { vec![] } else { vec![405] };
            assert_eq!((answer_statuses(&sent), is_over), (expected, !is_incomplete), "{length} {rest}");
        }
    }
}
