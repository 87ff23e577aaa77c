//! Connections without sockets: what is sent for what arrives, however it is cut.

#[path = "../../../tests/hostile/mod.rs"]
mod hostile;
mod listings;
mod representations;
mod smuggling;
mod traversal;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::serve::document_root::DocumentRoot;
use crate::serve::host::AllowedHosts;
use crate::serve::limits::ServerLimits;
use crate::serve::open_file_cache::OpenFileCache;
use crate::serve::site::SiteConfig;

const CONTENT: &[u8] = b"0123456789abcdef";

/// A site with a file of 16 bytes, one of 100,000, an empty one, and a directory with a page.
fn directory() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.txt"), CONTENT).unwrap();
    fs::write(root.path().join("large"), large()).unwrap();
    fs::write(root.path().join("empty"), "").unwrap();
    fs::create_dir(root.path().join("sub")).unwrap();
    fs::write(root.path().join("sub/index.html"), "<p>").unwrap();
    fs::create_dir(root.path().join("bare")).unwrap();
    root
}

fn large() -> Vec<u8> {
    (0..100_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn site(directory: &Path, inline: u64) -> Site {
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(directory).unwrap()), 16);
    Site::new(
        files,
        SiteConfig {
            inline_limit: inline,
            limits: ServerLimits { head_bytes: 2000, target_bytes: 500, ..ServerLimits::default() },
            ..SiteConfig::default()
        },
    )
}

/// What is sent for what arrives in pieces of this size, with this many bytes taken at a time; and whether the connection ends.
fn exchange(site: &mut Site, input: &[u8], (piece, taken): (usize, usize)) -> (Vec<u8>, bool) {
    let (mut connection, mut buffers, mut sent) = (Connection::default(), LargeBuffers::default(), Vec::new());
    let mut pieces = input.chunks(piece.max(1));
    loop {
        connection.attach_buffers(&mut buffers);
        match connection.next_io() {
            NextIo::Send => send(&mut connection, taken, &mut sent),
            NextIo::Advance => connection.advance(site),
            NextIo::Receive => match pieces.next() {
                Some(piece) => {
                    connection.input_buffer(1).extend_from_slice(piece);
                    connection.mark_received(piece.len());
                }
                None => return (sent, false),
            },
            NextIo::End => return (sent, true),
        }
        connection.detach_buffers(&mut buffers);
        let limits = &site.config.limits;
        assert!(
            connection.input.len() <= limits.head_bytes + piece.max(limits.head_bytes)
                && connection.output.len() <= 4 * PIPELINE_OUTPUT_LIMIT + taken
        );
    }
}

#[test]
fn read_ahead_ends_with_its_file() {
    let directory = directory();
    let (mut site, mut sent) = (site(directory.path(), 0), Vec::new());
    let (mut connection, mut buffers) = (Connection::default(), LargeBuffers::default());
    let request = b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.attach_buffers(&mut buffers);
    connection.input_buffer(1).extend_from_slice(&request.repeat(2));
    connection.mark_received(2 * request.len());
    connection.advance(&mut site);
    // The first response is sent whole, its file read ahead; the buffers stay attached, as while a socket takes everything.
    while site.answered == 1 && connection.next_io() == NextIo::Send {
        send(&mut connection, 1000, &mut sent);
    }
    connection.advance(&mut site);
    assert_eq!(site.answered, 2);
    // The socket takes nothing of the second.
    connection.detach_buffers(&mut buffers);
    connection.attach_buffers(&mut buffers);
    while connection.next_io() == NextIo::Send {
        send(&mut connection, 1000, &mut sent);
    }
    let half = sent.len() / 2;
    assert!(sent[..half].ends_with(CONTENT) && sent[..half] == sent[half..], "{}", String::from_utf8_lossy(&sent));
}

/// Takes some of what is to be sent, by one of the two ways.
fn send(connection: &mut Connection, limit: usize, out: &mut Vec<u8>) {
    if limit.is_multiple_of(2) {
        connection.read_file_range(limit).unwrap();
    }
    let bytes = match connection.pending_output().unwrap() {
        PendingOutput::Bytes(bytes, _) => bytes[..bytes.len().min(limit)].to_vec(),
        PendingOutput::FileRange(range) => {
            let bytes = ((range.range.end - range.range.start) as usize).min(limit);
            let mut read = vec![0; bytes];
            std::os::unix::fs::FileExt::read_exact_at(&range.open_file.file, &mut read, range.range.start).unwrap();
            read
        }
    };
    connection.mark_sent(bytes.len());
    out.extend_from_slice(&bytes);
}

