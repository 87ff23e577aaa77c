//! The whole program on files: what is read and written is right to the byte, every mistake and every failure is one line,
//! and nothing is left behind.

mod test_dir;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kelvin_testing::{MissingRequirement, is_root};
use serde_json::Value;
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, names, run_in_namespace, signal, stderr, stdout,
    wait_for_output, wait_until_at_work, xor_digest,
};

// ---- what is right

#[test]
fn every_engine_reads_every_byte() {
    let dir = TestDir::new();
    let digest = dir.file("data", 1_000_003);
    for engine in
        ["read", "pread", "readv", "fread", "bufreader", "mmap", "mmap-populate", "io_uring", "io_uring-fixed"]
    {
        for options in [&["--block", "4k"][..], &["--block", "777", "--random", "--seed", "1", "--threads", "3"]] {
            let arguments = [&["file", "read", "data", "--engine", engine, "--cache", "cached"], options].concat();
            let output = dir.run(&[&arguments[..], &["--json"]].concat());
            if stderr(&output).contains("io_uring is unavailable") {
                MissingRequirement::from_message(stderr(&output)).report_skip(format!("file read --engine {engine}"));
                continue;
            }
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["digest"], digest, "{arguments:?}");
            assert_eq!((&report["bytes"], &report["passes"]), (&1_000_003.into(), &1.into()), "{arguments:?}");
            assert_eq!(report["before"]["mincore"], report["before"]["pages"], "{arguments:?}");
            assert!(report["latency"]["p50"].as_f64().unwrap() > 0.0, "{arguments:?}");
            assert!(
                report["bytes_in_each_second"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).sum::<u64>() > 0
            );
        }
    }
}

#[test]
fn size_count_and_seconds_limit_a_read() {
    let dir = TestDir::new();
    dir.file("data", 100_000);
    let content = fs::read(dir.path().join("data")).unwrap();
    let part_report = dir.json(&["file", "read", "data", "--size", "50000"]);
    assert_eq!(
        (&part_report["bytes"], &part_report["digest"]),
        (&50_000.into(), &xor_digest(&content[..50_000]).into())
    );
    // From the beginning again: two passes and 100 bytes.
    let count_report = dir.json(&["file", "read", "data", "--count", "2001", "--block", "100"]);
    assert_eq!((&count_report["requests"], &count_report["passes"]), (&2001.into(), &2.into()));
    assert_eq!(count_report["digest"], xor_digest(&content[..100]), "two passes cancel out");
    let plain_report = dir.json(&["file", "read", "data", "--no-latency", "--no-digest"]);
    assert!(plain_report.get("latency").is_none() && plain_report.get("digest").is_none());
    let time_report = dir.json(&["file", "autosize", "data", "--seconds", "1", "--block", "64k"]);
    assert!(
        time_report["seconds"].as_f64().unwrap() >= 1.0 && time_report["passes"].as_u64().unwrap() > 0,
        "{time_report}"
    );
    assert_eq!(time_report["bytes"].as_u64().unwrap() / 100_000, time_report["passes"].as_u64().unwrap());
    let output = dir.run(&["file", "autosize", "data", "--seconds", "1"]);
    assert!(stdout(&output).starts_with("file size") && stdout(&output).contains("in memory"), "{}", stdout(&output));
}

