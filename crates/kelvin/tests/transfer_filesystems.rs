//! Files that come onto, or from, file systems that are unlike a local disk: errors that come when a file is closed, sizes that are not
//! stated, coarse times, long names, no way to rename or link as others do.

mod test_dir;

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::sync::Arc;

use kelvin_testing::fuse_server::{FuseBehavior, RequestCounts};
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};
use test_dir::{KELVIN, TestDir, assert_refused, names, stderr, stdout, wait_for_output};

/// A file system that this test serves; `None`, with the reason printed, if there can be none here.
fn serve_file_system(subject: &str, behaviour: FuseBehavior) -> Option<(MountedFs, Arc<RequestCounts>)> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    MountedFs::serve(behaviour, base).inspect_err(|missing| missing.report_skip(subject)).ok()
}

/// A receiver of one sender, that is killed when the test ends.
struct TestReceiver {
    child: Option<Child>,
    address: String,
}

impl TestReceiver {
    fn start(dir: &TestDir, arguments: &[&str]) -> Self {
        let arguments = [&["receive", "--once", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = dir.command(KELVIN, &arguments).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child: Some(child), address: address.trim().to_owned() }
    }

    /// Its exit status and log once its sender was served.
    fn end(mut self) -> (Option<i32>, String) {
        let output = wait_for_output(self.child.take().unwrap(), &["receive"]);
        (output.status.code(), stderr(&output).to_owned())
    }
}

impl Drop for TestReceiver {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends by these arguments to a receiver with those: what the sender printed, and the receiver's status and log.
fn transfer(dir: &TestDir, (receive, send): (&[&str], &[&str])) -> (Output, (Option<i32>, String)) {
    let receiver = TestReceiver::start(dir, receive);
    let arguments = [&["send"], send, &[receiver.address.as_str()]].concat();
    let output = dir.run(&arguments);
    (output, receiver.end())
}

fn read(path: PathBuf) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn failed_store_replaces_nothing() {
    let behaviour = FuseBehavior { max_file_bytes: 1000, ..FuseBehavior::default() };
    let Some((mounted, _)) = serve_file_system("receiving where a close fails", behaviour) else { return };
    let dir = TestDir::new();
    for (name, bytes) in [("small", 100), ("middle", 70_000), ("large", 9 << 20)] {
        dir.file(name, bytes);
    }
    let target = mounted.path();
    let target_text = target.to_str().unwrap();
    for options in
        [&["--streams", "1"][..], &["--streams", "3"], &["--connection", "per-file"], &["--plain"], &["--sync"]]
    {
        for name in names(&target) {
            fs::remove_file(target.join(name)).unwrap();
        }
        fs::write(target.join("large"), "good").unwrap();
        fs::write(target.join("middle"), "good").unwrap();
        let send = [options, &["small", "middle", "large"]].concat();
        let (output, (status, log)) = transfer(&dir, (&[target_text, "--overwrite"], &send));
        assert_eq!((output.status.code(), status), (Some(1), Some(1)), "{options:?}: {}{log}", stderr(&output));
        for name in ["middle", "large"] {
            assert!(
                stderr(&output).contains(name) && stderr(&output).contains("quota exceeded"),
                "{}",
                stderr(&output)
            );
            assert_eq!(read(target.join(name)), b"good", "{options:?}");
        }
        assert!(log.contains("quota exceeded"), "{log}");
        assert!(stdout(&output).starts_with("moved 1 file, 100 B"), "{}", stdout(&output));
        assert_eq!(names(&target), ["large", "middle", "small"], "{options:?}");
    }
    // New names are not given either.
    fs::remove_file(target.join("large")).unwrap();
    let (output, _) = transfer(&dir, (&[target_text], &["large"]));
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert_eq!(names(&target), ["middle", "small"]);
}

#[test]
fn failed_small_files_have_no_names() {
    let behaviour = FuseBehavior { max_file_bytes: 1000, ..FuseBehavior::default() };
    let Some((mounted, _)) = serve_file_system("receiving small files where a close fails", behaviour) else { return };
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("tree")).unwrap();
    dir.file("tree/fits", 900);
    dir.file("tree/more", 2000);
    let target = mounted.path();
    let (output, _) = transfer(&dir, (&[target.to_str().unwrap()], &["-r", "tree"]));
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("more") && stderr(&output).contains("quota exceeded"), "{}", stderr(&output));
    assert_eq!(names(&target.join("tree")), ["fits"]);
}

