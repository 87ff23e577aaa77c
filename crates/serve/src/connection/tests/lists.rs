//! Lists of directories for clients that do not read them, redirects, later versions, and modifications that are still to come.

use std::time::{Duration, SystemTime};

use super::*;

fn listing(directory: &Path) -> Site {
    let files = Files::new(Arc::new(Root::open(directory).unwrap()), 16);
    Site::new(files, Manner { lists: true, inline: 4096, ..Manner::default() })
}

/// A directory whose list has about so many bytes.
fn long(top: &Path, name: &str, bytes: usize) {
    fs::create_dir(top.join(name)).unwrap();
    for number in 0..bytes / 430 {
        fs::write(top.join(name).join(format!("{number:0200}")), "").unwrap();
    }
}

/// A connection over which this was asked for, and nothing was taken.
fn asked(site: &mut Site, path: &str) -> Connection {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut connection = Connection::default();
    connection.buffer(1).extend_from_slice(request.as_bytes());
    connection.received(request.len());
    connection.advance(site);
    connection
}

#[test]
fn clients_that_do_not_read_a_list_hold_it_once() {
    let top = tempfile::tempdir().unwrap();
    long(top.path(), "many", 100_000);
    let mut site = listing(top.path());
    let waiting: Vec<Connection> = (0..1000).map(|_| asked(&mut site, "/many/")).collect();
    let kept: usize = waiting.iter().map(|one| one.input.capacity() + one.output.capacity()).sum();
    assert!(kept < waiting.len() << 10, "{kept}");
    let first = &waiting[0].part().unwrap().opened;
    assert!(waiting.iter().all(|one| Arc::ptr_eq(&one.part().unwrap().opened, first)));
    assert!(first.identity.size > 80_000);
    let (sent, _) = exchange(&mut site, b"GET /many/ HTTP/1.1\r\nHost: a\r\n\r\n", (99, 99));
    let text = String::from_utf8(sent).unwrap();
    assert!(text.contains(&format!("\r\nContent-Length: {}\r\n", first.identity.size)) && text.ends_with("</ul>\n"));
    let (head, _) = exchange(&mut site, b"HEAD /many/ HTTP/1.1\r\nHost: a\r\n\r\n", (99, 99));
    assert!(head.ends_with(b"\r\n\r\n"));
}

#[test]
fn no_more_than_so_many_different_lists_are_held() {
    let top = tempfile::tempdir().unwrap();
    (0..66).for_each(|number| long(top.path(), &number.to_string(), 20_000));
    let mut site = listing(top.path());
    let mut waiting: Vec<Connection> = (0..66).map(|number| asked(&mut site, &format!("/{number}/"))).collect();
    assert!(waiting[..64].iter().all(|one| one.part().is_some()));
    assert!(waiting[64..].iter().all(|one| one.output.starts_with(b"HTTP/1.1 503 ")));
    waiting.remove(0);
    assert!(asked(&mut site, "/65/").part().is_some());
}

fn answer(site: &mut Site, request: &str) -> String {
    String::from_utf8(exchange(site, request.as_bytes(), (1000, 1000)).0).unwrap()
}

#[test]
fn a_redirect_keeps_the_query() {
    let top = directory();
    let mut site = site(top.path(), 0);
    for (path, location) in [("/sub?x=1&y=%20", "/sub/?x=1&y=%20"), ("/sub?", "/sub/?"), ("/sub", "/sub/")] {
        let answer = answer(&mut site, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(
            answer.starts_with("HTTP/1.1 301 ") && answer.contains(&format!("\r\nLocation: {location}\r\n")),
            "{answer}"
        );
    }
}

#[test]
fn a_later_version_of_http_1_is_answered_as_the_one_that_is_known() {
    let top = directory();
    let mut site = site(top.path(), 4096);
    let request = "GET /a.txt HTTP/1.2\r\nHost: a\r\n\r\n";
    for piece in [1, 7, 1000] {
        let (sent, is_over) = exchange(&mut site, request.repeat(2).as_bytes(), (piece, 1000));
        let sent = String::from_utf8(sent).unwrap();
        assert_eq!((sent.matches("HTTP/1.1 200 OK\r\n").count(), is_over), (2, false), "{sent}");
    }
}

#[test]
fn no_answer_says_that_a_file_was_modified_later_than_it_was_answered() {
    let top = directory();
    let year = Duration::from_secs(365 * 86_400);
    let file = fs::File::options().write(true).open(top.path().join("a.txt")).unwrap();
    file.set_modified(SystemTime::now() + 100 * year).unwrap();
    let mut site = site(top.path(), 4096);
    let answer = answer(&mut site, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let date = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        httpdate::parse_http_date(line).unwrap()
    };
    let (modified, date) = (date("Last-Modified: "), date("Date: "));
    assert!(modified <= date && modified + year > date, "{answer}");
}