#[test]
fn every_engine_and_policy_writes_correctly() {
    let dir = TestDir::new();
    let mut digests = Vec::new();
    for engine in ["write", "pwrite", "io_uring", "io_uring-fixed"] {
        for sync in ["none", "fsync", "dsync", "direct"] {
            let depth = if engine.starts_with("io_uring") { "8" } else { "1" };
            let options = ["--engine", engine, "--sync", sync, "--depth", depth, "--threads", "2", "--seed", "7"];
            let amount = ["file", "write", "new", "--size", "300001", "--block", "16k", "--overwrite", "--json"];
            let output = dir.run(&[&amount[..], &options].concat());
            if ["io_uring is unavailable", "past the page cache"].iter().any(|phrase| stderr(&output).contains(phrase))
            {
                MissingRequirement::from_message(stderr(&output))
                    .report_skip(format!("file write --engine {engine} --sync {sync}"));
                continue;
            }
            let report: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
            assert_eq!(fs::metadata(dir.path().join("new")).unwrap().len(), 300_001);
            assert_eq!(report["digest"], dir.digest("new"), "{options:?}");
            assert_eq!((&report["bytes"], &report["requests"]), (&300_001.into(), &19.into()), "{options:?}");
            assert_eq!(report.get("flush_seconds").is_some(), sync == "fsync", "{options:?}");
            // Where the kernel reports it: nothing is in memory only, but the page at which the file was cut to its size.
            let max_unwritten = match sync {
                "none" => 300_001,
                "direct" => kelvin_sys::mapping::page_bytes() as u64,
                _ => 0,
            };
            assert!(report["unwritten_bytes"].as_u64().unwrap_or(0) <= max_unwritten, "{report}");
            digests.push(report["digest"].clone());
        }
    }
    assert!(digests.len() >= 6 && digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    assert_eq!(dir.names(), ["new"]);
    // Random data is another for another seed, does not compress, and a byte is that of the pattern.
    dir.json(&["file", "write", "other", "--size", "300001", "--seed", "8"]);
    assert_ne!(dir.digest("other"), digests[0]);
    let byte_report = dir.json(&["file", "write", "byte", "--count", "3", "--block", "5", "--pattern", "0xa5"]);
    assert_eq!((&byte_report["bytes"], &byte_report["pattern"]), (&15.into(), &"0xa5".into()));
    assert_eq!(fs::read(dir.path().join("byte")).unwrap(), [0xa5; 15]);
}

#[test]
fn overwrite_needs_flag_and_keeps_permissions() {
    let dir = TestDir::new();
    let file = dir.path().join("mine");
    fs::write(&file, "the user's").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    assert_refused(&dir.run(&["file", "write", "mine", "--size", "1M"]), &["mine", "--overwrite"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "the user's");
    dir.json(&["file", "write", "mine", "--size", "1M", "--overwrite"]);
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o7777), (1 << 20, 0o604));
    assert_eq!(dir.names(), ["mine"]);
}

#[test]
fn writes_stay_in_target_directory() {
    let dir = TestDir::new();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    dir.file("a/other", 1000);
    dir.file("mine", 1000);
    let before = (dir.digest("a/other"), dir.digest("mine"));
    std::os::unix::fs::symlink("../../mine", dir.path().join("a/b/link")).unwrap();
    for name in ["a/b/new", "a/b/new"] {
        let arguments = ["file", "write", name, "--size", "20M", "--overwrite", "--sync", "dsync", "--block", "1M"];
        let child = dir.start(&arguments);
        // While it is at work it has a file in that directory and nowhere else.
        assert!(is_met_within(HANG_TIMEOUT, || names(&dir.path().join("a/b")).len() > 1), "nothing was made");
        assert_eq!(
            (names(&dir.path().join("a")), dir.names()),
            (vec!["b".into(), "other".into()], vec!["a".into(), "mine".into()])
        );
        assert_eq!(wait_for_output(child, &arguments).status.code(), Some(0));
        assert_eq!(names(&dir.path().join("a/b")), ["link", "new"]);
    }
    // A link could lead anywhere: it is neither followed nor replaced.
    for options in [&[][..], &["--overwrite"]] {
        let output = dir.run(&[&["file", "write", "a/b/link", "--size", "1M"], options].concat());
        assert_refused(&output, &["a/b/link", "symbolic link"]);
    }
    assert_eq!((dir.digest("a/other"), dir.digest("mine")), before);
    assert!(fs::symlink_metadata(dir.path().join("a/b/link")).unwrap().is_symlink());
}

// ---- what is refused