/// The head and the content of an answer, without the date.
fn answer(site: &mut Site, request: &str) -> (String, Vec<u8>) {
    let (sent, _) = exchange(site, request.as_bytes(), (4096, 1 << 20));
    let end = sent.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("{sent:?}"));
    let head = String::from_utf8(sent[..end + 2].to_vec()).unwrap();
    let lines = head.lines().filter(|line| !["Date", "Last-"].iter().any(|name| line.starts_with(name)));
    (lines.collect::<Vec<_>>().join("\n"), sent[end + 4..].to_vec())
}

fn get(site: &mut Site, path: &str, fields: &str) -> (String, Vec<u8>) {
    answer(site, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn tag(head: &str) -> &str {
    head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap()
}

#[test]
fn file_response_has_all_headers() {
    let root = directory();
    for inline in [0, 1 << 20] {
        let mut site = site(root.path(), inline);
        let (head, content) = get(&mut site, "/a.txt", "");
        let tag = tag(&head);
        let expected = format!(
            "HTTP/1.1 200 OK\nServer: kelvin\nETag: {tag}\nAccept-Ranges: bytes\nContent-Type: text/plain; \
             charset=utf-8\nContent-Length: 16"
        );
        assert_eq!((head.as_str(), content.as_slice()), (expected.as_str(), CONTENT));
        let head_answer = answer(&mut site, "HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(head_answer, (head, vec![]));
        assert_eq!(get(&mut site, "/large", "").1, large());
        let (head, content) = get(&mut site, "/empty", "");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("Content-Length: 0") && content.is_empty());
    }
}

#[test]
fn ranges_are_sent_as_206() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let (head, content) = get(&mut site, "/a.txt", "Range: bytes=2-5\r\n");
    assert!(head.starts_with("HTTP/1.1 206 Partial Content\n"), "{head}");
    assert!(head.ends_with("Content-Range: bytes 2-5/16\nContent-Length: 4"), "{head}");
    assert_eq!(content, b"2345");
    assert_eq!(get(&mut site, "/large", "Range: bytes=-7\r\n").1, large()[99_993..]);
    let (head, content) = get(&mut site, "/a.txt", "Range: bytes=16-\r\n");
    assert!(head.starts_with("HTTP/1.1 416") && head.contains("\nContent-Range: bytes */16\n"), "{head}");
    assert_eq!(content, b"416 Range Not Satisfiable\n");
    let (head, content) = answer(&mut site, "HEAD /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=2-5\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && content.is_empty(), "ranges are of GET alone");
}

#[test]
fn multipart_body_matches_content_length() {
    let root = directory();
    let (head, content) = get(&mut site(root.path(), 4096), "/a.txt", "Range: bytes=0-1, -1\r\n");
    let boundary = head.split_once("multipart/byteranges; boundary=").unwrap().1.lines().next().unwrap();
    let kind = "Content-Type: text/plain; charset=utf-8";
    let expected = format!(
        "\r\n--{boundary}\r\n{kind}\r\nContent-Range: bytes 0-1/16\r\n\r\n01\r\n--{boundary}\r\n{kind}\r\n\
         Content-Range: bytes 15-15/16\r\n\r\nf\r\n--{boundary}--\r\n"
    );
    assert_eq!(String::from_utf8(content).unwrap(), expected);
    assert!(head.contains(&format!("Content-Length: {}", expected.len())), "{head}");
}

#[test]
fn unmodified_file_is_304() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let (head, _) = get(&mut site, "/a.txt", "");
    let tag = tag(&head).to_owned();
    let (head, content) = get(&mut site, "/a.txt", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(
        (head, content),
        (format!("HTTP/1.1 304 Not Modified\nServer: kelvin\nETag: {tag}\nAccept-Ranges: bytes"), vec![])
    );
    let code = |site: &mut Site, fields: &str| get(site, "/a.txt", fields).0[9..12].to_owned();
    assert_eq!(code(&mut site, "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n"), "304");
    assert_eq!(code(&mut site, "If-Match: \"other\"\r\n"), "412");
    assert_eq!(code(&mut site, &format!("If-Range: {tag}\r\nRange: bytes=0-1\r\n")), "206");
    assert_eq!(code(&mut site, "If-Range: \"other\"\r\nRange: bytes=0-1\r\n"), "200");
}

#[test]
fn errors_have_their_status() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    for (path, code, field) in [
        ("/none", "404", ""),
        ("/a.txt/", "404", ""),
        ("/a.txt/b", "404", ""),
        ("/../etc/passwd", "400", ""),
        ("/%2e%2e/etc/passwd", "400", ""),
        ("/a%00", "400", ""),
        ("/sub", "301", "Location: /sub/"),
        ("//sub", "301", "Location: /sub/"),
        ("/sub/", "200", "Content-Type: text/html; charset=utf-8"),
        ("/bare/", "403", ""),
        ("/bare/../a.txt", "400", ""),
    ] {
        let (head, _) = get(&mut site, path, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")) && head.contains(field), "{path}: {head}");
        assert!(!head.contains("Connection: close"), "{path}: the connection can go on");
    }
    let (head, _) = answer(&mut site, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert!(
        head.starts_with("HTTP/1.1 405")
            && head.contains("\nAllow: GET, HEAD\n")
            && head.contains("\nConnection: close\n")
    );
}

#[test]
fn foreign_host_on_loopback_is_421() {
    let root = directory();
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(root.path()).unwrap()), 16);
    let names = AllowedHosts::for_address("127.0.0.1".parse().unwrap(), vec!["files.example".parse().unwrap()]);
    let mut site = Site::new(files, SiteConfig { names, ..SiteConfig::default() });
    let foreign_host_request = "GET /a.txt HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n";
    let (head, content) = answer(&mut site, foreign_host_request);
    assert!(head.starts_with("HTTP/1.1 421 Misdirected Request\n") && head.contains("Content-Length: "), "{head}");
    assert!(String::from_utf8(content).unwrap().contains("kelvin serve --host NAME"));
    let local_request = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let named_request = "GET /a.txt HTTP/1.1\r\nHost: files.example\r\n\r\n";
    let absolute_form = |host: &str| format!("GET http://{host}/a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let hostless_request = "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let input = [
        foreign_host_request,
        local_request,
        named_request,
        &absolute_form("evil.example"),
        &absolute_form("127.0.0.1:80"),
        hostless_request,
    ]
    .concat();
    let (sent, is_over) = exchange(&mut site, input.as_bytes(), (4096, 1 << 20));
    assert_eq!((hostile::answer_statuses(&sent), is_over), (vec![421, 200, 200, 421, 200, 200], false));
}

#[test]
fn input_after_close_is_ignored() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let get = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    for first in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let (sent, is_over) = exchange(&mut site, format!("{first}{get}").as_bytes(), (4096, 4096));
        let text = String::from_utf8_lossy(&sent);
        assert!(is_over && text.matches("HTTP/1.1 ").count() == 1, "{first}: {text}");
    }
}

