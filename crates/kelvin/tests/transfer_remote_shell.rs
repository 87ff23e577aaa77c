//! `kelvin send -e`: both ends through a remote shell, which is a script here, and ssh where a server can be started.

mod test_dir;

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use kelvin_testing::MissingRequirement;
use serde_json::Value;
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, assert_success, is_met_within, stderr, stdout, wait_for_output,
};

/// A host named `far`, whose home is the directory of that name; its shell is a script that first does this.
struct FarHost {
    dir: TestDir,
    shell: String,
}

impl FarHost {
    fn new(first: &str) -> Self {
        let dir = TestDir::new();
        fs::create_dir(dir.path().join("far")).unwrap();
        // As ssh does: all words become one command line for a shell, from the home of the login.
        let script =
            format!("host=$1; shift\ncd \"$(dirname \"$0\")/$host\" || exit 255\n{first}\nexec sh -c \"$*\"\n");
        let path = dir.path().join("shell");
        fs::write(&path, script).unwrap();
        Self { shell: format!("sh {}", path.display()), dir }
    }

    fn send<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        let mut command = self.dir.command(KELVIN, &["send", "-e", &self.shell, "--remote-program", KELVIN]);
        wait_for_output(command.args(arguments).spawn().unwrap(), &["send"])
    }

    /// A file of the other host.
    fn far(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("far").join(path)
    }
}