/// A wrong command line on the file `data` of 10,000 bytes, and what the one line about it must name.
const USAGE_ERRORS: &[(&[&str], &str)] = &[
    (&["file"], "kelvin"),
    (&["file", "burn"], "burn"),
    (&["file", "read"], "<FILE>"),
    (&["file", "read", "no-such-file"], "no-such-file"),
    (&["file", "read", ""], "<FILE>"),
    (&["file", "read", "data", "extra"], "extra"),
    (&["file", "read", "data", "--block", "0"], "--block"),
    (&["file", "read", "data", "--block=-1"], "--block"),
    (&["file", "read", "data", "--block", "4x"], "--block"),
    (&["file", "read", "data", "--block", "2G"], "--block"),
    (&["file", "read", "data", "--block"], "--block"),
    (&["file", "read", "data", "--count", "0"], "--count"),
    (&["file", "read", "data", "--count", "many"], "--count"),
    (&["file", "read", "data", "--count", "1", "--seconds", "1"], "--count"),
    (&["file", "read", "data", "--seconds", "0"], "--seconds"),
    (&["file", "read", "data", "--seconds", "soon"], "--seconds"),
    (&["file", "read", "data", "--size", "10001"], "--size"),
    (&["file", "read", "data", "--size", "none"], "--size"),
    (&["file", "read", "data", "--engine", "dd"], "--engine"),
    (&["file", "read", "data", "--engine", "mmap", "--cache", "direct"], "--engine"),
    (&["file", "read", "data", "--depth", "0"], "--depth"),
    (&["file", "read", "data", "--depth", "5000"], "--depth"),
    (&["file", "read", "data", "--depth", "2"], "--depth"),
    (&["file", "read", "data", "--engine", "io_uring", "--block", "1G", "--depth", "2"], "--depth"),
    (&["file", "read", "data", "--threads", "0"], "--threads"),
    (&["file", "read", "data", "--threads", "1025"], "--threads"),
    (&["file", "read", "data", "--threads", "4"], "--threads"),
    (&["file", "read", "data", "--cache", "warm"], "--cache"),
    (&["file", "read", "data", "--cache", "direct", "--block", "1000"], "--block"),
    (&["file", "read", "data", "--seed", "1"], "--random"),
    (&["file", "read", "data", "--random", "--seed", "dice"], "--seed"),
    (&["file", "read", "data", "--frobnicate"], "--frobnicate"),
    (&["file", "autosize"], "<FILE>"),
    (&["file", "autosize", "no-such-file"], "no-such-file"),
    (&["file", "autosize", "data", "--seconds", "0"], "--seconds"),
    (&["file", "autosize", "data", "--block", "0"], "--block"),
    (&["file", "autosize", "data", "--engine", "dd"], "--engine"),
    (&["file", "autosize", "data", "--depth", "2"], "--depth"),
    (&["file", "autosize", "data", "--threads", "4"], "--threads"),
    (&["file", "autosize", "data", "--cache", "warm"], "--cache"),
    (&["file", "write"], "<FILE>"),
    (&["file", "write", "new"], "--size"),
    (&["file", "write", "new", "--size", "0"], "--size"),
    (&["file", "write", "new", "--size", "9P"], "--size"),
    (&["file", "write", "new", "--count", "0"], "--count"),
    (&["file", "write", "new", "--count", "18446744073709551615"], "--count"),
    (&["file", "write", "new", "--count", "9223372036854775807", "--block", "2"], "--count"),
    (&["file", "write", "new", "--size", "1", "--count", "1"], "--count"),
    (&["file", "write", "new", "--size", "1M", "--block", "0"], "--block"),
    (&["file", "write", "new", "--size", "1M", "--sync", "direct", "--block", "1000"], "--block"),
    (&["file", "write", "new", "--size", "1M", "--pattern", "256"], "--pattern"),
    (&["file", "write", "new", "--size", "1M", "--pattern", "zero"], "--pattern"),
    (&["file", "write", "new", "--size", "1M", "--pattern", "0", "--seed", "1"], "--seed"),
    (&["file", "write", "new", "--size", "1M", "--seed", "dice"], "--seed"),
    (&["file", "write", "new", "--size", "1M", "--sync", "later"], "--sync"),
    (&["file", "write", "new", "--size", "1M", "--engine", "mmap"], "--engine"),
    (&["file", "write", "new", "--size", "1M", "--depth", "2"], "--depth"),
    (&["file", "write", "new", "--size", "1M", "--depth", "0"], "--depth"),
    (&["file", "write", "new", "--size", "1M", "--threads", "0"], "--threads"),
    (&["file", "write", "new", "--size", "10000", "--threads", "4"], "--threads"),
    (&["file", "write", "new", "--size", "1M", "--overwrite=yes"], "--overwrite"),
    (&["file", "write", "data", "--size", "1M"], "data"),
    (&["file", "write", "no-such-directory/new", "--size", "1M"], "no-such-directory/new"),
    (&["file", "write", "data/new", "--size", "1M"], "data/new"),
    (&["file", "write", "", "--size", "1M"], "<FILE>"),
    (&["digest", "no-such-file"], "no-such-file"),
    (&["digest", "data", "--threads", "0"], "--threads"),
    (&["digest", "data", "--quiet"], "--check"),
    (&["digest", "--frobnicate"], "--frobnicate"),
    (&["digest", "--check", "data"], "data"),
];