#[test]
fn http_1_0_keep_alive_is_honoured() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let request = "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let (sent, is_over) = exchange(&mut site, request.repeat(2).as_bytes(), (4096, 4096));
    let text = String::from_utf8_lossy(&sent);
    assert!(!is_over && text.matches("\r\nConnection: keep-alive\r\n").count() == 2, "{text}");
    site.is_draining = true;
    let (sent, is_over) = exchange(&mut site, request.repeat(2).as_bytes(), (4096, 4096));
    assert!(is_over && String::from_utf8_lossy(&sent).matches("\r\nConnection: close\r\n").count() == 1);
}

#[test]
fn shrinking_file_fails_its_connection() {
    let root = directory();
    let mut site = site(root.path(), 0);
    let mut connection = Connection::default();
    connection.input_buffer(1).extend_from_slice(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.mark_received(31);
    connection.advance(&mut site);
    fs::write(root.path().join("large"), "short").unwrap();
    connection.read_file_range(3).unwrap();
    while let Some(PendingOutput::Bytes(bytes, _)) = connection.pending_output() {
        let bytes = bytes.len();
        connection.mark_sent(bytes);
    }
    connection.read_file_range(1000).unwrap();
    connection.mark_sent(2);
    assert_eq!(connection.read_file_range(1000), Err(Errno::IO));
    // And the next one gets what is there now, though the path was looked up within the second.
    assert_eq!(get(&mut site, "/large", "").1, b"short");
}

#[test]
fn bytewise_head_is_parsed_few_times() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let request = format!("GET /{}", "a".repeat(1990));
    let (sent, is_over) = exchange(&mut site, request.as_bytes(), (1, 4096));
    assert!(is_over && sent.starts_with(b"HTTP/1.1 414"), "{}", String::from_utf8_lossy(&sent));
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(2000));
    let (sent, is_over) = exchange(&mut site, request.as_bytes(), (1, 4096));
    assert!(is_over && sent.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&sent));
}

