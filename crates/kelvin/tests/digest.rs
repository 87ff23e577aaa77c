//! `kelvin digest` as a whole program: right for every kind of input, remembered, checked, and refused where a file changes.

mod test_dir;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, signal, stderr, stdout, wait_for_output, wait_until_at_work};

#[test]
fn digests_of_files_stdin_and_holes() {
    let dir = TestDir::new();
    let (first, second) = (dir.file("first", 1_000_001), dir.file("with space", 12_345));
    let output = dir.run(&["digest", "first", "with space", "none", "first"]);
    // One that cannot be read costs only itself.
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), format!("{first}  first\n{second}  with space\n{first}  first\n"));
    assert!(stderr(&output).starts_with("kelvin: ") && stderr(&output).contains("none"), "{}", stderr(&output));

    let run_with_stdin = |arguments: &[&str]| {
        let file = fs::File::open(dir.path().join("first")).unwrap();
        dir.command(KELVIN, arguments).stdin(file).output().unwrap()
    };
    assert_eq!(stdout(&run_with_stdin(&["digest"])), format!("{first}  -\n"));
    assert_eq!(stdout(&run_with_stdin(&["digest", "with space", "-"])), format!("{second}  with space\n{first}  -\n"));
    // A pipe hands over what it holds, in parts that are no multiple of a word.
    let mut child = dir.command(KELVIN, &["digest", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let content = fs::read(dir.path().join("first")).unwrap();
    let mut input = child.stdin.take().unwrap();
    for part in content.chunks(9_999) {
        input.write_all(part).unwrap();
        input.flush().unwrap();
    }
    drop(input);
    assert_eq!(stdout(&wait_for_output(child, &["digest", "-"])), format!("{first}  -\n"));

    // Holes read as zeros.
    let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.set_len(100_000_001).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[0xef, 0xbe, 0xad, 0xde], 50_000_000).unwrap();
    assert_eq!(dir.digest("sparse"), "deadbeef");
    fs::write(dir.path().join("empty"), "").unwrap();
    assert_eq!(dir.digest("empty"), "00000000");
}

#[test]
fn fastest_read_setting_is_cached_per_file_system() {
    let dir = TestDir::new();
    // Large enough for a search, and all of it holes but its end: it costs no disk.
    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(300 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, &[1, 2, 3, 4], 300 << 20).unwrap();
    // One thread makes every trial itself, so that the search ends however busy the machine is: of several, one may read the
    // rest of the file while another waits for a CPU, and what was not tried to its end is not remembered.
    let digest = |arguments: &[&str]| {
        let output = dir.run(&[&["digest", "large", "--threads", "1"], arguments].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), "04030201  large\n"));
        stderr(&output).to_owned()
    };
    let cache_file = dir.cache.path().join("kelvin/digest.json");
    let read_cache = || serde_json::from_slice::<Value>(&fs::read(&cache_file).unwrap()).unwrap();
    assert_eq!(digest(&[]), "");
    let first = &read_cache()["settings"];
    assert_eq!((first.as_array().unwrap().len(), &first[0]["kelvin"]), (1, &env!("CARGO_PKG_VERSION").into()));

    // What was found under other conditions stays, and is ignored here.
    let mut stale_cache = read_cache();
    stale_cache["settings"][0]["kernel"] = "0.0".into();
    fs::write(&cache_file, stale_cache.to_string()).unwrap();
    assert_eq!(digest(&[]), "");
    assert_eq!(read_cache()["settings"].as_array().unwrap().len(), 2);
    // With --rebuild-cache all that was known is forgotten.
    assert_eq!(digest(&["--rebuild-cache"]), "");
    assert_eq!(read_cache()["settings"].as_array().unwrap().len(), 1);

    // What cannot be read or kept is reported, and the digest is right all the same.
    fs::write(&cache_file, "nonsense").unwrap();
    assert!(digest(&[]).contains("digest.json was not written by kelvin"));
    assert_eq!(fs::read(&cache_file).unwrap(), b"nonsense", "what kelvin did not write is left alone");
    assert_eq!(digest(&["--rebuild-cache"]), "");
    fs::remove_dir_all(dir.cache.path().join("kelvin")).unwrap();
    fs::write(dir.cache.path().join("kelvin"), "a file in the place of the directory").unwrap();
    assert!(digest(&["--rebuild-cache"]).contains("cannot remember the fastest way to read these files: cannot make "));
}

#[test]
fn digest_list_is_checked() {
    let dir = TestDir::new();
    let names = ["first", "with space", "with\nbreak", "back\\slash"];
    for (number, name) in names.iter().enumerate() {
        dir.file(name, 1000 + number);
    }
    let list = dir.run(&[&["digest"], &names[..]].concat());
    fs::write(dir.path().join("list"), &list.stdout).unwrap();
    let check = |arguments: &[&str]| dir.run(&[&["digest", "--check"], arguments].concat());
    let check_output = check(&["list"]);
    assert_eq!(check_output.status.code(), Some(0), "{}", stderr(&check_output));
    // A name in the form in which the list has it, so that each has one line.
    assert_eq!(stdout(&check_output), "first: OK\nwith space: OK\n\\with\\nbreak: OK\n\\back\\\\slash: OK\n");
    let quiet_output = check(&["list", "--quiet"]);
    assert!(quiet_output.status.success() && quiet_output.stdout.is_empty() && quiet_output.stderr.is_empty());

    // One byte of one, and another one gone.
    fs::write(dir.path().join("first"), vec![1; 1000]).unwrap();
    fs::remove_file(dir.path().join("with space")).unwrap();
    let failed_output = check(&["list", "--quiet"]);
    assert_eq!(failed_output.status.code(), Some(1));
    assert_eq!(stdout(&failed_output), "first: FAILED\nwith space: FAILED open or read\n");
    assert!(stderr(&failed_output).contains("1 digest did not match"), "{}", stderr(&failed_output));

    fs::write(dir.path().join("list"), "no digest\n").unwrap();
    assert_refused(&check(&["list"]), &["list", "eight digits"]);
    assert_refused(&check(&["no-such-list"]), &["no-such-list"]);
}

#[test]
fn file_growing_during_digest_is_reported() {
    let dir = TestDir::new();
    // Longer at each attempt, until it is still being read when it is stopped.
    for gibibytes in [1u64, 4, 16] {
        let file = fs::File::create(dir.path().join("data")).unwrap();
        file.set_len(gibibytes << 30).unwrap();
        let child = dir.start(&["digest", "data"]);
        wait_until_at_work(&child, &dir.path().join("data"));
        signal(&child, "STOP");
        std::os::unix::fs::FileExt::write_all_at(&file, b"more", gibibytes << 30).unwrap();
        signal(&child, "CONT");
        let output = wait_for_output(child, &["digest", "data"]);
        // It ended before the file grew.
        if output.status.success() {
            continue;
        }
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
        assert!(
            stderr(&output).contains("data was changed while it was read: its size went from"),
            "{}",
            stderr(&output)
        );
        return;
    }
    panic!("the digest of 16 GiB was made in no time");
}
