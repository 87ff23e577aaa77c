//! `kelvin file run` on job files of fio, and `kelvin file mix`: what they mean is done and reported, what they must not do is refused, and nothing is left.

mod test_dir;

use std::fs;

use kelvin_testing::MissingRequirement;
use serde_json::Value;
use test_dir::{TestDir, assert_refused, assert_success, run_in_namespace, signal, stderr, stdout, wait_for_output};

/// A job of each direction in two stages, small enough to take no time.
const JOB_FILE: &str = "[global]\nsize=256k\nbs=4k\n[mixed]\nrw=randrw\nrwmixread=75\nnumjobs=2\ngroup_reporting\n\
                        [log]\nrw=write\nfilename=log\nfsync=8\nend_fsync=1\n[check]\nstonewall\nrw=write\nverify=crc32c\nloops=2\n";

fn dir_with(job_file: &str) -> TestDir {
    let dir = TestDir::new();
    fs::write(dir.path().join("job.fio"), job_file).unwrap();
    dir
}

#[test]
fn jobs_of_a_file_are_run_and_their_files_removed() {
    let dir = dir_with(JOB_FILE);
    let report = dir.json(&["file", "run", "job.fio"]);
    let [first, second] = report["stages"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let [mixed, log] = first["groups"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let requests = |group: &Value, direction: &str| group[direction]["requests"].as_u64().unwrap_or(0);
    assert_eq!((&mixed["name"], &mixed["threads"]), (&"mixed".into(), &2.into()));
    assert_eq!(requests(mixed, "read") + requests(mixed, "write"), 128);
    // Of 128 requests 96 are reads, with a deviation of 4.9.
    assert!((72..120).contains(&requests(mixed, "read")), "{mixed}");
    assert_eq!((requests(log, "write"), &log["flush"]["count"]), (64, &8.into()));
    assert!(log["flush"]["end"].as_u64().unwrap() > 0);
    assert_eq!(first["total"]["threads"], 3);
    let check = &second["groups"][0];
    assert_eq!((&check["verification"]["blocks"], &check["verification"]["mismatches"]), (&64.into(), &0.into()));
    for group in [mixed, log, check] {
        assert!(group["limit"]["text"].as_str().unwrap().len() > 10, "{group}");
        assert!(group["write"]["latency"]["p50"]["value"].as_f64().unwrap() > 0.0, "{group}");
    }
    assert_eq!((&report["files_made"], &report["files_kept"]), (&4.into(), &false.into()));
    assert_eq!(dir.names(), ["job.fio"]);
}

#[test]
fn jobs_of_a_command_line_of_fio_are_those_of_a_file() {
    let dir = TestDir::new();
    let line = [
        "--bs=4k",
        "--size",
        "64k",
        "--name=a",
        "--rw=randrw",
        "--rwmixread=50",
        "--norandommap",
        "--name=b",
        "--rw=write",
    ];
    let report = dir.json(&[&["file", "run"], &line[..], &["--fdatasync=4", "--eta=never"]].concat());
    let groups = report["stages"][0]["groups"].as_array().unwrap();
    let names: Vec<&str> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!((names, report.get("job_file")), (vec!["a", "b"], None));
    assert_eq!((&groups[1]["write"]["requests"], &groups[1]["flush"]["count"]), (&16.into(), &4.into()));
    assert!(groups[0]["settings"][0].as_str().unwrap().contains("with replacement"), "{report}");
    fs::write(dir.path().join("job.fio"), JOB_FILE).unwrap();
    for (arguments, expected) in [
        (&["--name=a", "--rw=trim"][..], "--rw=trim: it is one of"),
        (&["--rw=read"], "there is no job: begin one with --name=NAME"),
        (&["--name=a", "--zonemode=zbd"], "unexpected argument '--zonemode'"),
        (&["--bs=8k", "job.fio"], "--bs: options of jobs are given in place of a job file"),
        (&[], "give a job file, or a job as to fio"),
    ] {
        assert_refused(&dir.run(&[&["file", "run"], arguments].concat()), &[expected]);
    }
    assert_eq!(dir.names(), ["job.fio"]);
}

#[test]
fn kept_files_are_read_again_and_written_only_if_named() {
    let dir = dir_with("[a]\nrw=randwrite\nfilename=data\nsize=64k\nverify=md5\n");
    let text = dir.stdout_of(&["file", "run", "job.fio", "--keep"]);
    assert!(text.contains("1 file made and kept") && text.contains("16 blocks, all as written"), "{text}");
    assert_eq!(fs::metadata(dir.path().join("data")).unwrap().len(), 65536);
    assert_refused(&dir.run(&["file", "run", "job.fio"]), &["data exists, and is written only with --overwrite"]);
    assert_refused(
        &dir.run(&["file", "run", "job.fio", "--overwrite", "other"]),
        &["--overwrite: no job writes other"],
    );
    assert_success(&dir.run(&["file", "run", "job.fio", "--overwrite", "data"]));
    fs::write(dir.path().join("read.fio"), "[b]\nrw=read\nfilename=data\nverify=md5\n").unwrap();
    assert_success(&dir.run(&["file", "run", "read.fio"]));
    let mut content = fs::read(dir.path().join("data")).unwrap();
    content[3 * 4096 + 200] ^= 1;
    fs::write(dir.path().join("data"), content).unwrap();
    let output = dir.run(&["file", "run", "read.fio"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("1 of 16 blocks MISMATCH: offset 12288: the digest is"), "{}", stdout(&output));
}

#[test]
fn unknown_options_are_refused_with_file_and_line() {
    for (job_file, words) in [
        ("[a]\nrw=read\nzonemode=zbd\n", &["job.fio:3: kelvin file run does not know 'zonemode'; it knows: "][..]),
        ("[a]\nsize=1m\nioengine=mmap\n", &["job.fio:3: ioengine=mmap: it is one of"]),
        ("[a]\nrw=read\n", &["a.0.0 does not exist: a size is needed"]),
        ("[a]\nrw=read\nfilename=job.fio\n", &["job.fio has no block of 4096 bytes"]),
        ("[a]\nrw=read\nfilename=.\n", &["a directory"]),
        ("[a]\ndirect=1\nbs=1000\nsize=1m\n", &["bs"]),
        ("\u{feff}[a]\n", &["job.fio:1: "]),
    ] {
        let dir = dir_with(job_file);
        let output = dir.run(&["file", "run", "job.fio"]);
        if stderr(&output).contains("past the page cache:") {
            MissingRequirement::from_message(stderr(&output)).report_skip("blocks that direct requests cannot have");
            continue;
        }
        assert_refused(&output, words);
        assert_eq!(dir.names(), ["job.fio"]);
    }
    let dir = dir_with("");
    fs::write(dir.path().join("job.fio"), [0xff, 0xfe]).unwrap();
    assert_refused(&dir.run(&["file", "run", "job.fio"]), &["job.fio: a job file is text in UTF-8"]);
    fs::File::create(dir.path().join("job.fio")).unwrap().set_len(2 << 20).unwrap();
    assert_refused(&dir.run(&["file", "run", "job.fio"]), &["a job file has at most 1 MiB"]);
    assert_refused(&dir.run(&["file", "run", "none.fio"]), &["cannot open none.fio"]);
}

#[test]
fn interrupt_reports_what_was_measured_and_leaves_no_file() {
    let dir = dir_with(
        "[a]\nrw=write\nsize=64k\nioengine=psync\n[b]\nstonewall\nrw=randrw\nsize=64k\nruntime=600\ntime_based\n[c]\nstonewall\nrw=read\nsize=64k\n",
    );
    let arguments = ["file", "run", "job.fio", "--json"];
    let child = dir.start(&arguments);
    let is_running = || fs::read_dir(format!("/proc/{}/task", child.id())).is_ok_and(|threads| threads.count() > 1);
    assert!(test_dir::is_met_within(test_dir::HANG_TIMEOUT, || dir.names().len() == 4 && is_running()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    signal(&child, "INT");
    let output = wait_for_output(child, &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stages = report["stages"].as_array().unwrap();
    assert_eq!((&report["interrupted"], stages.len()), (&"SIGINT".into(), 2));
    assert_eq!(stages[0]["groups"][0]["write"]["requests"], 16);
    assert!(stages[1]["groups"][0]["seconds"].as_f64().unwrap() < 590.0);
    assert_eq!(dir.names(), ["job.fio"]);
}

#[test]
fn jobs_of_different_times_are_named_where_they_are_added() {
    let job = |name: &str, time: &str| format!("[{name}]\nrw=randread\nsize=64k\ntime_based\nruntime={time}\n");
    let notes = |other: &str| -> String {
        let dir = dir_with(&[job("a", "200ms"), job("b", other)].concat());
        dir.json(&["file", "run", "job.fio"])["stages"][0]["total"]["notes"].to_string()
    };
    assert!(notes("40ms").contains("jobs counted at different times, one of them for 40.0 ms"), "{}", notes("40ms"));
    assert!(!notes("200ms").contains("different times"), "{}", notes("200ms"));
}

#[test]
fn failure_of_a_later_stage_leaves_the_results_of_those_before() {
    let dir = dir_with("[a]\nrw=write\nsize=8k\n[b]\nstonewall\nrw=write\nfilename=data\n");
    fs::write(dir.path().join("data"), vec![0; 65536]).unwrap();
    // Files of at most 16 blocks of 512 bytes, which the second stage exceeds.
    let script = "ulimit -f 16; trap '' XFSZ; exec \"$0\" file run job.fio --overwrite data --json";
    let output = dir.command("sh", &["-c", script, test_dir::KELVIN]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("stage 2: cannot write 4096 bytes at 8192 of data"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stages"].as_array().unwrap().len(), 1);
    assert_eq!(report["stages"][0]["groups"][0]["write"]["requests"], 2);
    assert!(report["failure"].as_str().unwrap().starts_with("cannot write 4096 bytes"), "{report}");
}

#[test]
fn full_file_system_is_refused_and_left_empty() {
    let dir = dir_with("[a]\nrw=randrw\nsize=3m\ndirectory=small\n[b]\nrw=write\nsize=3m\ndirectory=small\n");
    fs::create_dir(dir.path().join("small")).unwrap();
    let output = run_in_namespace(
        &dir,
        "mount -t tmpfs -o size=4M none small || exit 9; \"$0\" file run job.fio; echo $?; ls -A small",
    );
    if output.status.code() == Some(9) {
        return MissingRequirement::from_message(stderr(&output)).report_skip("a full file system");
    }
    assert_eq!(stdout(&output), "2\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("small/b.0.0 cannot have 3145728 bytes"), "{}", stderr(&output));
}

/// A loop device over a file of this size; detached when dropped.
struct LoopDevice(String);

impl LoopDevice {
    /// `None`, with the reason printed, where there is none.
    fn over(dir: &TestDir, bytes: u64) -> Option<Self> {
        fs::File::create(dir.path().join("image")).unwrap().set_len(bytes).unwrap();
        let output = dir.command("losetup", &["--find", "--show", "image"]).output().unwrap();
        if !output.status.success() {
            MissingRequirement::privilege(stderr(&output)).report_skip("jobs on a block device");
            return None;
        }
        Some(Self(stdout(&output).trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn device_is_written_only_if_named_and_unused() {
    let dir = dir_with("");
    let Some(LoopDevice(device)) = &LoopDevice::over(&dir, 16 << 20) else { return };
    let job = |options: &str| {
        fs::write(dir.path().join("job.fio"), format!("[a]\nfilename={device}\nsize=2m\noffset=1m\n{options}")).unwrap()
    };
    job("rw=randread\ndirect=1\n");
    let report = dir.json(&["file", "run", "job.fio"]);
    assert_eq!(report["stages"][0]["groups"][0]["read"]["requests"], 512);
    assert_eq!(format!("/dev/{}", report["stages"][0]["devices"][0]["name"].as_str().unwrap()), *device);
    assert_refused(&dir.run(&["file", "run", "job.fio", "--destroy", device]), &["--destroy: no job writes", device]);
    job("rw=write\nverify=xxhash\ndirect=1\n");
    let refusals = [&[][..], &["--overwrite", device], &["--destroy", "/dev/null"]];
    let words =
        ["is written only with --destroy", "is written only with --destroy", "--destroy: no job writes /dev/null"];
    for (options, word) in refusals.into_iter().zip(words) {
        assert_refused(&dir.run(&[&["file", "run", "job.fio"], options].concat()), &[word]);
    }
    assert_eq!(fs::read(dir.path().join("image")).unwrap(), vec![0; 16 << 20], "nothing was written");
    let report = dir.json(&["file", "run", "job.fio", "--destroy", device, "--trim"]);
    assert_eq!(report["stages"][0]["groups"][0]["verification"]["blocks"], 512);
    let content = fs::read(dir.path().join("image")).unwrap();
    assert!(content[..1 << 20].iter().chain(&content[3 << 20..]).all(|&byte| byte == 0), "only its part was written");
    let script = format!(
        "mkfs.ext4 -q {device} && mkdir at && mount {device} at || exit 9; \"$0\" file run job.fio --destroy {device}; echo $?; umount at"
    );
    let output = run_in_namespace(&dir, &script);
    if output.status.code() == Some(9) {
        return MissingRequirement::from_message(stderr(&output)).report_skip("a device that is mounted");
    }
    assert_eq!(stdout(&output), "2\n");
    assert!(stderr(&output).contains("is in use: it is mounted at"), "{}", stderr(&output));
}

#[test]
fn mix_by_flags_is_a_job_of_one_file() {
    let dir = TestDir::new();
    fn mix<'a>(options: &[&'a str]) -> Vec<&'a str> {
        [&["file", "mix", "data", "--seconds", "50ms"], options].concat()
    }
    let report = dir.json(&mix(&[
        "--size",
        "64k",
        "--rwmixread",
        "40",
        "--bs",
        "8k",
        "--ioengine",
        "psync",
        "--numjobs",
        "2",
        "--keep",
    ]));
    let group = &report["stages"][0]["groups"][0];
    assert_eq!((&group["threads"], &report["files_made"], &report["files_kept"]), (&2.into(), &1.into(), &true.into()));
    assert!(
        group["settings"][0].as_str().unwrap().starts_with("random reads 40 %, writes 60 %, blocks of 8 KiB, psync"),
        "{group}"
    );
    assert!((group["seconds"].as_f64().unwrap() - 0.05).abs() < 1e-6);
    assert_refused(&dir.run(&mix(&[])), &["data exists, and is written only with --overwrite"]);
    let reads = dir.json(&mix(&["--read", "100", "--ioengine", "psync", "--rate_iops", "100"]));
    assert!(reads["stages"][0]["groups"][0]["read"]["response"]["p50"]["value"].as_f64().unwrap() > 0.0);
    let written = dir.json(&mix(&[
        "--read",
        "0",
        "--engine",
        "psync",
        "--overwrite",
        "--verify",
        "--sequential",
        "--fsync",
        "9",
    ]));
    let group = &written["stages"][0]["groups"][0];
    assert_eq!(group["verification"]["mismatches"], 0);
    assert!(group.get("read").is_none() && group["verification"]["blocks"].as_u64().unwrap() > 0);
    for (options, words) in [
        (&["--depth", "4", "--engine", "sync"][..], "--depth 4: sync has one request in flight"),
        (&["--read", "0", "--block", "32", "--verify"], "--verify: blocks have at least 64 bytes"),
        (&["--read", "100", "--offset", "1M"], "data has no block of 4096 bytes"),
        (&["--read", "100", "--size", "1M"], "data has 65536 bytes, and the job needs 1048576"),
        (&["--depth", "4096", "--block", "1M"], "--depth: buffers"),
        (&["--read", "101"], "--read"),
    ] {
        assert_refused(&dir.run(&mix(options)), &[words]);
    }
    assert_eq!(dir.names(), ["data"]);
}
