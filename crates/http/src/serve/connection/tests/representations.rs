//! Compressed files beside those that are asked for, and what caches are told.

use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::serve::cache_control::CacheRules;

/// Answers from a directory, with compressed files and these values of `Cache-Control`.
fn compressed_site(directory: &Path, cache_rules: &[&str]) -> Site {
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(directory).unwrap()), 16);
    let cache_rules = cache_rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let cache_rules = Arc::new(CacheRules::new(cache_rules).unwrap());
    Site::new(files, SiteConfig { sends_compressed: true, inline_limit: 4096, cache_rules, ..SiteConfig::default() })
}

/// A page with what stands for its compressed files, of which that of Zstandard is the smallest; and a page of a directory.
fn pages() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("a.html", "0123456789"),
        ("a.html.br", "brotli"),
        ("a.html.zst", "zstd"),
        ("a.html.gz", "gzipped"),
        ("index.html", "index"),
        ("index.html.gz", "zip"),
        ("plain", "plain"),
    ] {
        fs::write(root.path().join(name), content).unwrap();
    }
    root
}

fn status(head: &str) -> &str {
    &head["HTTP/1.1 ".len()..][..3]
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn best_accepted_representation_is_sent() {
    let root = pages();
    let mut site = compressed_site(root.path(), &[]);
    for (accepted, content, coding) in [
        ("", "0123456789", None),
        ("Accept-Encoding: gzip, deflate, br, zstd\r\n", "zstd", Some("zstd")),
        ("Accept-Encoding: gzip\r\nAccept-Encoding: br;q=0.9\r\n", "gzipped", Some("gzip")),
        ("Accept-Encoding: identity;q=0, br\r\n", "brotli", Some("br")),
        ("Accept-Encoding: identity, gzip;q=0.5\r\n", "0123456789", None),
        ("Accept-Encoding: deflate\r\n", "0123456789", None),
        ("Accept-Encoding: \u{e9};q=1, *\r\n", "zstd", Some("zstd")),
    ] {
        let (head, body) = get(&mut site, "/a.html", accepted);
        assert_eq!((status(&head), String::from_utf8(body).unwrap().as_str()), ("200", content), "{accepted}");
        assert_eq!((field(&head, "Content-Encoding"), field(&head, "Vary")), (coding, Some("Accept-Encoding")));
        assert_eq!(field(&head, "Content-Type"), Some("text/html; charset=utf-8"), "{accepted}");
        assert_eq!(field(&head, "Content-Length"), Some(content.len().to_string().as_str()), "{accepted}");
    }
    let (head, _) = get(&mut site, "/a.html", "Accept-Encoding: *;q=0\r\n");
    assert_eq!((status(&head), field(&head, "Vary")), ("406", Some("Accept-Encoding")));
    let gzip = "Accept-Encoding: gzip\r\n";
    assert_eq!(get(&mut site, "/", gzip).1, b"zip");
    let (head, _) = get(&mut site, "/plain", "Accept-Encoding: gzip, *;q=0\r\n");
    assert_eq!((status(&head), field(&head, "Vary"), field(&head, "Content-Encoding")), ("200", None, None));
    let (head, body) = get(&mut site, "/a.html.gz", gzip);
    assert_eq!((field(&head, "Content-Encoding"), field(&head, "Content-Type")), (None, Some("application/gzip")));
    assert_eq!(body, b"gzipped");
}

#[test]
fn tags_and_ranges_are_those_of_the_representation() {
    let root = pages();
    // The same size at the same time.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["a.html", "a.html.gz"] {
        let file = fs::File::create(root.path().join(name)).unwrap();
        std::io::Write::write_all(&mut &file, &name.as_bytes()[..6]).unwrap();
        file.set_modified(time).unwrap();
    }
    let mut site = compressed_site(root.path(), &[]);
    let [plain, gzip] = ["", "Accept-Encoding: gzip\r\n"];
    let [plain_tag, gzip_tag] = [plain, gzip].map(|fields| tag(&get(&mut site, "/a.html", fields).0).to_owned());
    assert_eq!(gzip_tag, plain_tag.replace("-6\"", "-6-gzip\""));
    for (accepted, tag, expected) in
        [(plain, &plain_tag, "304"), (gzip, &gzip_tag, "304"), (plain, &gzip_tag, "200"), (gzip, &plain_tag, "200")]
    {
        let (head, _) = get(&mut site, "/a.html", &format!("{accepted}If-None-Match: {tag}\r\n"));
        assert_eq!((status(&head), field(&head, "Vary")), (expected, Some("Accept-Encoding")), "{accepted}{tag}");
        let fields = format!("{accepted}If-Range: {tag}\r\nRange: bytes=1-2\r\n");
        let expected = if expected == "304" { "206" } else { "200" };
        assert_eq!(status(&get(&mut site, "/a.html", &fields).0), expected, "{accepted}{tag}");
    }
    let (head, body) = get(&mut site, "/a.html", &format!("{gzip}Range: bytes=2-3\r\n"));
    assert_eq!((field(&head, "Content-Range"), body.as_slice()), (Some("bytes 2-3/6"), &b"ht"[..]));
    assert_eq!(field(&head, "Content-Encoding"), Some("gzip"));
    // What has parts is not what is coded.
    let parts = "Range: bytes=0-0,2-2\r\n";
    assert_eq!(status(&get(&mut site, "/a.html", &format!("{gzip}{parts}")).0), "200");
    assert_eq!(status(&get(&mut site, "/a.html", parts).0), "206");
}

