//! The access log of every model: what each client did, whatever it was.

mod test_server;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use kelvin_http::load::replay::Replay;
use kelvin_http::load::request::RequestTemplate;
use kelvin_http::serve::ServerAccess;
use kelvin_http::serve::access_log::{AccessLog, LogFormat, LogTarget};
use test_server::{LARGE, SMALL, TestServer, all_models, files, setup_name, wait_readable};

fn logged_access(path: &Path, format: LogFormat) -> ServerAccess {
    let log = AccessLog::new(LogTarget::File(path.to_owned()), format);
    ServerAccess { access_log: Some(Arc::new(log)), ..ServerAccess::default() }
}

/// A line without its time, which is checked for its form.
fn without_time(line: &str) -> String {
    let (before, rest) = line.split_once('[').unwrap();
    let (time, after) = rest.split_once(']').unwrap();
    assert!(time.len() == "10/Oct/2000:20:55:36 +0000".len() && time.ends_with(" +0000"), "{time}");
    before.to_owned() + after
}

#[test]
fn every_answer_has_a_line() {
    let (root, _) = files();
    let logs = tempfile::tempdir().unwrap();
    for setup in all_models() {
        let name = setup_name(&setup);
        let path = logs.path().join(&name);
        let server = TestServer::start_with(root.path(), setup, || logged_access(&path, LogFormat::Combined));
        let head = "Host: 127.0.0.1\r\nUser-Agent: a \"b\" \\ é\r\nReferer: http://x/\r\n";
        for request in [
            format!("GET /small HTTP/1.1\r\n{head}\r\n"),
            format!("HEAD /small?q=1 HTTP/1.1\r\n{head}\r\nGET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
            format!("GET /large HTTP/1.1\r\n{head}Range: bytes=5-20004\r\n\r\n"),
            "GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=0-0,9-10\r\n\r\n".into(),
            "\u{1}\u{2}\"\r\n\r\n".into(),
            "G\0".into(),
        ] {
            server.query(request.as_bytes());
        }
        server.end();
        let log = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = log.lines().map(without_time).collect();
        // Another thread may write its line sooner.
        lines.sort_unstable();
        let client = r#""http://x/" "a \x22b\x22 \x5C \xC3\xA9""#;
        let multipart = lines.iter().position(|line| line.contains("\" 206 ") && !line.contains(" 20000 "));
        let multipart = lines.remove(multipart.unwrap());
        assert!(multipart.starts_with("127.0.0.1 - -  \"GET /large HTTP/1.1\" 206 "), "{name}: {multipart}");
        let mut expected = [
            format!("127.0.0.1 - -  \"GET /large HTTP/1.1\" 206 20000 {client}"),
            format!("127.0.0.1 - -  \"GET /small HTTP/1.1\" 200 5 {client}"),
            format!("127.0.0.1 - -  \"HEAD /small?q=1 HTTP/1.1\" 200 0 {client}"),
            "127.0.0.1 - -  \"GET /none HTTP/1.1\" 404 14 \"-\" \"-\"".into(),
            r#"127.0.0.1 - -  "\x01\x02\x22" 400 16 "-" "-""#.into(),
            r#"127.0.0.1 - -  "G\x00" 400 16 "-" "-""#.into(),
        ];
        expected.sort_unstable();
        assert_eq!(lines, expected, "{name}");
        let replay = Replay::read(log.as_bytes(), 1.0, &RequestTemplate::default()).unwrap();
        assert_eq!((replay.paths.len(), replay.skipped.total()), (4, 3), "{name}: {}", replay.skipped);
    }
}

#[test]
fn client_that_goes_is_logged_with_what_it_was_sent() {
    let (root, large) = files();
    let logs = tempfile::tempdir().unwrap();
    for setup in all_models() {
        let name = setup_name(&setup);
        let path = logs.path().join(&name);
        let server = TestServer::start_with(root.path(), setup, || logged_access(&path, LogFormat::Common));
        let mut client = server.connect();
        kelvin_sys::net::set_buffers(&client, 4096).unwrap();
        client.write_all(&[SMALL, LARGE, SMALL].concat()).unwrap();
        wait_readable(&client);
        drop(client);
        assert!(server.accepts_client());
        server.end();
        let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(without_time).collect();
        let bytes = |line: &str| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
        let large_line = lines.iter().find(|line| line.contains("/large")).unwrap();
        assert!(bytes(large_line) < large.len(), "{name}: {large_line}");
        // What was asked for behind it was not answered.
        let small_line = "127.0.0.1 - -  \"GET /small HTTP/1.1\" 200 5";
        assert_eq!(lines.iter().filter(|line| *line == small_line).count(), lines.len() - 1, "{name}");
        assert_eq!(lines.len(), 3, "{name}");
    }
}
