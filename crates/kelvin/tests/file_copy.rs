//! `kelvin file copy` as a whole: every byte in its place by every method, every mistake one line, and nothing left behind.

mod test_dir;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};
use kelvin_testing::{MissingRequirement, is_root};
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, assert_refused, names, signal, stderr, stdout, wait_for_output, within};

/// Methods that any file system has.
const PORTABLE_METHODS: [&str; 4] = ["auto", "rw", "copy_file_range", "sendfile"];

#[test]
fn every_method_copies_every_byte() {
    let place = TestDir::new();
    let digest = place.file("data", 1_000_003);
    for method in PORTABLE_METHODS {
        for more in [&["--block", "64k"][..], &["--block", "777", "--sync", "fsync", "--cache", "cached"]] {
            let asked = ["file", "copy", "data", "new", "--method", method, "--overwrite", "--verify"];
            let found = place.json(&[&asked[..], more].concat());
            assert_eq!(place.digest("new"), digest, "{method} {more:?}");
            assert_eq!((&found["bytes"], &found["source_bytes"]), (&1_000_003.into(), &1_000_003.into()), "{found}");
            let calls: u64 = found["calls"].as_object().unwrap().values().map(|calls| calls.as_u64().unwrap()).sum();
            assert!(calls >= found["requests"].as_u64().unwrap(), "{found}");
            assert_eq!(found.get("flush_seconds").is_some(), more.contains(&"fsync"), "{found}");
            assert!(found["compared"].is_string() && found["before"]["pages"].as_u64() == Some(245), "{found}");
        }
    }
    let rw = place.json(&["file", "copy", "data", "rw", "--method", "rw", "--block", "1M", "--no-latency"]);
    assert_eq!((&rw["calls"]["pread"], &rw["calls"]["pwrite"]), (&2.into(), &1.into()));
    assert!(rw.get("latency").is_none() && rw.get("compared").is_none());
    assert_eq!(place.names(), ["data", "new", "rw"]);
}

#[test]
fn copy_reports_method_limit_and_expected_rate() {
    let place = TestDir::new();
    place.file("data", 4 << 20);
    let output = place.run(&["file", "copy", "data", "new", "--method", "rw", "--cache", "cached", "--verify"]);
    let said = stdout(&output);
    for label in [
        "source", "target", "method", "calls", "cache", "device", "sync", "verified", "copied", "time", "rate", "limit",
    ] {
        assert!(said.lines().any(|line| line.starts_with(label)), "no {label} in {said}");
    }
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "rw, blocks of 128 KiB",
        "65 system calls: 33 pread, 32 pwrite",
        "source all in memory before",
        "none: in memory only",
        "to read from memory and",
        "4 MiB in 32 requests",
    ] {
        assert!(flat.contains(words), "no {words:?} in {said}");
    }
    // What cannot be said has a reason.
    place.file("small", 1000);
    let small = place.json(&["file", "copy", "small", "other"]);
    assert!(small.get("expected").is_none() && small["no_expectation_reason"].as_str().unwrap().contains("less than"));
}

#[test]
fn impossible_method_names_remedy() {
    let place = TestDir::new();
    place.file("data", 100_000);
    let shared = place.run(&["file", "copy", "data", "shared", "--method", "reflink", "--json"]);
    if shared.status.success() {
        let found: serde_json::Value = serde_json::from_slice(&shared.stdout).unwrap();
        assert_eq!((&found["calls"]["ioctl"], &found["requests"]), (&1.into(), &1.into()));
        assert_eq!(place.digest("shared"), place.digest("data"));
        fs::remove_file(place.path().join("shared")).unwrap();
    } else {
        assert_refused(&shared, &["--method", "reflink", "btrfs", "--method auto"]);
    }
    assert_refused(
        &place.run(&["file", "copy", "data", "new", "--method", "reflink", "--block", "4k"]),
        &["--block", "reflink"],
    );
    let Some(shm) = kelvin_testing::memory_dir("copying from one file system to another") else { return };
    let there = tempfile::tempdir_in(shm).unwrap();
    let copy = there.path().join("copy");
    let to = |method| ["file", "copy", "data", copy.to_str().unwrap(), "--method", method];
    assert_refused(&place.run(&to("reflink")), &["--method", "two", "--method auto"]);
    assert_refused(
        &place.run(&to("copy_file_range")),
        &["--method", "copy_file_range does not go from", "--method auto"],
    );
    assert!(names(there.path()).is_empty());
    let found = place.json(&to("auto"));
    assert_eq!((&found["method"], &found["requested_method"]), (&"rw".into(), &"auto".into()));
    assert_eq!(found["impossible_methods"].as_array().unwrap().len(), 2, "{found}");
    assert!(fs::read(&copy).unwrap() == fs::read(place.path().join("data")).unwrap());
    assert_eq!(place.names(), ["data"]);
}