#[test]
fn idle_connection_holds_no_large_buffers() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let (mut connection, mut buffers) = (Connection::default(), LargeBuffers::default());
    connection.attach_buffers(&mut buffers);
    connection.input_buffer(16 << 10).extend_from_slice(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET");
    connection.mark_received(34);
    connection.advance(&mut site);
    connection.read_file_range(32 << 10).unwrap();
    connection.detach_buffers(&mut buffers);
    assert!(connection.input.capacity() < 64 && connection.output.capacity() < 400);
    assert!(buffers.input.capacity() >= 16 << 10 && buffers.output.capacity() >= 32 << 10);
}

/// Requests of all kinds, right and wrong.
fn request() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => "(GET|HEAD) /(a\\.txt|large|empty|none|sub|sub/|\\.\\./x|%61\\.txt) HTTP/1\\.1\r\nHost: a\r\n",
        1 => "[ -~\r\n]{0,80}",
    ];
    let field = prop_oneof![
        Just(String::new()),
        "Range: bytes=[0-9]{0,5}-[0-9]{0,6}\r\n",
        "Range: bytes=([0-9]{1,2}-[0-9]{2},){1,3}-1\r\n",
        "(Content-Length|Transfer-Encoding|Connection|If-None-Match|X): (0|5|chunked|close|\\*)\r\n",
    ];
    (line, field).prop_map(|(line, field)| format!("{line}{field}\r\n"))
}

/// Reads that this thread has made (proc(5)), those of this look among them.
fn read_calls() -> Option<u64> {
    let counters = fs::read_to_string("/proc/thread-self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok())
}

#[test]
fn empty_file_is_not_read_for_each_request() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let mut count = |requests| {
        let before = read_calls()?;
        (0..requests).for_each(|_| assert_eq!(get(&mut site, "/empty", "").1, b""));
        Some(read_calls()? - before)
    };
    let (Some(base_count), Some(total_count)) = (count(0), count(100)) else {
        return kelvin_testing::MissingRequirement::machine("the kernel counts no reads")
            .report_skip("reads of an empty file");
    };
    // Where a file may have more than it states, it is.
    let is_exact = kelvin_sys::fs::kind(root.path()).unwrap().has_true_sizes();
    assert_eq!(total_count - base_count, if is_exact { 0 } else { 100 });
}

proptest! {
    /// However a stream of requests is cut on its way in and out, and whether files are read or sent by reference, the answers are
    /// the same.
    #[test]
    fn answers_are_independent_of_segmentation(
        requests in prop::collection::vec(request(), 1..5),
        (piece, taken) in (1usize..5000, 1usize..200_000),
    ) {
        let root = directory();
        let (mut site, input) = (site(root.path(), 4096), requests.concat());
        let (single_piece_answers, is_over) = exchange(&mut site, input.as_bytes(), (1 << 20, 1 << 20));
        let (piecewise_answers, is_cut_over) = exchange(&mut site, input.as_bytes(), (piece, taken));
        prop_assert_eq!((without_dates_and_boundaries(&single_piece_answers), is_over), (without_dates_and_boundaries(&piecewise_answers), is_cut_over));
    }
}

proptest! {
    #![proptest_config(hostile::fuzz_config(2000))]

    /// For any input, however it is cut: what is sent are whole answers, the last of which ends the connection if the rest
    /// cannot be read, and what a connection keeps is bounded.
    #[test]
    fn mutated_requests_get_whole_answers(
        input in hostile::mutated_requests(),
        (piece, taken) in (1usize..3000, 1usize..200_000),
    ) {
        thread_local!(static SITE: std::cell::RefCell<(tempfile::TempDir, Site)> = {
            let root = directory();
            let site = site(root.path(), 4096);
            (root, site).into()
        });
        SITE.with_borrow_mut(|(_, site)| {
            let (sent, is_over) = exchange(site, &input, (piece, taken));
            let codes = hostile::answer_statuses(&sent);
            prop_assert!(codes.len() <= input.len() / 14 + 1, "each request has a line");
            let is_refusal = |code: &u16| [400, 405, 413, 414, 421, 431, 505].contains(code);
            prop_assert!(is_over || !codes.iter().any(|code| is_refusal(code) && *code != 400 && *code != 421));
            Ok(())
        })?;
    }
}

/// What was sent, without what is of the moment: dates and boundaries.
fn without_dates_and_boundaries(sent: &[u8]) -> String {
    let text: String = sent.iter().map(|&byte| char::from(byte)).collect();
    let boundaries = text.split("boundary=").skip(1).map(|rest| &rest[..16]);
    let text_without_boundaries = boundaries.fold(text.clone(), |text, boundary| text.replace(boundary, ""));
    text_without_boundaries.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect::<Vec<_>>().join("\r\n")
}