#[test]
fn file_usage_errors_are_one_line() {
    let dir = TestDir::new();
    let digest = dir.file("data", 10_000);
    let mut problems = Vec::new();
    for (arguments, expected) in USAGE_ERRORS {
        let output = dir.run(arguments);
        let message = stderr(&output);
        // A file of several that cannot be read is a failure, and the work is done all the same.
        let status = if *arguments == ["digest", "no-such-file"] { 1 } else { 2 };
        let is_correct = output.status.code() == Some(status)
            && message.lines().count() == 1
            && message.starts_with("kelvin: ")
            && message.contains(expected)
            && output.stdout.is_empty();
        if !is_correct {
            problems.push(format!("{arguments:?}: {}: {message:?} {:?}", output.status, stdout(&output)));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!((dir.names(), dir.digest("data")), (vec!["data".into()], digest));
}

#[test]
fn only_regular_files_are_read_or_written() {
    let dir = TestDir::new();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::create_dir(dir.path().join("directory")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for (name, kind) in [
        ("pipe", "a pipe"),
        ("directory", "a directory"),
        (".", "a directory"),
        ("socket", "a socket"),
        ("/dev/null", "a character device"),
    ] {
        for arguments in [
            &["file", "read", name][..],
            &["file", "autosize", name, "--seconds", "1"],
            &["file", "write", name, "--size", "1M"],
            &["file", "write", name, "--size", "1M", "--overwrite"],
        ] {
            assert_refused(&dir.run(arguments), &[name, kind]);
        }
        let digest = dir.run(&["digest", name]);
        assert_eq!(digest.status.code(), Some(1));
        assert!(stderr(&digest).contains(kind) && digest.stdout.is_empty(), "{}", stderr(&digest));
    }
    // What a link leads to is read, if it is there.
    let digest = dir.file("data", 100);
    std::os::unix::fs::symlink("data", dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
    assert_eq!(dir.digest("link"), digest);
    assert_refused(&dir.run(&["file", "read", "dangling"]), &["dangling", "No such file"]);
    fs::write(dir.path().join("empty"), "").unwrap();
    assert_refused(&dir.run(&["file", "read", "empty"]), &["empty", "nothing to read"]);
}

#[test]
fn truncation_during_read_is_reported() {
    let dir = TestDir::new();
    for engine in ["pread", "fread", "mmap", "io_uring"] {
        dir.file("data", 4_000_000);
        let arguments = ["file", "read", "data", "--seconds", "20", "--engine", engine];
        let child = dir.start(&arguments);
        wait_until_at_work(&child, &dir.path().join("data"));
        fs::File::options().write(true).open(dir.path().join("data")).unwrap().set_len(1_000_000).unwrap();
        let output = wait_for_output(child, &arguments);
        if stderr(&output).contains("io_uring is unavailable") {
            MissingRequirement::from_message(stderr(&output))
                .report_skip(format!("a file that becomes shorter, --engine {engine}"));
            continue;
        }
        assert_refused(&output, &["data", "became shorter"]);
    }
}

/// Runs kelvin as one who has no rights of root's: as nobody, or as it is where the tests do not run as root.
fn run_unprivileged(dir: &TestDir, arguments: &[&str]) -> Output {
    if !is_root() {
        return dir.run(arguments);
    }
    // The build directory may lie where only root may look: a copy is run. Another program makes it: were it open here to be
    // written, a child that another test starts at that moment would have it open too, and it could not be run.
    let program = dir.path().join("open/kelvin");
    assert!(Command::new("cp").arg(KELVIN).arg(&program).status().unwrap().success());
    let mut command = dir.command(program.to_str().unwrap(), arguments);
    command.uid(65534).gid(65534);
    let output = wait_for_output(command.spawn().unwrap(), arguments);
    fs::remove_file(program).unwrap();
    output
}

#[test]
fn missing_permission_is_reported() {
    // Open to all, and in the usual place for temporary files, for the build directory may be closed to others.
    let dir = TestDir { directory: tempfile::tempdir().unwrap(), ..TestDir::new() };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let digest = dir.file("secret", 1000);
    dir.file("fixed", 1000);
    let mode = |name: &str, mode| fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    mode("secret", 0);
    mode("fixed", 0o444);
    fs::create_dir(dir.path().join("open")).unwrap();
    mode("open", 0o777);
    fs::copy(dir.path().join("fixed"), dir.path().join("open/fixed")).unwrap();
    mode("open/fixed", 0o444);
    let denied = "Permission denied";
    assert_refused(&run_unprivileged(&dir, &["file", "read", "secret"]), &["secret", denied]);
    let output = run_unprivileged(&dir, &["digest", "secret", "fixed"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("secret") && stdout(&output).ends_with("  fixed\n"), "{}", stderr(&output));
    // A file that may not be written is not replaced, though its directory may be written.
    let replace = ["file", "write", "open/fixed", "--size", "1M", "--overwrite"];
    assert_refused(&run_unprivileged(&dir, &replace), &["open/fixed", denied]);
    if is_root() {
        let arguments = ["file", "write", "new", "--size", "1M"];
        assert_refused(&run_unprivileged(&dir, &arguments), &["new", denied]);
    }
    assert_eq!(names(&dir.path().join("open")), ["fixed"]);
    assert_eq!(dir.names(), ["fixed", "open", "secret"]);
    mode("secret", 0o600);
    assert_eq!(dir.digest("secret"), digest);
}

// ---- what fails

/// Each line that kelvin printed in a script, which printed `refused` and what was left behind after it.
fn assert_all_refused(output: &Output, count: usize, words: &[&str], leftovers: &str) {
    let lines: Vec<&str> = stderr(output).lines().collect();
    assert_eq!(lines.len(), count, "{lines:#?}{}", stdout(output));
    for line in lines {
        assert!(line.starts_with("kelvin: ") && words.iter().all(|word| line.contains(word)), "{line}");
    }
    assert_eq!(stdout(output), format!("refused 2\n{leftovers}").repeat(count));
}

#[test]
fn full_file_system_removes_partial_write() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full file system under file write");
    }
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("small")).unwrap();
    // Where a file also needs room for the list of its blocks, all that is free is a little too much.
    let prepare = "truncate -s 8M image && mkfs.ext4 -q -O ^has_journal,^extent,^64bit -m 0 image && mount -o loop image small && \
                   rm -r small/lost+found && echo old > small/old";
    let check = run_in_namespace(&dir, prepare);
    if !check.status.success() {
        return MissingRequirement::from_message(stderr(&check)).report_skip("a full file system");
    }
    fs::remove_file(dir.path().join("image")).unwrap();
    let script = format!(
        "{prepare} && for how in 'new --engine pwrite' 'new --engine io_uring --depth 4' 'new --threads 2' 'old --overwrite'; do \
         \"$0\" file write small/$how --size $(($(stat -f -c '%f * %S' small))) --sync none; echo refused $?; cat small/*; done"
    );
    assert_all_refused(&run_in_namespace(&dir, &script), 4, &["small/", "write", "No space left"], "old\n");
}

#[test]
fn failing_device_removes_partial_write() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a loop device (root may)").report_skip("a failing device");
    }
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("disk")).unwrap();
    // A device that has become shorter than its file system: what lies beyond its end cannot be read or written. Without a
    // journal, so that it is the file that fails.
    let prepare = "truncate -s 64M image && mkfs.ext4 -q -O ^has_journal image && mount -o loop image disk && \
                   \"$0\" file write disk/old --size 32M --block 1M > old && \
                   truncate -s 4M image && losetup -c \"$(losetup -n -O NAME -j image)\"";
    let check = run_in_namespace(&dir, prepare);
    if !check.status.success() {
        return MissingRequirement::privilege(stderr(&check)).report_skip("a failing device");
    }
    fs::remove_file(dir.path().join("image")).unwrap();
    let write_script = format!(
        "{prepare} && for how in 'new --sync fsync' 'new --sync dsync' 'new --sync direct' 'old --sync fsync --overwrite' \
         'new --sync direct --engine io_uring --depth 8'; do \
         \"$0\" file write disk/$how --size 20M --block 64k; echo refused $?; ls disk; done"
    );
    let output = run_in_namespace(&dir, &write_script);
    assert_all_refused(&output, 5, &["disk/", "Input/output error"], "lost+found\nold\n");
    fs::remove_file(dir.path().join("image")).unwrap();
    let read_script = format!(
        "{prepare} && for how in '--cache direct' '--cache uncached' '--cache direct --engine io_uring --depth 8' \
         '--cache uncached --engine fread' '--cache uncached --engine mmap' '--cache uncached --engine mmap-populate'; do \
         \"$0\" file read disk/old --block 64k $how; echo refused $?; done"
    );
    assert_all_refused(&run_in_namespace(&dir, &read_script), 6, &["disk/old", "read", "Input/output error"], "");
}

