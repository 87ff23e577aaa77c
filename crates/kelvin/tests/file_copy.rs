//! `kelvin file copy` as a whole: every byte in its place by every method, every mistake one line, and nothing left behind.

mod test_dir;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};
use kelvin_testing::{MissingRequirement, is_root};
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, names, signal, stderr, stdout, wait_for_output,
};

/// Methods that any file system has.
const PORTABLE_METHODS: [&str; 4] = ["auto", "rw", "copy_file_range", "sendfile"];

#[test]
fn every_method_copies_every_byte() {
    let dir = TestDir::new();
    let digest = dir.file("data", 1_000_003);
    for method in PORTABLE_METHODS {
        for options in [&["--block", "64k"][..], &["--block", "777", "--sync", "fsync", "--cache", "cached"]] {
            let arguments = ["file", "copy", "data", "new", "--method", method, "--overwrite", "--verify"];
            let report = dir.json(&[&arguments[..], options].concat());
            assert_eq!(dir.digest("new"), digest, "{method} {options:?}");
            assert_eq!((&report["bytes"], &report["source_bytes"]), (&1_000_003.into(), &1_000_003.into()), "{report}");
            let calls: u64 = report["calls"].as_object().unwrap().values().map(|calls| calls.as_u64().unwrap()).sum();
            assert!(calls >= report["requests"].as_u64().unwrap(), "{report}");
            assert_eq!(report.get("flush_seconds").is_some(), options.contains(&"fsync"), "{report}");
            assert!(report["compared"].is_string() && report["before"]["pages"].as_u64() == Some(245), "{report}");
        }
    }
    let rw = dir.json(&["file", "copy", "data", "rw", "--method", "rw", "--block", "1M", "--no-latency"]);
    assert_eq!((&rw["calls"]["pread"], &rw["calls"]["pwrite"]), (&2.into(), &1.into()));
    assert!(rw.get("latency").is_none() && rw.get("compared").is_none());
    assert_eq!(dir.names(), ["data", "new", "rw"]);
}

#[test]
fn copy_reports_method_limit_and_expected_rate() {
    let dir = TestDir::new();
    dir.file("data", 4 << 20);
    let output = dir.run(&["file", "copy", "data", "new", "--method", "rw", "--cache", "cached", "--verify"]);
    let text = stdout(&output);
    for label in [
        "source", "target", "method", "calls", "cache", "device", "sync", "verified", "copied", "time", "rate", "limit",
    ] {
        assert!(text.lines().any(|line| line.starts_with(label)), "no {label} in {text}");
    }
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "rw, blocks of 128 KiB",
        "65 system calls: 33 pread, 32 pwrite",
        "source all in memory before",
        "none: in memory only",
        "to read from memory and",
        "4 MiB in 32 requests",
    ] {
        assert!(flat.contains(words), "no {words:?} in {text}");
    }
    // An unknown figure has a reason.
    dir.file("small", 1000);
    let report = dir.json(&["file", "copy", "small", "other"]);
    assert!(
        report.get("expected").is_none() && report["no_expectation_reason"].as_str().unwrap().contains("less than")
    );
}