/// Where a file system shares blocks, a copy takes no room until one of the two is changed, and then only one of them is.
#[test]
fn reflinked_copy_diverges_on_write() {
    const BYTES: usize = 24 << 20;
    let base = TestDir::new();
    for kind in [FileSystemKind::Xfs, FileSystemKind::Btrfs] {
        let mounted = match MountedFs::new(kind, base.path()) {
            Ok(mounted) => mounted,
            Err(missing) => {
                missing.report_skip(format!("a copy that shares blocks on {}", kind.name()));
                continue;
            }
        };
        let of = |name: &str| mounted.path().join(name).to_str().unwrap().to_owned();
        base.file("data", BYTES);
        fs::copy(base.path().join("data"), of("data")).unwrap();
        fs::File::open(of("data")).unwrap().sync_all().unwrap();
        let free = || kelvin_sys::fs::space(&mounted.path()).unwrap().free_bytes;
        let before = free();
        for method in ["reflink", "auto"] {
            let asked = ["file", "copy", &of("data"), &of(method), "--method", method, "--sync", "fsync", "--verify"];
            let found = base.json(&asked);
            let kind = kind.name();
            assert_eq!((&found["method"], &found["bytes"]), (&"reflink".into(), &BYTES.into()), "{kind}: {found}");
            assert_eq!((&found["calls"]["ioctl"], &found["requests"]), (&1.into(), &1.into()), "{kind}: {found}");
            assert!(found["compared"].is_string(), "{kind}: {found}");
        }
        assert!(before.saturating_sub(free()) < BYTES as u64 / 4, "{}: {before} and {}", kind.name(), free());
        fs::OpenOptions::new().write(true).open(of("auto")).unwrap().write_all(b"another beginning").unwrap();
        assert_eq!(base.digest(&of("data")), base.digest("data"));
        assert_eq!(base.digest(&of("reflink")), base.digest("data"));
        assert_ne!(base.digest(&of("auto")), base.digest("data"));
    }
}

#[test]
fn copy_never_replaces_its_source() {
    let place = TestDir::new();
    let digest = place.file("data", 100_000);
    fs::write(place.path().join("mine"), "the user's").unwrap();
    fs::hard_link(place.path().join("data"), place.path().join("linked")).unwrap();
    std::os::unix::fs::symlink("data", place.path().join("link")).unwrap();
    fs::create_dir(place.path().join("directory")).unwrap();
    assert_refused(&place.run(&["file", "copy", "data", "mine"]), &["mine", "--overwrite"]);
    assert_eq!(fs::read_to_string(place.path().join("mine")).unwrap(), "the user's");
    for (target, words) in [
        ("data", &["are the same file"][..]),
        ("./data", &["are the same file"]),
        ("linked", &["data and linked are the same file"]),
        ("link", &["link is a symbolic link"]),
        ("directory", &["directory is a directory", "such as directory/data"]),
        ("/dev/null", &["a character device"]),
        ("none/new", &["there is no directory"]),
        ("mine/new", &["mine"]),
    ] {
        assert_refused(&place.run(&["file", "copy", "data", target, "--overwrite"]), words);
    }
    place.json(&["file", "copy", "data", "mine", "--overwrite"]);
    assert_eq!((place.digest("mine"), place.digest("data")), (digest.clone(), digest));
    assert_eq!(place.names(), ["data", "directory", "link", "linked", "mine"]);
}