#[test]
fn digest_works_without_io_uring() {
    let dir = TestDir::new();
    let digest = dir.file("data", 10_000);
    let run = |arguments: &[&str]| {
        // What a thread may not do, the programs that it starts may not do either.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                kelvin_sys::seccomp::deny(kelvin_sys::seccomp::IO_URING_SETUP).unwrap();
                dir.run(arguments)
            });
            thread.join().unwrap()
        })
    };
    for arguments in [
        &["file", "read", "data", "--engine", "io_uring", "--depth", "4"][..],
        &["file", "read", "data", "--engine", "io_uring-fixed"],
        &["file", "write", "new", "--size", "1M", "--engine", "io_uring", "--depth", "4", "--threads", "2"],
    ] {
        assert_refused(&run(arguments), &["io_uring is unavailable here", "seccomp"]);
    }
    assert_eq!(stdout(&run(&["digest", "data"])), format!("{digest}  data\n"));
    // Large and not in memory, so that reading past the page cache by io_uring would be tried first.
    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(300 << 20).unwrap();
    assert_eq!(stdout(&run(&["digest", "large"])), "00000000  large\n");
    assert_eq!(dir.names(), ["data", "large"]);
}

#[test]
fn interrupted_write_keeps_old_file() {
    let dir = TestDir::new();
    for (name, engine, sync) in [
        ("INT", "pwrite", "dsync"),
        ("TERM", "io_uring", "dsync"),
        ("HUP", "write", "none"),
        ("INT", "pwrite", "fsync"),
    ] {
        for has_old_file in [false, true] {
            if has_old_file {
                fs::write(dir.path().join("file"), "the user's").unwrap();
            }
            let size = if sync == "dsync" { "1G" } else { "8G" };
            let mut arguments = vec!["file", "write", "file", "--size", size, "--sync", sync, "--engine", engine];
            arguments.extend(has_old_file.then_some("--overwrite"));
            let child = dir.start(&arguments);
            let is_growing = || largest_file(dir.path()) > 20_000;
            if !is_met_within(HANG_TIMEOUT, is_growing) {
                let output = wait_for_output(child, &arguments);
                assert!(stderr(&output).contains("io_uring is unavailable"), "{}", stderr(&output));
                MissingRequirement::from_message(stderr(&output)).report_skip("a signal while writing by io_uring");
                continue;
            }
            signal(&child, name);
            let output = wait_for_output(child, &arguments);
            assert_refused(&output, &["interrupted by", name]);
            if has_old_file {
                assert_eq!(dir.names(), ["file"]);
                assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "the user's");
                fs::remove_file(dir.path().join("file")).unwrap();
            } else {
                assert!(dir.names().is_empty(), "{:?}", dir.names());
            }
        }
    }
}