#[test]
fn failed_output_is_an_error() {
    let behaviour = FuseBehavior { max_file_bytes: 1000, ..FuseBehavior::default() };
    let Some((mounted, _)) = serve_file_system("outputs where a close fails", behaviour) else { return };
    let dir = TestDir::new();
    fs::write(dir.path().join("run.json"), kelvin_testing::stored_run("intel-guest-2")).unwrap();
    let path_of = |name: &str| mounted.path().join(name);
    let [report, written, link, stdout_file] = ["report.html", "data", "link", "printed"].map(path_of);
    fs::write(&report, "good").unwrap();
    std::os::unix::fs::symlink(&report, &link).unwrap();
    for output in [&report, &link] {
        let output = dir.run(&["report", "run.json", "--format", "html", "-o", output.to_str().unwrap()]);
        assert_refused(&output, &["quota exceeded"]);
        assert_eq!(read(report.clone()), b"good");
    }
    for engine in ["write", "pwrite", "io_uring"] {
        let write = ["file", "write", written.to_str().unwrap(), "--size", "64k", "--block", "4k", "--engine", engine];
        let output = dir.run(&write);
        if engine == "io_uring" && stderr(&output).contains("io_uring is unavailable") {
            continue;
        }
        assert_refused(&output, &["data", "quota exceeded"]);
    }
    assert_eq!(names(&mounted.path()), ["link", "report.html"]);
    // What the shell has opened for it, kelvin did not name, but has promised to write.
    let mut command = dir.command(KELVIN, &["report", "run.json", "--format", "csv"]);
    let output = command.stdout(File::create(&stdout_file).unwrap()).output().unwrap();
    assert_refused(&output, &["standard output", "quota exceeded"]);
    dir.file("middle", 70_000);
    let mut receive_command = dir.command(KELVIN, &["receive", "-", "--listen", "127.0.0.1:0"]);
    let mut child = receive_command.stdout(File::create(&stdout_file).unwrap()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut address = String::new();
    log.read_line(&mut address).unwrap();
    let output = dir.run(&["send", "middle", address.trim().trim_start_matches("kelvin: ")]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("quota exceeded"), "{}", stderr(&output));
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert_ne!(wait_for_output(child, &["receive", "-"]).status.code(), Some(0), "{rest}");
}

/// A unit of time, in nanoseconds, and a time that it does not divide.
const COARSE_TIMESTAMPS: [(&str, u64, &str); 4] = [
    ("whole seconds (NFS of ext3, SFTP)", 1_000_000_000, "2020-01-01 00:00:00.5"),
    ("two seconds (FAT)", 2_000_000_000, "2020-01-01 00:00:01.25"),
    ("hundredths of a second (exFAT)", 10_000_000, "2020-01-01 00:00:01.123456789"),
    ("100 ns (NTFS, SMB)", 100, "2020-01-01 00:00:01.123456789"),
];

#[test]
fn coarse_timestamps_count_as_unchanged() {
    for (kind, time_unit, time) in COARSE_TIMESTAMPS {
        let Some((mounted, _)) = serve_file_system(kind, FuseBehavior { time_unit, ..FuseBehavior::default() }) else {
            return;
        };
        assert_second_send_is_empty(&mounted.path(), time);
    }
    // As ext3 is, and ext4 with small inodes.
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    match MountedFs::ext4(&["-I", "128"], base) {
        Ok(mounted) => assert_second_send_is_empty(&mounted.path(), COARSE_TIMESTAMPS[0].2),
        Err(missing) => missing.report_skip("unchanged files on ext4 with times of whole seconds"),
    }
}

/// That a second sending moves nothing, and a changed file is found.
fn assert_second_send_is_empty(target: &Path, time: &str) {
    let dir = TestDir::new();
    fs::create_dir_all(dir.path().join("tree/below")).unwrap();
    for name in ["tree/a", "tree/below/b", "tree/empty"] {
        dir.file(name, if name.ends_with("empty") { 0 } else { 100 });
        let status = dir.command("touch", &["-d", time, name]).status().unwrap();
        assert!(status.success());
    }
    let update = |options: &[&str]| {
        let send = [&["-r", "--update", "tree"], options].concat();
        let (output, (_, log)) = transfer(&dir, (&[target.to_str().unwrap(), "--overwrite"], &send));
        assert_eq!(output.status.code(), Some(0), "{}{log}", stderr(&output));
        stdout(&output).to_owned()
    };
    assert!(update(&[]).contains("moved 3 files"));
    for options in [&[][..], &["--dry-run"]] {
        let text = update(options);
        assert!(text.contains("unchanged: 3 files"), "{text}");
    }
    // Of the same size, and written three seconds later.
    fs::write(dir.path().join("tree/a"), [7; 100]).unwrap();
    let status = dir.command("touch", &["-d", &format!("{time} + 3 seconds"), "tree/a"]).status().unwrap();
    assert!(status.success());
    let text = update(&[]);
    assert!(text.contains("unchanged: 2 files") && text.contains("moved 1 file"), "{text}");
    assert_eq!(read(target.join("tree/a")), [7; 100]);
    assert_eq!(names(&target.join("tree")), ["a", "below", "empty"]);
}

#[test]
fn sizeless_files_are_read_to_eof() {
    let behaviour = FuseBehavior { stated_size: Some(0), ..FuseBehavior::default() };
    let Some((mounted, _)) = serve_file_system("sending files that state no size", behaviour) else { return };
    let dir = TestDir::new();
    let target = dir.path().join("in");
    let source = mounted.path().join("tree");
    fs::create_dir(&source).unwrap();
    let content = [("a", 5), ("b", 70_000), ("c", 9 << 20), ("empty", 0)].map(|(name, bytes)| {
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect();
        fs::write(source.join(name), &content).unwrap();
        (name, content)
    });
    let tree = source.to_str().unwrap();
    for options in [&["--streams", "1"][..], &["--streams", "3"], &["--connection", "per-file"], &["--plain"]] {
        fs::create_dir(&target).unwrap();
        let (output, (_, log)) = transfer(&dir, (&["in"], &[options, &["-r", tree]].concat()));
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}{log}", stderr(&output));
        assert!(stdout(&output).contains("state a size of 0 bytes: 3 files"), "{}", stdout(&output));
        for (name, content) in &content {
            assert!(read(target.join("tree").join(name)) == *content, "{options:?} {name}");
        }
        fs::remove_dir_all(&target).unwrap();
    }
    for (name, content) in &content {
        let output = dir.run(&["digest", source.join(name).to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output).split("  ").next().unwrap(), test_dir::xor_digest(content), "{name}");
        assert_eq!(stderr(&output).contains("states 0 bytes"), !content.is_empty(), "{}", stderr(&output));
        let output = dir.run(&["file", "read", source.join(name).to_str().unwrap(), "--block", "4k"]);
        if !content.is_empty() {
            assert_refused(&output, &[name, "more than the 0 bytes that it states"]);
        }
    }
    let version = dir.run(&["digest", "/proc/version"]);
    let content = read("/proc/version".into());
    assert_eq!(stdout(&version), format!("{}  /proc/version\n", test_dir::xor_digest(&content)));
    fs::create_dir(&target).unwrap();
    let (output, _) = transfer(&dir, (&["in"], &["/proc/version"]));
    assert_eq!((output.status.code(), read(target.join("version"))), (Some(0), content), "{}", stderr(&output));
}