#[test]
fn impossible_method_names_remedy() {
    let dir = TestDir::new();
    dir.file("data", 100_000);
    let output = dir.run(&["file", "copy", "data", "shared", "--method", "reflink", "--json"]);
    if output.status.success() {
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["calls"]["ioctl"], &report["requests"]), (&1.into(), &1.into()));
        assert_eq!(dir.digest("shared"), dir.digest("data"));
        fs::remove_file(dir.path().join("shared")).unwrap();
    } else {
        assert_refused(&output, &["--method", "reflink", "btrfs", "--method auto"]);
    }
    assert_refused(
        &dir.run(&["file", "copy", "data", "new", "--method", "reflink", "--block", "4k"]),
        &["--block", "reflink"],
    );
    let Some(shm) = kelvin_testing::memory_dir("copying from one file system to another") else { return };
    let memory_directory = tempfile::tempdir_in(shm).unwrap();
    let copy = memory_directory.path().join("copy");
    let copy_arguments = |method| ["file", "copy", "data", copy.to_str().unwrap(), "--method", method];
    assert_refused(&dir.run(&copy_arguments("reflink")), &["--method", "two", "--method auto"]);
    assert_refused(
        &dir.run(&copy_arguments("copy_file_range")),
        &["--method", "copy_file_range does not go from", "--method auto"],
    );
    assert!(names(memory_directory.path()).is_empty());
    let report = dir.json(&copy_arguments("auto"));
    assert_eq!((&report["method"], &report["requested_method"]), (&"rw".into(), &"auto".into()));
    assert_eq!(report["impossible_methods"].as_array().unwrap().len(), 2, "{report}");
    assert!(fs::read(&copy).unwrap() == fs::read(dir.path().join("data")).unwrap());
    assert_eq!(dir.names(), ["data"]);
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
        let mounted_path = |name: &str| mounted.path().join(name).to_str().unwrap().to_owned();
        base.file("data", BYTES);
        fs::copy(base.path().join("data"), mounted_path("data")).unwrap();
        fs::File::open(mounted_path("data")).unwrap().sync_all().unwrap();
        let free = || kelvin_sys::fs::space(&mounted.path()).unwrap().free_bytes;
        let before = free();
        for method in ["reflink", "auto"] {
            let arguments = [
                "file",
                "copy",
                &mounted_path("data"),
                &mounted_path(method),
                "--method",
                method,
                "--sync",
                "fsync",
                "--verify",
            ];
            let report = base.json(&arguments);
            let kind = kind.name();
            assert_eq!((&report["method"], &report["bytes"]), (&"reflink".into(), &BYTES.into()), "{kind}: {report}");
            assert_eq!((&report["calls"]["ioctl"], &report["requests"]), (&1.into(), &1.into()), "{kind}: {report}");
            assert!(report["compared"].is_string(), "{kind}: {report}");
        }
        assert!(before.saturating_sub(free()) < BYTES as u64 / 4, "{}: {before} and {}", kind.name(), free());
        fs::OpenOptions::new().write(true).open(mounted_path("auto")).unwrap().write_all(b"another beginning").unwrap();
        assert_eq!(base.digest(&mounted_path("data")), base.digest("data"));
        assert_eq!(base.digest(&mounted_path("reflink")), base.digest("data"));
        assert_ne!(base.digest(&mounted_path("auto")), base.digest("data"));
    }
}

#[test]
fn copy_never_replaces_its_source() {
    let dir = TestDir::new();
    let digest = dir.file("data", 100_000);
    fs::write(dir.path().join("mine"), "the user's").unwrap();
    fs::hard_link(dir.path().join("data"), dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink("data", dir.path().join("link")).unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    assert_refused(&dir.run(&["file", "copy", "data", "mine"]), &["mine", "--overwrite"]);
    assert_eq!(fs::read_to_string(dir.path().join("mine")).unwrap(), "the user's");
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
        assert_refused(&dir.run(&["file", "copy", "data", target, "--overwrite"]), words);
    }
    dir.json(&["file", "copy", "data", "mine", "--overwrite"]);
    assert_eq!((dir.digest("mine"), dir.digest("data")), (digest.clone(), digest));
    assert_eq!(dir.names(), ["data", "directory", "link", "linked", "mine"]);
}