#[test]
fn compressed_file_is_found_and_lost_within_a_second() {
    let root = pages();
    let [plain, compressed] = ["a.html", "a.html.gz"].map(|name| root.path().join(name));
    let mut site = compressed_site(root.path(), &[]);
    let mut now = Instant::now();
    let mut is_coded_after_a_second = || {
        now += Duration::from_secs(1);
        site.tick(now);
        get(&mut site, "/a.html", "Accept-Encoding: gzip\r\n").0.contains("Content-Encoding: gzip")
    };
    assert!(is_coded_after_a_second());
    let set_time = |path: &Path, time: SystemTime| {
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    let time = fs::metadata(&plain).unwrap().modified().unwrap();
    set_time(&compressed, time - Duration::from_secs(1));
    assert!(!is_coded_after_a_second(), "it is older than the file");
    let second = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    set_time(&compressed, SystemTime::UNIX_EPOCH + Duration::from_secs(second));
    assert!(is_coded_after_a_second(), "only the fraction of the time is lost");
    fs::remove_file(&compressed).unwrap();
    assert!(!is_coded_after_a_second());
    fs::create_dir(&compressed).unwrap();
    assert!(!is_coded_after_a_second());
    fs::remove_dir(&compressed).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &compressed).unwrap();
    assert!(!is_coded_after_a_second(), "a link leads out of the root");
}

#[test]
fn no_more_files_are_held_than_may_be() {
    let root = pages();
    let mut site = compressed_site(root.path(), &[]);
    let budget = Arc::new(crate::serve::open_file_cache::FileBudget::new(4));
    site.files.budget = Arc::clone(&budget);
    let remaining = || budget.load(std::sync::atomic::Ordering::Relaxed);
    get(&mut site, "/index.html", "");
    assert_eq!(remaining(), 2);
    get(&mut site, "/a.html", "");
    assert_eq!(remaining(), 2, "it has four, and is not held");
    site.files.clear();
    get(&mut site, "/a.html", "");
    assert_eq!(remaining(), 0);
}

#[test]
fn caches_are_told_what_was_asked_for() {
    let root = pages();
    let mut site = compressed_site(root.path(), &["no-cache", ".html:public, max-age=60"]);
    let value = |head: &str| field(head, "Cache-Control").map(str::to_owned);
    let (head, _) = get(&mut site, "/a.html", "Accept-Encoding: gzip\r\n");
    let fields = format!("Accept-Encoding: gzip\r\nIf-None-Match: {}\r\n", tag(&head));
    for fields in ["", &fields, "Range: bytes=0-0\r\n", "Range: bytes=0-0,2-2\r\n"] {
        let (head, _) = get(&mut site, "/a.html", fields);
        assert_eq!(value(&head).as_deref(), Some("public, max-age=60"), "{head}");
    }
    assert_eq!(value(&get(&mut site, "/", "").0).as_deref(), Some("public, max-age=60"));
    assert_eq!(value(&get(&mut site, "/plain", "").0).as_deref(), Some("no-cache"));
    for path in ["/none", "/a.html/"] {
        assert_eq!(value(&get(&mut site, path, "").0), None, "{path}");
    }
}