#[test]
fn unmappable_files_are_read() {
    let behaviour = FuseBehavior { is_direct: true, ..FuseBehavior::default() };
    let Some((mounted, _)) = serve_file_system("reading files that cannot be mapped", behaviour) else { return };
    let dir = TestDir::new();
    let content: Vec<u8> = (0..9u32 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect();
    let source = mounted.path().join("file");
    fs::write(&source, &content).unwrap();
    let source = source.to_str().unwrap();
    let digest = dir.run(&["digest", source]);
    assert_eq!(digest.status.code(), Some(0), "{}", stderr(&digest));
    assert_eq!((stdout(&digest).split("  ").next().unwrap(), stderr(&digest)), (&*test_dir::xor_digest(&content), ""));
    let read_by = |engine| dir.run(&["file", "read", source, "--engine", engine, "--block", "4k"]);
    assert_eq!(read_by("pread").status.code(), Some(0), "{}", stderr(&read_by("pread")));
    assert_refused(&read_by("mmap"), &["cannot be mapped"]);
    // Of a plain, verified transfer the first blocks are sent from a mapping by turns.
    for options in [&["--plain"][..], &["--plain", "--no-verify"], &["--plain", "--streams", "2"], &[]] {
        fs::create_dir(dir.path().join("in")).unwrap();
        let (output, (_, log)) = transfer(&dir, (&["in"], &[options, &[source]].concat()));
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}{log}", stderr(&output));
        assert!(read(dir.path().join("in/file")) == content, "{options:?}");
        fs::remove_dir_all(dir.path().join("in")).unwrap();
    }
    fs::create_dir(dir.path().join("in")).unwrap();
    let (output, _) = transfer(&dir, (&["in"], &["--plain", "--method", "mmap", source]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot be mapped"), "{}", stderr(&output));
}

#[test]
fn files_with_wrong_size_do_not_arrive() {
    // As those of /sys, which state a page, and those of servers whose answers are out of date.
    for (stated_size, bytes, reason) in
        [(4096, 5, "it ended after 5 of 4096 bytes"), (3, 5, "more than the 3 bytes that it states")]
    {
        let behaviour = FuseBehavior { stated_size: Some(stated_size), ..FuseBehavior::default() };
        let Some((mounted, _)) = serve_file_system("sending files with other sizes than they state", behaviour) else {
            return;
        };
        let dir = TestDir::new();
        fs::create_dir(dir.path().join("in")).unwrap();
        let source = mounted.path().join("file");
        fs::write(&source, vec![7; bytes]).unwrap();
        let (output, _) = transfer(&dir, (&["in"], &[source.to_str().unwrap()]));
        assert_eq!((output.status.code(), names(&dir.path().join("in"))), (Some(1), vec![]), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert_ne!(dir.run(&["digest", source.to_str().unwrap()]).status.code(), Some(0));
    }
}

#[test]
fn overlong_names_are_reported() {
    let behaviour = || FuseBehavior { max_name_bytes: 1000, ..FuseBehavior::default() };
    let Some((from, _)) = serve_file_system("sending long names", behaviour()) else { return };
    let Some((to, _)) = serve_file_system("receiving long names", behaviour()) else { return };
    let dir = TestDir::new();
    let long_name = "\u{4e00}".repeat(255);
    let tree = from.path().join("tree");
    fs::create_dir_all(tree.join(&long_name)).unwrap();
    for path in [tree.join(&long_name).join("below"), tree.join("short"), tree.join(format!("{long_name}x"))] {
        fs::write(path, "some bytes").unwrap();
    }
    let send = ["-r", tree.to_str().unwrap()];
    let (output, (_, log)) = transfer(&dir, (&[to.path().to_str().unwrap()], &send));
    assert_eq!(output.status.code(), Some(0), "{}{log}", stderr(&output));
    let expected = ["short".to_owned(), long_name.clone(), format!("{long_name}x")];
    assert_eq!(names(&to.path().join("tree")), expected);
    assert_eq!(read(to.path().join("tree").join(&long_name).join("below")), b"some bytes");
    // A local file system takes 255 bytes.
    fs::create_dir(dir.path().join("in")).unwrap();
    let (output, (_, log)) = transfer(&dir, (&["in"], &send));
    assert_eq!(output.status.code(), Some(1), "{}{log}", stdout(&output));
    assert!(stderr(&output).matches("File name too long").count() == 3 && stdout(&output).contains("moved 1 file"));
    assert_eq!(names(&dir.path().join("in/tree")), ["short"]);
}

#[test]
fn files_arrive_without_exclusive_rename_or_link() {
    use rustix::io::Errno;
    for link_error in [None, Some(Errno::ROFS), Some(Errno::NOSYS), Some(Errno::PERM)] {
        let behaviour = FuseBehavior { renames_without_replacing: false, link_error, ..FuseBehavior::default() };
        let Some((mounted, _)) = serve_file_system("receiving where nothing is renamed exclusively", behaviour) else {
            return;
        };
        let (dir, target) = (TestDir::new(), mounted.path());
        fs::create_dir(dir.path().join("tree")).unwrap();
        for (name, bytes) in [("tree/small", 10), ("tree/large", 5 << 20), ("tree/taken", 10)] {
            dir.file(name, bytes);
        }
        std::os::unix::fs::symlink("small", dir.path().join("tree/link")).unwrap();
        fs::create_dir(target.join("tree")).unwrap();
        fs::write(target.join("tree/taken"), "theirs").unwrap();
        let (output, (_, log)) = transfer(&dir, (&[target.to_str().unwrap()], &["-r", "--links", "tree"]));
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(
            stderr(&output).lines().count() == 1 && stderr(&output).contains("taken exists"),
            "{}",
            stderr(&output)
        );
        assert_eq!(names(&target.join("tree")), ["large", "link", "small", "taken"]);
        assert_eq!(read(target.join("tree/taken")), b"theirs");
        for name in ["small", "large"] {
            assert!(read(target.join("tree").join(name)) == read(dir.path().join("tree").join(name)), "{name}");
        }
        assert_eq!(fs::read_link(target.join("tree/link")).unwrap(), Path::new("small"));
    }
}

/// File systems on a device that can be copied as it is at an instant.
const DEVICE_FILE_SYSTEMS: [FileSystemKind; 3] = [FileSystemKind::Ext4, FileSystemKind::Xfs, FileSystemKind::Btrfs];

/// An empty one, and what is on its device once this is called.
fn mount_on_device(kind: FileSystemKind) -> Option<(MountedFs, impl FnOnce(&MountedFs) -> MountedFs)> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mounted =
        MountedFs::new(kind, base).inspect_err(|missing| missing.report_skip(format!("a crash of {}", kind.name())));
    let crash = move |mounted: &MountedFs| mounted.crash_copy(kind, base).unwrap();
    Some((mounted.ok()?, crash))
}

fn sync(path: &Path) {
    assert!(std::process::Command::new("sync").arg("-f").arg(path).status().unwrap().success());
}

#[test]
fn flushed_files_survive_a_crash() {
    for kind in DEVICE_FILE_SYSTEMS {
        let Some((mounted, crash)) = mount_on_device(kind) else { continue };
        let (dir, target) = (TestDir::new(), mounted.path());
        for directory in ["tree/there/deep", "tree/new/below", "tree/emptied"] {
            fs::create_dir_all(dir.path().join(directory)).unwrap();
        }
        // Directories that were there before get entries of each kind.
        fs::create_dir_all(target.join("tree/there/deep")).unwrap();
        sync(&target);
        let files = ["tree/there/small", "tree/there/deep/large", "tree/new/below/file", "tree/top"];
        for name in files {
            dir.file(name, if name.ends_with("large") { 5 << 20 } else { 100 });
        }
        std::os::unix::fs::symlink("small", dir.path().join("tree/there/link")).unwrap();
        fs::set_permissions(dir.path().join("tree/new"), Permissions::from_mode(0o750)).unwrap();
        let send = ["-r", "--links", "--sync", "tree"];
        let (output, (_, log)) = transfer(&dir, (&[target.to_str().unwrap()], &send));
        let crashed = crash(&mounted);
        assert_eq!(output.status.code(), Some(0), "{}{log}", stderr(&output));
        for name in files {
            let content = fs::read(crashed.path().join(name));
            assert!(content.as_ref().is_ok_and(|content| *content == read(dir.path().join(name))), "{kind:?} {name}");
        }
        assert_eq!(fs::read_link(crashed.path().join("tree/there/link")).unwrap(), Path::new("small"), "{kind:?}");
        assert_eq!(names(&crashed.path().join("tree")), ["emptied", "new", "there", "top"], "{kind:?}");
        let mode = |path: &str| crashed.path().join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("tree/new"), 0o750, "{kind:?}");
    }
}

#[test]
fn replaced_file_is_whole_after_crash() {
    for kind in DEVICE_FILE_SYSTEMS {
        let Some((mounted, crash)) = mount_on_device(kind) else { continue };
        let (dir, target) = (TestDir::new(), mounted.path());
        let files = [("small", 100), ("middle", 200_000), ("large", 5 << 20)];
        for (name, bytes) in files {
            dir.file(name, bytes);
            fs::write(target.join(name), "old").unwrap();
        }
        dir.file("unrelated", 10);
        sync(&target);
        let (output, (_, log)) =
            transfer(&dir, (&[target.to_str().unwrap(), "--overwrite"], &["small", "middle", "large"]));
        assert_eq!(output.status.code(), Some(0), "{}{log}", stderr(&output));
        // Somebody else has the names flushed, and not what is in the files.
        File::open(&target).unwrap().sync_all().unwrap();
        let crashed = crash(&mounted);
        for (name, _) in files {
            let content = read(crashed.path().join(name));
            let is_old_or_new = content == b"old" || content == read(dir.path().join(name));
            assert!(is_old_or_new, "{kind:?}: {name} has {} bytes", content.len());
        }
    }
}