#[test]
fn only_regular_files_are_copied() {
    let dir = TestDir::new();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for (source, kind) in [
        ("pipe", "a pipe"),
        (".", "a directory"),
        ("socket", "a socket"),
        ("/dev/zero", "a character device"),
        ("none", "No such file"),
    ] {
        assert_refused(&dir.run(&["file", "copy", source, "new"]), &[source, kind]);
    }
    for (options, words) in [
        (&["--method", "dd"][..], &["--method", "copy_file_range"][..]),
        (&["--block", "0"], &["--block"]),
        (&["--sync", "direct"], &["--sync", "page cache"]),
        (&["--sync", "later"], &["--sync"]),
        (&["--cache", "direct"], &["--cache", "page cache"]),
        (&["--cache", "warm"], &["--cache", "as-found"]),
        (&["--threads", "2"], &["--threads"]),
    ] {
        dir.file("data", 10_000);
        assert_refused(&dir.run(&[&["file", "copy", "data", "new"], options].concat()), words);
    }
    assert_eq!(dir.names(), ["data", "pipe", "socket"]);
}

#[test]
fn holes_are_kept_and_sizeless_files_copied() {
    let dir = TestDir::new();
    let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 300 << 20).unwrap();
    for method in PORTABLE_METHODS {
        let report = dir.json(&["file", "copy", "sparse", "copy", "--method", method, "--overwrite"]);
        let copy = dir.path().join("copy").metadata().unwrap();
        assert_eq!((copy.len(), &report["holes"]), (1 << 30, &2.into()), "{method}: {report}");
        assert!(copy.blocks() < 1000, "{method}: {} blocks", copy.blocks());
        assert_eq!(report["bytes"].as_u64().unwrap() + report["hole_bytes"].as_u64().unwrap(), 1 << 30);
    }
    let output = dir.run(&["file", "copy", "sparse", "copy", "--overwrite"]);
    assert!(stdout(&output).contains("2 holes of 1.00 GiB in all, kept"), "{}", stdout(&output));
    assert_eq!(dir.digest("copy"), dir.digest("sparse"));
    let version = fs::read("/proc/version").unwrap();
    let report = dir.json(&["file", "copy", "/proc/version", "version"]);
    assert_eq!((&report["bytes"], &report["source_bytes"]), (&version.len().into(), &0.into()));
    assert!(fs::read(dir.path().join("version")).unwrap() == version);
    // One of /sys states a page.
    let online = fs::read("/sys/devices/system/cpu/online").unwrap();
    dir.json(&["file", "copy", "/sys/devices/system/cpu/online", "version", "--overwrite"]);
    assert_eq!(fs::read(dir.path().join("version")).unwrap(), online);
    let refusal = dir.run(&["file", "copy", "/proc/version", "other", "--method", "sendfile"]);
    assert_refused(&refusal, &["--method", "/proc/version", "states", "--method auto"]);
    assert_eq!(dir.names(), ["copy", "sparse", "version"]);
}

#[test]
fn full_file_system_removes_partial_copy() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full file system under file copy");
    }
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("small")).unwrap();
    // A source that states no size, so that nothing can be known before, and one that is too large.
    dir.file("data", 8 << 20);
    let script = "mount -t tmpfs -o size=4M none small && echo old > small/old && \
                  for how in 'data small/new --method rw' 'data small/new --method sendfile' 'data small/old --overwrite' \
                  'data small/new'; do \"$0\" file copy $how; echo refused $?; cat small/*; done; \
                  head -c 4194304 /dev/zero > small/full 2>/dev/null; \"$0\" file copy /proc/version small/new; echo refused $?; \
                  ls small";
    let arguments = ["--mount", "sh", "-c", script, KELVIN];
    let output = wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments);
    if stderr(&output).contains("unshare: ") || stderr(&output).contains("mount: ") {
        return MissingRequirement::privilege(stderr(&output)).report_skip("a full file system under file copy");
    }
    let lines: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), 5, "{lines:#?}{}", stdout(&output));
    assert!(
        lines[..4].iter().all(|line| line.starts_with("kelvin: small/") && line.contains("has room for")),
        "{lines:#?}"
    );
    assert!(lines[4].contains("small/new") && lines[4].contains("No space left"), "{lines:#?}");
    assert_eq!(stdout(&output), format!("{}refused 2\nfull\nold\n", "refused 2\nold\n".repeat(4)));
}