#[test]
fn only_regular_files_are_copied() {
    let place = TestDir::new();
    assert!(Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
    for (source, kind) in [
        ("pipe", "a pipe"),
        (".", "a directory"),
        ("socket", "a socket"),
        ("/dev/zero", "a character device"),
        ("none", "No such file"),
    ] {
        assert_refused(&place.run(&["file", "copy", source, "new"]), &[source, kind]);
    }
    for (more, words) in [
        (&["--method", "dd"][..], &["--method", "copy_file_range"][..]),
        (&["--block", "0"], &["--block"]),
        (&["--sync", "direct"], &["--sync", "page cache"]),
        (&["--sync", "later"], &["--sync"]),
        (&["--cache", "direct"], &["--cache", "page cache"]),
        (&["--cache", "warm"], &["--cache", "as-found"]),
        (&["--threads", "2"], &["--threads"]),
    ] {
        place.file("data", 10_000);
        assert_refused(&place.run(&[&["file", "copy", "data", "new"], more].concat()), words);
    }
    assert_eq!(place.names(), ["data", "pipe", "socket"]);
}

#[test]
fn holes_are_kept_and_sizeless_files_copied() {
    let place = TestDir::new();
    let sparse = fs::File::create(place.path().join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 300 << 20).unwrap();
    for method in PORTABLE_METHODS {
        let found = place.json(&["file", "copy", "sparse", "copy", "--method", method, "--overwrite"]);
        let copy = place.path().join("copy").metadata().unwrap();
        assert_eq!((copy.len(), &found["holes"]), (1 << 30, &2.into()), "{method}: {found}");
        assert!(copy.blocks() < 1000, "{method}: {} blocks", copy.blocks());
        assert_eq!(found["bytes"].as_u64().unwrap() + found["hole_bytes"].as_u64().unwrap(), 1 << 30);
    }
    let said = place.run(&["file", "copy", "sparse", "copy", "--overwrite"]);
    assert!(stdout(&said).contains("2 holes of 1.00 GiB in all, kept"), "{}", stdout(&said));
    assert_eq!(place.digest("copy"), place.digest("sparse"));
    let version = fs::read("/proc/version").unwrap();
    let found = place.json(&["file", "copy", "/proc/version", "version"]);
    assert_eq!((&found["bytes"], &found["source_bytes"]), (&version.len().into(), &0.into()));
    assert!(fs::read(place.path().join("version")).unwrap() == version);
    // One of /sys states a page.
    let online = fs::read("/sys/devices/system/cpu/online").unwrap();
    place.json(&["file", "copy", "/sys/devices/system/cpu/online", "version", "--overwrite"]);
    assert_eq!(fs::read(place.path().join("version")).unwrap(), online);
    let refused = place.run(&["file", "copy", "/proc/version", "other", "--method", "sendfile"]);
    assert_refused(&refused, &["--method", "/proc/version", "states", "--method auto"]);
    assert_eq!(place.names(), ["copy", "sparse", "version"]);
}

#[test]
fn full_file_system_removes_partial_copy() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full file system under file copy");
    }
    let place = TestDir::new();
    fs::create_dir(place.path().join("small")).unwrap();
    // A source that states no size, so that nothing can be known before, and one that is too large.
    place.file("data", 8 << 20);
    let script = "mount -t tmpfs -o size=4M none small && echo old > small/old && \
                  for how in 'data small/new --method rw' 'data small/new --method sendfile' 'data small/old --overwrite' \
                  'data small/new'; do \"$0\" file copy $how; echo refused $?; cat small/*; done; \
                  head -c 4194304 /dev/zero > small/full 2>/dev/null; \"$0\" file copy /proc/version small/new; echo refused $?; \
                  ls small";
    let arguments = ["--mount", "sh", "-c", script, KELVIN];
    let output = wait_for_output(place.command("unshare", &arguments).spawn().unwrap(), &arguments);
    if stderr(&output).contains("unshare: ") || stderr(&output).contains("mount: ") {
        return MissingRequirement::privilege(stderr(&output)).report_skip("a full file system under file copy");
    }
    let said: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(said.len(), 5, "{said:#?}{}", stdout(&output));
    assert!(
        said[..4].iter().all(|line| line.starts_with("kelvin: small/") && line.contains("has room for")),
        "{said:#?}"
    );
    assert!(said[4].contains("small/new") && said[4].contains("No space left"), "{said:#?}");
    assert_eq!(stdout(&output), format!("{}refused 2\nfull\nold\n", "refused 2\nold\n".repeat(4)));
}

