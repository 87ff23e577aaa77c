//! Lists of directories for clients that do not read them, redirects, later versions, and modifications that are still to come.

use std::time::{Duration, SystemTime};

use super::*;

fn listing(directory: &Path) -> Site {
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(directory).unwrap()), 16);
    Site::new(files, SiteConfig { lists_directories: true, inline_limit: 4096, ..SiteConfig::default() })
}

/// A directory whose list has about this many bytes.
fn long_directory(parent: &Path, name: &str, bytes: usize) {
    fs::create_dir(parent.join(name)).unwrap();
    for number in 0..bytes / 430 {
        fs::write(parent.join(name).join(format!("{number:0200}")), "").unwrap();
    }
}

/// A connection over which this was asked for, and nothing was taken.
fn request_unread(site: &mut Site, path: &str) -> Connection {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut connection = Connection::default();
    connection.input_buffer(1).extend_from_slice(request.as_bytes());
    connection.mark_received(request.len());
    connection.advance(site);
    connection
}

#[test]
fn nonreading_clients_share_one_listing() {
    let root = tempfile::tempdir().unwrap();
    long_directory(root.path(), "many", 100_000);
    let mut site = listing(root.path());
    let connections: Vec<Connection> = (0..1000).map(|_| request_unread(&mut site, "/many/")).collect();
    let capacity: usize =
        connections.iter().map(|connection| connection.input.capacity() + connection.output.capacity()).sum();
    assert!(capacity < connections.len() << 10, "{capacity}");
    let first = &connections[0].file_range.as_ref().unwrap().open_file;
    assert!(
        connections.iter().all(|connection| Arc::ptr_eq(&connection.file_range.as_ref().unwrap().open_file, first))
    );
    assert!(first.identity.size > 80_000);
    let (sent, _) = exchange(&mut site, b"GET /many/ HTTP/1.1\r\nHost: a\r\n\r\n", (99, 99));
    let text = String::from_utf8(sent).unwrap();
    assert!(text.contains(&format!("\r\nContent-Length: {}\r\n", first.identity.size)) && text.ends_with("</ul>\n"));
    let (head, _) = exchange(&mut site, b"HEAD /many/ HTTP/1.1\r\nHost: a\r\n\r\n", (99, 99));
    assert!(head.ends_with(b"\r\n\r\n"));
}

#[test]
fn held_listings_are_bounded() {
    let root = tempfile::tempdir().unwrap();
    (0..66).for_each(|number| long_directory(root.path(), &number.to_string(), 20_000));
    let mut site = listing(root.path());
    let mut connections: Vec<Connection> =
        (0..66).map(|number| request_unread(&mut site, &format!("/{number}/"))).collect();
    assert!(connections[..64].iter().all(|connection| connection.file_range.as_ref().is_some()));
    assert!(connections[64..].iter().all(|connection| connection.output.starts_with(b"HTTP/1.1 503 ")));
    connections.remove(0);
    assert!(request_unread(&mut site, "/65/").file_range.as_ref().is_some());
}

fn answer(site: &mut Site, request: &str) -> String {
    String::from_utf8(exchange(site, request.as_bytes(), (1000, 1000)).0).unwrap()
}

#[test]
fn redirect_keeps_query() {
    let root = directory();
    let mut site = site(root.path(), 0);
    for (path, location) in [("/sub?x=1&y=%20", "/sub/?x=1&y=%20"), ("/sub?", "/sub/?"), ("/sub", "/sub/")] {
        let answer = answer(&mut site, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(
            answer.starts_with("HTTP/1.1 301 ") && answer.contains(&format!("\r\nLocation: {location}\r\n")),
            "{answer}"
        );
    }
}

#[test]
fn later_http_1_version_is_answered() {
    let root = directory();
    let mut site = site(root.path(), 4096);
    let request = "GET /a.txt HTTP/1.2\r\nHost: a\r\n\r\n";
    for piece in [1, 7, 1000] {
        let (sent, is_over) = exchange(&mut site, request.repeat(2).as_bytes(), (piece, 1000));
        let sent = String::from_utf8(sent).unwrap();
        assert_eq!((sent.matches("HTTP/1.1 200 OK\r\n").count(), is_over), (2, false), "{sent}");
    }
}

#[test]
fn last_modified_never_exceeds_date() {
    let root = directory();
    let year = Duration::from_secs(365 * 86_400);
    let file = fs::File::options().write(true).open(root.path().join("a.txt")).unwrap();
    file.set_modified(SystemTime::now() + 100 * year).unwrap();
    let mut site = site(root.path(), 4096);
    let answer = answer(&mut site, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let date = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        httpdate::parse_http_date(line).unwrap()
    };
    let (modified, date) = (date("Last-Modified: "), date("Date: "));
    assert!(modified <= date && modified + year > date, "{answer}");
}