#[test]
fn signal_ends_reader_while_caching_file() {
    let dir = TestDir::new();
    // Longer than can be read in the time that is given.
    fs::File::create(dir.path().join("data")).unwrap().set_len(64 << 30).unwrap();
    for arguments in [
        &["file", "read", "data", "--cache", "cached"][..],
        &["file", "read", "data", "--engine", "mmap"],
        &["file", "autosize", "data", "--seconds", "60"],
        &["digest", "data"],
    ] {
        let child = dir.start(arguments);
        wait_until_at_work(&child, &dir.path().join("data"));
        signal(&child, "INT");
        assert_refused(&wait_for_output(child, arguments), &["interrupted by SIGINT"]);
    }
}

#[test]
fn killed_writer_keeps_old_file() {
    let dir = TestDir::new();
    fs::write(dir.path().join("file"), "the user's").unwrap();
    let mut child = dir.start(&["file", "write", "file", "--size", "1G", "--sync", "dsync", "--overwrite"]);
    assert!(is_met_within(HANG_TIMEOUT, || largest_file(dir.path()) > 20_000));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "the user's");
}

/// Bytes of the largest file in a directory.
fn largest_file(directory: &Path) -> u64 {
    let files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    // One may be gone by now.
    files.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).max().unwrap_or(0)
}
