//! Paths that try to leave the root: no answer has anything that lies outside, or shows that it is there.

use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;

use super::hostile::answer_statuses;
use super::*;

const SECRET: &[u8] = b"what nobody may read";

/// A root with links of all kinds, next to a file and a directory that are not in it.
fn root_with_outside_files() -> tempfile::TempDir {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("root");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir(parent.path().join("other")).unwrap();
    for name in ["secret", "other/secret", "root-secret"] {
        fs::write(parent.path().join(name), SECRET).unwrap();
    }
    fs::write(root.join("a.txt"), CONTENT).unwrap();
    for (link, target) in [
        ("up", ".."),
        ("upup", "../.."),
        ("out", "../secret"),
        ("round", "../root/a.txt"),
        ("other", "../other"),
        ("sub/out", "../../secret"),
        ("sub/chain", "../out"),
        ("top", "/"),
        ("proc", "/proc/self/root"),
        ("cwd", "/proc/self/cwd"),
        ("fds", "/proc/self/fd"),
        ("dev", "/dev/fd"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    symlink(parent.path().join("secret"), root.join("absolute")).unwrap();
    parent
}

/// Ways to write two dots and a slash.
const PARENT_SPELLINGS: [&str; 22] = [
    "../",
    "..%2f",
    "..%2F",
    "%2e%2e/",
    "%2E%2e%2f",
    ".%2e/",
    "%2e./",
    "..\\",
    "..%5c",
    "..%255c",
    "%252e%252e%252f",
    "..%252f",
    "%25252e%25252e%25252f",
    "..%c0%af",
    "%c0%ae%c0%ae/",
    "%e0%80%ae%e0%80%ae/",
    "%f0%80%80%ae%f0%80%80%ae/",
    "..%u2215",
    "%uff0e%uff0e/",
    "..;/",
    "..%00/",
    "....//",
];

/// What to reach by them, from below.
const OUTSIDE_PATHS: [&str; 5] = ["secret", "other/secret", "root-secret", "root/../secret", "etc/passwd"];

/// Paths that need no dots.
const DIRECT_PATHS: [&str; 30] = [
    "/out",
    "/absolute",
    "/sub/out",
    "/sub/chain",
    "/up/secret",
    "/up/root/a.txt",
    "/upup/etc/passwd",
    "/other/secret",
    "/other",
    "/other/",
    "/round",
    "/top/etc/passwd",
    "/top/",
    "/proc/etc/passwd",
    "/proc",
    "/cwd/Cargo.toml",
    "/cwd/",
    "/fds/0",
    "/dev/0",
    "//etc/passwd",
    "/./etc/passwd",
    "/etc/passwd",
    "/~root/.profile",
    "/-secret",
    "/%2e",
    "/%2e%2e",
    "/..",
    "/.",
    "/%00",
    "/..%00",
];

fn paths(root: &Path) -> Vec<String> {
    let mut paths: Vec<String> = DIRECT_PATHS.iter().map(|path| (*path).to_owned()).collect();
    for (parent, goal) in PARENT_SPELLINGS.iter().flat_map(|parent| OUTSIDE_PATHS.map(|goal| (parent, goal))) {
        for (before, depth) in ["/", "/sub/", "/sub/deep/", "/a.txt/", "/none/", "//"].iter().zip([1, 2, 3, 8, 40, 1]) {
            paths.push(format!("{before}{}{goal}", parent.repeat(depth)));
        }
    }
    // Whole paths, and the root by what this process has open.
    let handle = fs::File::open(root.parent().unwrap()).unwrap();
    paths.push(format!("/fds/{}/secret", handle.as_raw_fd()));
    for path in [root.with_file_name("secret"), format!("/proc/self/fd/{}/secret", handle.as_raw_fd()).into()] {
        paths.push(path.to_str().unwrap().to_owned());
        paths.push(format!("/{}", path.to_str().unwrap().replace('/', "%2f")));
    }
    paths
}

#[test]
fn no_path_escapes_root() {
    let parent = root_with_outside_files();
    let root = parent.path().join("root");
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(&root).unwrap()), 16);
    let mut site =
        Site::new(files, SiteConfig { lists_directories: true, inline_limit: 4096, ..SiteConfig::default() });
    for path in paths(&root) {
        for target in [path.clone(), format!("http://localhost{path}"), format!("{path}?a=b")] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let (sent, _) = exchange(&mut site, request.as_bytes(), (4096, 1 << 20));
            let codes = answer_statuses(&sent);
            assert!(matches!(codes[..], [400 | 403 | 404]), "{target}: {codes:?}");
            assert!(!sent.windows(SECRET.len()).any(|window| window == SECRET), "{target}");
        }
    }
}

#[test]
fn non_ascii_bytes_are_no_separators() {
    let parent = root_with_outside_files();
    let files = OpenFileCache::new(Arc::new(DocumentRoot::open(&parent.path().join("root")).unwrap()), 16);
    let mut site = Site::new(files, SiteConfig::default());
    for bytes in
        [&b"..\xc0\xaf"[..], b"\xc0\xae\xc0\xae/", b"\xe0\x80\xae\xe0\x80\xae/", "．．／".as_bytes(), "‥/".as_bytes()]
    {
        let request = [b"GET /", bytes, b"secret HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat();
        let (sent, _) = exchange(&mut site, &request, (4096, 1 << 20));
        assert!(matches!(answer_statuses(&sent)[..], [400 | 404]), "{bytes:?}: {:?}", String::from_utf8_lossy(&sent));
    }
}

#[test]
fn directory_swapped_for_link_is_not_followed() {
    let parent = root_with_outside_files();
    let root = parent.path().join("root");
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/secret"), "open").unwrap();
    symlink("../other", root.join("link")).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let swap = || {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            renameat_with(CWD, root.join("dir"), CWD, root.join("link"), RenameFlags::EXCHANGE).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(swap);
        let root = DocumentRoot::open(&root).unwrap();
        let target = crate::serve::decoded_path::DecodedPath::decode("/dir/secret").unwrap();
        for _ in 0..20_000 {
            if let Ok(crate::serve::document_root::RootEntry::File(mut file, _)) = root.find(&target) {
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut content).unwrap();
                assert_eq!(content, b"open");
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