#[test]
fn every_method_reports_full_disk() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a disk that becomes full under file copy");
    }
    let place = TestDir::new();
    fs::create_dir(place.path().join("small")).unwrap();
    // Where a file also needs room for the list of its blocks, all that is free is a little too much.
    let prepare = "truncate -s 8M image && mkfs.ext4 -q -O ^has_journal,^extent,^64bit -m 0 image && mount -o loop image small && \
                   rm -r small/lost+found && echo old > small/old && \
                   head -c $(($(stat -f -c '%f * %S' small))) /dev/zero > data";
    let run = |script: &str| {
        let arguments = ["--mount", "sh", "-c", script, KELVIN];
        wait_for_output(place.command("unshare", &arguments).spawn().unwrap(), &arguments)
    };
    let check = run(prepare);
    if !check.status.success() {
        return MissingRequirement::from_message(stderr(&check))
            .report_skip("a disk that becomes full under file copy");
    }
    fs::remove_file(place.path().join("image")).unwrap();
    let copies = ["new --method rw", "new --method sendfile", "new", "old --overwrite --method rw --block 1M"];
    let each = copies.map(|how| format!("\"$0\" file copy data small/{how}; echo refused $?; cat small/*"));
    let output = run(&format!("{prepare} && {{ {}; }}", each.join("; ")));
    let said: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(said.len(), copies.len(), "{said:#?}{}", stdout(&output));
    for line in said {
        assert!(
            line.starts_with("kelvin: cannot ") && line.contains("small/") && line.contains("No space left"),
            "{line}"
        );
    }
    assert_eq!(stdout(&output), "refused 2\nold\n".repeat(copies.len()));
}

#[test]
fn interrupted_copy_keeps_old_file() {
    let place = TestDir::new();
    // Longer than can be copied in the time that is given: on the device block by block, and from a source that has no end.
    let large = fs::File::create(place.path().join("data")).unwrap();
    for block in 0..64 {
        std::os::unix::fs::FileExt::write_all_at(&large, &vec![1; 1 << 20], block << 20).unwrap();
    }
    for (name, method) in [("INT", "rw"), ("TERM", "sendfile"), ("HUP", "copy_file_range")] {
        for replaced in [false, true] {
            if replaced {
                fs::write(place.path().join("file"), "the user's").unwrap();
            }
            let mut arguments =
                vec!["file", "copy", "data", "file", "--method", method, "--sync", "dsync", "--block", "512"];
            arguments.extend(replaced.then_some("--overwrite"));
            let child = place.start(&arguments);
            let is_copying = || {
                let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap());
                let copies = files.filter(|entry| entry.file_name() != "data" && entry.file_name() != "file");
                copies.filter_map(|copy| copy.metadata().ok()).any(|found| found.len() > 0)
            };
            assert!(within(HANG_TIMEOUT, is_copying), "{method} does not begin");
            signal(&child, name);
            assert_refused(&wait_for_output(child, &arguments), &["interrupted by", name]);
            if replaced {
                assert_eq!(place.names(), ["data", "file"]);
                assert_eq!(fs::read_to_string(place.path().join("file")).unwrap(), "the user's");
                fs::remove_file(place.path().join("file")).unwrap();
            }
            assert_eq!(place.names(), ["data"]);
        }
    }
}

#[test]
fn killed_copy_keeps_old_file() {
    let place = TestDir::new();
    let digest = place.file("data", 16 << 20);
    fs::write(place.path().join("file"), "the user's").unwrap();
    let arguments =
        ["file", "copy", "data", "file", "--overwrite", "--sync", "dsync", "--block", "512", "--method", "rw"];
    let mut child = place.start(&arguments);
    assert!(within(HANG_TIMEOUT, || place.names().len() > 2), "it does not begin");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(place.path().join("file")).unwrap(), "the user's");
    place.json(&["file", "copy", "data", "file", "--overwrite"]);
    assert_eq!((place.digest("file"), place.names()), (digest, vec!["data".into(), "file".into()]));
}