/// All that is below a directory, with kind, mode, time and target.
fn find_listing(directory: &Path) -> String {
    let output = Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", "%P %y %m %T@ %l\\n"]).output();
    let mut lines: Vec<String> = stdout(&output.unwrap()).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

fn make_tree(dir: &TestDir, parent: &str) {
    fs::create_dir_all(dir.path().join(parent).join("tree/deep/er")).unwrap();
    dir.file(&format!("{parent}/tree/deep/er/five"), 5);
    dir.file(&format!("{parent}/tree/large"), 9 << 20);
    symlink("large", dir.path().join(parent).join("tree/link")).unwrap();
}

#[test]
fn tree_goes_to_remote_directory_and_back() {
    let host = FarHost::new("");
    make_tree(&host.dir, ".");
    let odd_name = OsStr::from_bytes(b"far:it's a \"$HOME\" \xff;");
    for target in [OsStr::new("far:plain"), odd_name] {
        let sent = host.send(&[OsStr::new("-r"), OsStr::new("--links"), OsStr::new("tree"), target]);
        assert_success(&sent);
        assert!(stdout(&sent).contains(", through a remote shell, verified; "), "{}", stdout(&sent));
        assert_eq!(stderr(&sent), "");
    }
    let far_names: Vec<OsString> =
        fs::read_dir(host.far("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(far_names.len(), 2, "{far_names:?}");
    let tree = host.dir.path().join("tree");
    for name in far_names {
        assert_eq!(find_listing(&host.far("").join(name).join("tree")), find_listing(&tree));
    }
    let fetched = host.send(&["-r", "--links", "far:plain/tree", "far:plain/tree/large", "here"]);
    assert_success(&fetched);
    assert!(stdout(&fetched).starts_with("moved 3 files, 18.0 MiB, in "), "{}", stdout(&fetched));
    assert_eq!(find_listing(&host.dir.path().join("here/tree")), find_listing(&tree));
    assert!(fs::read(tree.join("large")).unwrap() == fs::read(host.dir.path().join("here/large")).unwrap());
    let compressed = host.send(&["-rz", "--json", "far:plain/tree", "compressed"]);
    let report: Value = serde_json::from_slice(&compressed.stdout).unwrap();
    assert_eq!((compressed.status.code(), report["compression"].is_object()), (Some(0), true), "{report}");
    let again = host.send(&["-r", "--links", "--update", "--json", "far:plain/tree", "here"]);
    let report: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((again.status.code(), &report["files"], &report["remote_shell"]), (Some(0), &0.into(), &true.into()));
}

#[test]
fn standard_input_goes_to_remote_home() {
    let host = FarHost::new("");
    host.dir.file("data", 70_000);
    let mut command = host.dir.command(KELVIN, &["send", "-e", &host.shell, "--remote-program", KELVIN]);
    command.args(["-", "--name", "data", "far:~"]).stdin(fs::File::open(host.dir.path().join("data")).unwrap());
    assert_success(&wait_for_output(command.spawn().unwrap(), &["send"]));
    assert!(fs::read(host.dir.path().join("data")).unwrap() == fs::read(host.far("data")).unwrap());
}

#[test]
fn dry_run_makes_nothing_at_either_end() {
    let host = FarHost::new("");
    make_tree(&host.dir, ".");
    make_tree(&host.dir, "far");
    let sent = host.send(&["-rn", "tree", "far:new"]);
    assert_success(&sent);
    assert!(stdout(&sent).starts_with("would send tree/deep/er/five\nwould send tree/large\n"), "{}", stdout(&sent));
    let fetched = host.send(&["-rn", "far:tree", "new"]);
    assert_success(&fetched);
    assert_eq!(stdout(&fetched), "would receive tree/deep/er/five\nwould receive tree/large\n");
    assert_eq!(stderr(&fetched), "kelvin: far: left out: 1 symbolic link (--links keeps them)\n");
    assert!(!host.far("new").exists() && !host.dir.path().join("new").exists());
}

#[test]
fn existing_file_is_replaced_only_when_asked() {
    let host = FarHost::new("");
    host.dir.file("data", 10);
    fs::write(host.far("data"), "other").unwrap();
    let sent = host.send(&["data", "far:"]);
    let refusal = "data exists, and is replaced only with --overwrite\n";
    let expected = format!("kelvin: data: the other side says: {refusal}");
    assert_eq!((sent.status.code(), stderr(&sent)), (Some(1), &expected[..]));
    let fetched = host.send(&["far:data", "."]);
    assert_eq!((fetched.status.code(), stderr(&fetched)), (Some(1), &format!("kelvin: {refusal}")[..]));
    assert_eq!(fs::read(host.far("data")).unwrap(), b"other");
    assert_success(&host.send(&["--overwrite", "far:data", "."]));
    assert_eq!(fs::read(host.dir.path().join("data")).unwrap(), b"other");
    host.dir.file("data", 10);
    assert_success(&host.send(&["--overwrite", "data", "far:"]));
    assert_eq!(fs::read(host.far("data")).unwrap().len(), 10);
}

#[test]
fn cut_connection_leaves_part_that_is_resumed() {
    // Hands on what has come at once, and no more than two blocks and a little.
    let relay = "import os, sys\nleft = 9000000\nwhile left > 0:\n    part = os.read(0, min(left, 65536))\n    left -= len(part) or left\n    \
                 while part:\n        part = part[os.write(1, part):]\n";
    let host = FarHost::new("[ -e ../whole ] || exec sh -c \"python3 ../relay.py | $*\"");
    fs::write(host.dir.path().join("relay.py"), relay).unwrap();
    host.dir.file("large", 12 << 20);
    let cut = host.send(&["large", "far:"]);
    assert_eq!(cut.status.code(), Some(1), "{}", stdout(&cut));
    assert!(
        stderr(&cut).contains("kelvin: large was not moved: the other side closed the connection"),
        "{}",
        stderr(&cut)
    );
    fs::write(host.dir.path().join("whole"), "").unwrap();
    let resumed = host.send(&["large", "far:"]);
    assert_success(&resumed);
    assert!(
        stdout(&resumed).starts_with("moved 1 file, 12 MiB (8 MiB there from before), in "),
        "{}",
        stdout(&resumed)
    );
    assert!(fs::read(host.dir.path().join("large")).unwrap() == fs::read(host.far("large")).unwrap());
}

#[test]
fn remote_output_is_bounded_and_harmless() {
    // What start-up files print, and more messages than anybody reads, which would change a terminal.
    let host = FarHost::new("echo Welcome; yes \"$(printf '\\033[2Jflood')\" | head -n 100000 >&2");
    host.dir.file("data", 10);
    let sent = host.send(&["data", "far:"]);
    assert_success(&sent);
    let messages = stderr(&sent);
    assert!(messages.contains("kelvin: far: Welcome\n") || messages.contains(" lines dropped\n"), "{messages}");
    assert!(
        messages.contains("kelvin: far: \u{fffd}[2Jflood\n") && messages.contains(" lines dropped\n"),
        "{messages}"
    );
    assert!(messages.len() < 20_000 && !messages.contains('\u{1b}'), "{} bytes", messages.len());
}

#[test]
fn remote_end_that_does_not_start_is_one_line() {
    let host = FarHost::new("");
    host.dir.file("data", 10);
    let shell = |script: &str| vec!["-e".to_owned(), format!("sh -c '{script}'")];
    let far = |program: &str| vec!["-e".to_owned(), host.shell.clone(), format!("--remote-program={program}")];
    let cases = [
        (
            shell("echo Permission denied >&2; exit 255"),
            "far: sh ended before kelvin was there (exit status: 255): Permission denied",
        ),
        (shell("exit 0"), "far: sh ended before kelvin was there (exit status: 0)"),
        (vec!["-e".to_owned(), "no-such-shell".into()], "-e no-such-shell: No such file or directory"),
        (far("no-kelvin"), "far: there is no program no-kelvin: "),
        (far("echo"), "far: sh ended before kelvin was there (exit status: 0)"),
        (
            shell("printf \"\\0kelvin transfer 9 0.1.0\\n\"; cat"),
            "far: the other side uses version 9 of the protocol (kelvin 0.1.0)",
        ),
        (shell("printf \"\\0rsync\\n\"; cat"), "far: the other side is no kelvin"),
        (shell("cat /dev/zero | tr \"\\0\" x"), "the remote shell prints without end"),
        (
            shell("echo \"kelvin: unexpected argument --stdio\" >&2; exit 2"),
            "far: kelvin there is of a version before --stdio",
        ),
    ];
    for (shell, words) in cases {
        let mut command = host.dir.command(KELVIN, &["send", "data", "far:"]);
        assert_refused(&wait_for_output(command.args(&shell).spawn().unwrap(), &["send"]), &[words]);
    }
    // What kelvin there says is the reason.
    assert_refused(
        &host.send(&["data", "far:no/such"]),
        &["far: the receiver says: cannot make the directory no/such"],
    );
    assert_refused(&host.send(&["far:none", "here"]), &["kelvin: far: cannot find none: No such file"]);
    assert_refused(&host.send(&["far:none", "no/such"]), &["kelvin: far: cannot find none: No such file"]);
}

#[test]
fn remote_shell_usage_errors_are_refused() {
    let host = FarHost::new("touch started");
    host.dir.file("data", 10);
    let cases: &[(&[&str], &str)] = &[
        (&["-e", "sh", "data", "other"], "send -e needs FILE... HOST:DIRECTORY, or HOST:FILE... DIRECTORY"),
        (&["-e", "sh", "far:x"], "send -e needs FILE... HOST:DIRECTORY"),
        (&["-e", "sh", "far:x", "data", "far:y"], "send -e needs FILE... HOST:DIRECTORY"),
        (&["-e", "sh", "far:x", "near:y", "here"], "far and near: fetch from one host at a time"),
        (&["-e", "sh", "far:x", "here", "--name", "y"], "--name"),
        (&["-e", "sh 'x", "data", "far:"], "a quote has no end"),
        (&["-e", "sh", "data", "far:", "--token-file", "data"], "--token-file"),
        (&["-e", "sh", "data", "far:", "--streams", "2"], "--streams"),
        (&["-e", "sh", "none", "far:"], "cannot find none"),
        (&["data", "far:", "--remote-program", "x"], "--rsh <COMMAND>"),
        (&["data", "me@far:in"], "me@far:in: a user is for a remote shell: give -e ssh with it"),
    ];
    for (arguments, words) in cases {
        assert_refused(&host.dir.run(&[&["send"], *arguments].concat()), &[words]);
    }
    assert_refused(&host.dir.run(&["receive", "--stdio", "-"]), &["--stdio: name a directory"]);
    assert!(!host.far("started").exists());
}

/// Paths below a directory, sorted.
fn paths_below(directory: &Path) -> Vec<String> {
    let output = Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", "%P\\n"]).output().unwrap();
    let mut paths: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    paths.sort();
    paths
}

fn write_files(directory: &Path, paths: &[&str]) {
    for path in paths {
        fs::create_dir_all(directory.join(path).parent().unwrap()).unwrap();
        fs::write(directory.join(path), path).unwrap();
    }
}

#[test]
fn patterns_and_lists_choose_files() {
    let host = FarHost::new("");
    let tree = host.dir.path().join("tree");
    write_files(&tree, &["a.jpg", "a.txt", "raw/b.jpg", "cache/c.jpg", "odd \nname"]);
    fs::write(host.dir.path().join("patterns"), "# comment\n\n/tree/raw\n").unwrap();
    let filter = ["--exclude=cache/", "--include=*/", "--include", "*.jpg", "--exclude-from=patterns", "--exclude=*"];
    assert_success(&host.send(&[&filter[..], &["-r", "tree", "far:filtered"]].concat()));
    assert_eq!(paths_below(&host.far("filtered")), ["tree", "tree/a.jpg", "tree/raw", "tree/raw/b.jpg"]);
    // There it is the other end that chooses.
    let first = ["--exclude-from=patterns", "--exclude=*.txt", "--exclude=odd*"];
    assert_success(&host.send(&[&["-r"], &first[..], &["far:../tree", "fetched"]].concat()));
    assert_eq!(paths_below(&host.dir.path().join("fetched")), ["tree", "tree/a.jpg", "tree/cache", "tree/cache/c.jpg"]);
    // What comes from a pipe comes once.
    let shell = host.shell.as_str();
    let piped = ["send", "-e", shell, "--remote-program", KELVIN, "-r", "--exclude-from=-", "far:../tree", "piped"];
    let patterns = fs::File::open(host.dir.path().join("patterns")).unwrap();
    assert_success(&wait_for_output(host.dir.command(KELVIN, &piped).stdin(patterns).spawn().unwrap(), &piped));
    assert!(!paths_below(&host.dir.path().join("piped")).contains(&"tree/raw".to_owned()));
    fs::write(host.dir.path().join("list"), "raw/b.jpg\0./odd \nname\0cache\0raw/b.jpg\0none\0").unwrap();
    let listed = host.send(&["--files-from=list", "--from0", "tree", "far:listed"]);
    let words = "kelvin: cannot find tree/none: No such file or directory (os error 2)\n";
    assert_eq!((listed.status.code(), stderr(&listed)), (Some(1), words));
    assert_eq!(paths_below(&host.far("listed")).join("|"), "cache|name|odd |raw|raw/b.jpg");
    for (arguments, words) in [
        (&["--exclude=[a", "tree", "far:x"][..], "--exclude [a: unclosed character class"),
        (&["--exclude-from=none", "tree", "far:x"], "--exclude-from none: No such file"),
        (&["--files-from=list", "tree", "tree", "far:x"], "--files-from: name one directory"),
        (&["--files-from=list", "-r", "tree", "far:x"], "--files-from"),
        (&["--files-from=list", "far:x", "here"], "--files-from: the list is for files here"),
    ] {
        assert_refused(&host.send(arguments), &[words]);
    }
    fs::write(host.dir.path().join("list"), "a.jpg\n../patterns\n").unwrap();
    assert_refused(
        &host.send(&["--files-from=list", "tree", "far:x"]),
        &["../patterns: it leads out of the directory"],
    );
}

#[test]
fn delete_mirrors_a_directory() {
    let host = FarHost::new("");
    let tree = host.dir.path().join("tree");
    write_files(&tree, &["a", "sub/b"]);
    symlink("a", tree.join("link")).unwrap();
    let old =
        ["tree/old", "tree/sub/old/deep/c", "tree/link", "tree/keep.o", "tree/gone/keep.o", "tree/gone/x", "outside"];
    write_files(&host.far("in"), &old);
    let mirror = ["-r", "--delete", "--exclude=*.o", "tree", "far:in"];
    let planned = host.send(&[&["-n"], &mirror[..]].concat());
    assert_success(&planned);
    let deletions: Vec<&str> = stdout(&planned).lines().filter(|line| line.starts_with("would delete ")).collect();
    let expected = ["gone/x", "old", "sub/old", "sub/old/deep", "sub/old/deep/c"];
    assert_eq!(deletions, expected.map(|path| format!("would delete tree/{path}")));
    let limited = host.send(&[&["--max-delete=4"], &mirror[..]].concat());
    let words = "kelvin: --delete: nothing was deleted: 5 are to be, and --max-delete allows 4\n";
    assert_eq!((limited.status.code(), stderr(&limited)), (Some(1), words));
    let deleted = host.send(&[&["--update"], &mirror[..]].concat());
    assert_success(&deleted);
    assert!(stdout(&deleted).starts_with("deleted: 5\nunchanged: 2 files\n"), "{}", stdout(&deleted));
    let kept = [
        "outside",
        "tree",
        "tree/a",
        "tree/gone",
        "tree/gone/keep.o",
        "tree/keep.o",
        "tree/link",
        "tree/sub",
        "tree/sub/b",
    ];
    assert_eq!(paths_below(&host.far("in")), kept);
    // The same from there to here.
    write_files(&host.dir.path().join("here/tree"), &["old", "sub/b"]);
    let fetched = host.send(&["-r", "--delete", "--overwrite", "far:in/tree", "here"]);
    assert_success(&fetched);
    assert!(stdout(&fetched).starts_with("deleted: 1\nmoved 5 files"), "{}", stdout(&fetched));
    assert_eq!(paths_below(&host.dir.path().join("here/tree")), paths_below(&host.far("in/tree")));
}

#[test]
fn hard_links_go_both_ways() {
    let host = FarHost::new("");
    let tree = host.dir.path().join("tree");
    write_files(&tree, &["a", "sub/z"]);
    fs::hard_link(tree.join("a"), tree.join("sub/b")).unwrap();
    let are_one = |directory: &Path| {
        let inode = |name: &str| directory.join(name).metadata().unwrap().ino();
        inode("a") == inode("sub/b") && inode("a") != inode("sub/z")
    };
    let sent = host.send(&["-rH", "tree", "far:in"]);
    assert_success(&sent);
    assert!(stdout(&sent).starts_with("moved 2 files and made 1 hard link, "), "{}", stdout(&sent));
    let fetched = host.send(&["-rH", "far:in/tree", "here"]);
    assert_success(&fetched);
    assert!(stdout(&fetched).starts_with("moved 2 files and made 1 hard link, "), "{}", stdout(&fetched));
    assert!(are_one(&host.far("in/tree")) && are_one(&host.dir.path().join("here/tree")));
    let planned = host.send(&["-rnH", "far:in/tree", "elsewhere"]);
    assert_eq!(stdout(&planned).matches("would receive ").count(), 3, "{}", stdout(&planned));
    let separate = host.send(&["-r", "--json", "tree", "far:separate"]);
    let summary: Value = serde_json::from_str(stdout(&separate)).unwrap();
    assert_eq!((summary["files"].as_u64(), summary.get("hard_links")), (Some(3), None));
    assert!(!are_one(&host.far("separate/tree")));
}

#[test]
fn options_of_rsync_do_the_same_work() {
    let host = FarHost::new("");
    let tree = host.dir.path().join("tree");
    write_files(&tree, &["a", "sub/b"]);
    host.dir.file("tree/large", 3000);
    symlink("a", tree.join("link")).unwrap();
    let planned = host.send(&["-ain", "--max-size=2k", "tree", "far:in"]);
    assert_success(&planned);
    assert_eq!(stdout(&planned), "would send tree/a\nwould send tree/sub/b\n");
    let sent = host.send(&["-avz", "-P", "--stats", "--bwlimit=100m", "--max-size=2k", "tree", "far:in"]);
    assert_success(&sent);
    assert!(stdout(&sent).starts_with("sent tree/a\nsent tree/sub/b\nmoved 2 files, "), "{}", stdout(&sent));
    assert_eq!(paths_below(&host.far("in")), ["tree", "tree/a", "tree/link", "tree/sub", "tree/sub/b"]);
    let quiet = host.send(&["-aq", "tree", "far:in"]);
    assert_success(&quiet);
    assert_eq!((stdout(&quiet), stderr(&quiet), host.far("in/tree/large").exists()), ("", "", true));
    // The same from there to here, where the other end is told.
    fs::write(host.far("in/tree/a"), "changed").unwrap();
    write_files(&host.dir.path().join("here/tree"), &["a"]);
    let options = ["-avL", "--ignore-existing", "--min-size=1", "--max-size=2k", "far:in/tree", "here"];
    let fetched = host.send(&options);
    assert_success(&fetched);
    assert!(stdout(&fetched).starts_with("received tree/link\nreceived tree/sub/b\n"), "{}", stdout(&fetched));
    assert_ne!(fs::read_to_string(host.dir.path().join("here/tree/a")).unwrap(), "changed");
    assert!(host.dir.path().join("here/tree/link").symlink_metadata().unwrap().is_file());
    assert_eq!(stdout(&host.send(&["-aq", "far:in/tree", "quiet"])), "");
}

/// An access control list (linux/posix_acl_xattr.h) with one more user, who may read.
const ACL: [(u16, u16, u32); 5] =
    [(1, 6, u32::MAX), (2, 4, 4711), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
const ACL_ATTRIBUTE: &str = "system.posix_acl_access";

#[test]
fn access_control_lists_go_both_ways() {
    let host = FarHost::new("");
    let tree = host.dir.path().join("tree");
    write_files(&tree, &["a"]);
    let entry = |(tag, permissions, number): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat()
    };
    let list = [&2_u32.to_le_bytes()[..], &ACL.map(entry).concat()].concat();
    if rustix::fs::setxattr(tree.join("a"), ACL_ATTRIBUTE, &list, rustix::fs::XattrFlags::empty()).is_err() {
        return MissingRequirement::machine("no access control lists where temporary files are")
            .report_skip("keeping them");
    }
    let kept = |path: &Path| {
        let mut value = vec![0; 200];
        rustix::fs::getxattr(path, ACL_ATTRIBUTE, &mut value).is_ok_and(|length| value[..length] == list)
    };
    assert_success(&host.send(&["-rA", "tree", "far:in"]));
    assert_success(&host.send(&["-rA", "far:in/tree", "here"]));
    assert!(kept(&host.far("in/tree/a")) && kept(&host.dir.path().join("here/tree/a")));
    let without = host.send(&["-r", "tree", "far:without"]);
    assert!(
        stdout(&without).contains("left out: 1 file's extended attributes (--xattrs keeps"),
        "{}",
        stdout(&without)
    );
    assert!(!kept(&host.far("without/tree/a")));
}

#[test]
fn receiver_without_leave_refuses_more() {
    let host = FarHost::new("");
    write_files(&host.dir.path().join("tree"), &["a"]);
    let shell = format!("sh -c 'exec {KELVIN} receive --stdio .'");
    let refused = host.dir.run(&["send", "-e", &shell, "-r", "--delete", "tree", "far:"]);
    assert_refused(&refused, &["far: the receiver says: this receiver deletes nothing: start it with --delete"]);
    assert_refused(&host.send(&["--delete", "tree", "far:"]), &["--recursive"]);
    let refused = host.dir.run(&["send", "-e", &shell, "-r", "-A", "tree", "far:"]);
    assert_refused(
        &refused,
        &["far: the receiver says: this receiver keeps no access control lists: start it with --acls"],
    );
}

/// A server of ssh on this host, which lets in whoever has its key.
struct SshServer {
    child: Child,
    /// The command that reaches it.
    command: String,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl SshServer {
    const PROGRAM: &str = "/usr/sbin/sshd";

    fn start(dir: &TestDir) -> Result<Self, MissingRequirement> {
        if !Path::new(Self::PROGRAM).exists() {
            return Err(MissingRequirement::package("openssh-server", "needs a server of ssh"));
        }
        if !kelvin_testing::is_root() {
            return Err(MissingRequirement::privilege("needs the right to start a server of ssh (root)"));
        }
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for key in ["host_key", "key"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).status();
            assert!(made.unwrap().success());
        }
        fs::copy(path("key.pub"), path("authorized")).unwrap();
        fs::set_permissions(path("authorized"), Permissions::from_mode(0o600)).unwrap();
        // Where it separates privileges; a package makes it when its service starts.
        fs::create_dir_all("/run/sshd").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = [
            "ListenAddress=127.0.0.1".to_owned(),
            format!("Port={port}"),
            format!("HostKey={}", path("host_key")),
            format!("AuthorizedKeysFile={}", path("authorized")),
            format!("PidFile={}", path("pid")),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
            "PermitRootLogin=yes".to_owned(),
        ];
        let mut server = Command::new(Self::PROGRAM);
        server.args(["-D", "-e", "-f", "/dev/null"]).stdout(Stdio::null()).stderr(Stdio::null());
        for option in &options {
            server.args(["-o", option]);
        }
        let child = server.spawn().unwrap();
        let command = format!(
            "ssh -F none -p {port} -i {} -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR -o UserKnownHostsFile={}",
            path("key"),
            path("known"),
        );
        let started = Self { child, command };
        assert!(is_met_within(HANG_TIMEOUT, || TcpStream::connect(("127.0.0.1", port)).is_ok()));
        Ok(started)
    }
}

#[test]
fn files_go_through_ssh_both_ways() {
    let host = FarHost::new("");
    let server = match SshServer::start(&host.dir) {
        Ok(server) => server,
        Err(missing) => return missing.report_skip("a transfer through ssh"),
    };
    make_tree(&host.dir, ".");
    let send = |arguments: &[&str]| {
        let options = ["send", "-e", &server.command, "--remote-program", KELVIN, "-r", "--links"];
        host.dir.run(&[&options[..], arguments].concat())
    };
    let target = format!("127.0.0.1:{}", host.far("it's here").display());
    let sent = send(&["tree", &target]);
    assert_success(&sent);
    assert_eq!(stderr(&sent), "");
    assert_success(&send(&[&format!("{target}/tree"), "back"]));
    assert_eq!(find_listing(&host.dir.path().join("back/tree")), find_listing(&host.dir.path().join("tree")));
    let missing = send(&[&format!("{target}/none"), "back"]);
    assert_refused(&missing, &["kelvin: 127.0.0.1: cannot find "]);
    // Without its key nobody is let in.
    fs::remove_file(host.dir.path().join("authorized")).unwrap();
    assert_refused(
        &send(&["tree", &target]),
        &["127.0.0.1: ssh ended before kelvin was there (exit status: 255): ", "Permission denied"],
    );
}