#[test]
fn every_method_reports_full_disk() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a disk that becomes full under file copy");
    }
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("small")).unwrap();
    // Where a file also needs room for the list of its blocks, all that is free is a little too much.
    let prepare = "truncate -s 8M image && mkfs.ext4 -q -O ^has_journal,^extent,^64bit -m 0 image && mount -o loop image small && \
                   rm -r small/lost+found && echo old > small/old && \
                   head -c $(($(stat -f -c '%f * %S' small))) /dev/zero > data";
    let run = |script: &str| {
        let arguments = ["--mount", "sh", "-c", script, KELVIN];
        wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments)
    };
    let check = run(prepare);
    if !check.status.success() {
        return MissingRequirement::from_message(stderr(&check))
            .report_skip("a disk that becomes full under file copy");
    }
    fs::remove_file(dir.path().join("image")).unwrap();
    let copies = ["new --method rw", "new --method sendfile", "new", "old --overwrite --method rw --block 1M"];
    let commands = copies.map(|how| format!("\"$0\" file copy data small/{how}; echo refused $?; cat small/*"));
    let output = run(&format!("{prepare} && {{ {}; }}", commands.join("; ")));
    let lines: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), copies.len(), "{lines:#?}{}", stdout(&output));
    for line in lines {
        assert!(
            line.starts_with("kelvin: cannot ") && line.contains("small/") && line.contains("No space left"),
            "{line}"
        );
    }
    assert_eq!(stdout(&output), "refused 2\nold\n".repeat(copies.len()));
}

#[test]
fn interrupted_copy_keeps_old_file() {
    let dir = TestDir::new();
    // Longer than can be copied in the time that is given: on the device block by block, and from a source that has no end.
    let large = fs::File::create(dir.path().join("data")).unwrap();
    for block in 0..64 {
        std::os::unix::fs::FileExt::write_all_at(&large, &vec![1; 1 << 20], block << 20).unwrap();
    }
    for (name, method) in [("INT", "rw"), ("TERM", "sendfile"), ("HUP", "copy_file_range")] {
        for has_old_file in [false, true] {
            if has_old_file {
                fs::write(dir.path().join("file"), "the user's").unwrap();
            }
            let mut arguments =
                vec!["file", "copy", "data", "file", "--method", method, "--sync", "dsync", "--block", "512"];
            arguments.extend(has_old_file.then_some("--overwrite"));
            let child = dir.start(&arguments);
            let is_copying = || {
                let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
                let copies = files.filter(|entry| entry.file_name() != "data" && entry.file_name() != "file");
                copies.filter_map(|copy| copy.metadata().ok()).any(|metadata| metadata.len() > 0)
            };
            assert!(is_met_within(HANG_TIMEOUT, is_copying), "{method} does not begin");
            signal(&child, name);
            assert_refused(&wait_for_output(child, &arguments), &["interrupted by", name]);
            if has_old_file {
                assert_eq!(dir.names(), ["data", "file"]);
                assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "the user's");
                fs::remove_file(dir.path().join("file")).unwrap();
            }
            assert_eq!(dir.names(), ["data"]);
        }
    }
}

#[test]
fn killed_copy_keeps_old_file() {
    let dir = TestDir::new();
    let digest = dir.file("data", 16 << 20);
    fs::write(dir.path().join("file"), "the user's").unwrap();
    let arguments =
        ["file", "copy", "data", "file", "--overwrite", "--sync", "dsync", "--block", "512", "--method", "rw"];
    let mut child = dir.start(&arguments);
    assert!(is_met_within(HANG_TIMEOUT, || dir.names().len() > 2), "it does not begin");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "the user's");
    dir.json(&["file", "copy", "data", "file", "--overwrite"]);
    assert_eq!((dir.digest("file"), dir.names()), (digest, vec!["data".into(), "file".into()]));
}
