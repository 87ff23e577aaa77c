//! `kelvin why`: what it says of real figures, and that nothing of it stays.

mod place;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kelvin_file::group::{Controller, Group};
use kelvin_testing::Missing;
use place::{KELVIN, PATIENCE, Place};
use serde_json::Value;

/// Held by whatever plants a cause or measures one: another planted one beside it would be part of the figure.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An explanation of a figure, as JSON, and what it says of each cause.
fn explained(place: &Place, arguments: &[&str]) -> Value {
    let output = place.run(&[&["why"], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let amount = |share: &Value| share["amount"]["value"].as_f64().unwrap();
    let parts: f64 = explanation["parts"].as_array().unwrap().iter().map(amount).sum();
    let (whole, left) = (explanation["whole"]["value"].as_f64().unwrap(), amount(&explanation["not_explained"]));
    assert!((parts + left - whole).abs() < 1e-6 * whole, "{parts} and {left} are not {whole}");
    explanation
}

/// The verdict on a cause: a word, or the reason why it was not tried.
fn verdict(explanation: &Value, cause: &str) -> String {
    let causes = explanation["causes"].as_array().unwrap();
    let found = causes.iter().find(|one| one["id"] == cause);
    found.map_or_else(
        || "absent".into(),
        |one| one["verdict"].as_str().map_or(one["verdict"].to_string(), str::to_owned),
    )
}

#[test]
fn a_call_that_wakes_nobody_has_no_cause_of_waking() {
    let place = Place::new();
    let explanation = explained(&place, &["os.syscall.null", "call=getppid", "--budget", "minimum", "--rounds", "4"]);
    assert_eq!(explanation["metric"]["id"], "os.syscall.null");
    assert_eq!(verdict(&explanation, "idle_wake"), "absent");
    assert_eq!(explanation["passes"], 4);
}

#[test]
fn a_round_trip_between_two_cpus_is_explained_or_said_not_to_be() {
    let _alone = alone();
    if kelvin_sys::cpu::allowed().unwrap().len() < 2 {
        Missing::machine("this process may use one CPU").skips("why a round trip takes so long");
        return;
    }
    let place = Place::new();
    let asked = ["net.rtt.tcp", "placement=two_cpus", "--budget", "minimum", "--rounds", "8"];
    let explanation = explained(&place, &asked);
    assert_ne!(verdict(&explanation, "idle_wake"), "absent");
    let first = &explanation["causes"][0]["evidence"][0];
    assert!(first["amount"]["value"].is_number(), "{first}");
    // A switch on one CPU was looked at under every control.
    assert_eq!(first["bystander"]["metric"], "os.switch.process.pipe");
}

/// The share of a cause in percent, if it is shown.
fn share(explanation: &Value, cause: &str) -> Option<f64> {
    let left = &explanation["not_explained"]["amount"];
    let (low, value, high) = (left["low"].as_f64(), left["value"].as_f64(), left["high"].as_f64());
    assert!(low <= value && value <= high, "{left}");
    assert_eq!(explanation["is_explained"], low <= Some(0.0) && high >= Some(0.0), "{left}");
    let parts = explanation["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["of"]["cause"] == cause)?;
    Some(100.0 * part["share"]["value"].as_f64().unwrap())
}

/// Holds that a cause is named, with more than so many percent. What else the machine does can leave it undecided, which is an honest
/// answer: then it is asked again, twice at most. A wrong one is never made up for.
fn assert_named(cause: &str, least: f64, explain: impl Fn() -> Value) -> Value {
    const OPEN: [&str; 3] = ["undecided", "mechanisms_disagree", "void"];
    let mut explanation = explain();
    for _ in 0..2 {
        if OPEN.contains(&verdict(&explanation, cause).as_str()) {
            explanation = explain();
        }
    }
    assert_eq!(verdict(&explanation, cause), "shown", "{explanation:#}");
    assert!(share(&explanation, cause).unwrap() > least, "{explanation:#}");
    explanation
}

/// A tiny socket buffer makes a local stream many times slower whatever the machine: both ends wait for each other after each few
/// kilobytes. Congestion control has no share in that.
#[test]
fn a_tiny_socket_buffer_is_named_and_nothing_else() {
    let _alone = alone();
    let place = Place::new();
    let stream = ["net.bandwidth.tcp", "placement=same_cpu", "streams=1", "message=64KiB", "--socket-buffers", "4k"];
    let asked = [&stream[..], &["--budget", "minimum", "--rounds", "8"]].concat();
    let explanation = assert_named("socket_buffers", 50.0, || explained(&place, &asked));
    assert_eq!(share(&explanation, "congestion_control"), None, "{explanation:#}");
    assert_eq!(verdict(&explanation, "idle_wake"), "absent");
}

/// Files on a disk against files in memory, and files that are in memory already: what cannot be taken away is not tried.
#[test]
fn a_file_system_on_a_disk_is_tried_and_one_in_memory_is_not() {
    let _alone = alone();
    let place = Place::new();
    let create = ["file.metadata.create", "files=100", "--budget", "minimum", "--rounds", "8"];
    let on_disk = explained(&place, &create);
    assert!(["shown", "ruled_out", "undecided"].contains(&verdict(&on_disk, "file_system").as_str()), "{on_disk:#}");
    let Some(memory) = kelvin_testing::in_memory("why of files in memory") else { return };
    let scratch = tempfile::tempdir_in(memory).unwrap();
    let in_memory = explained(&place, &[&create[..], &["--dir", scratch.path().to_str().unwrap()]].concat());
    assert!(verdict(&in_memory, "file_system").contains("in memory already (tmpfs)"), "{in_memory:#}");
    assert_eq!(share(&in_memory, "file_system"), None);
}

/// Touches of a mapped file far apart, each of which makes the kernel read what nobody asks for.
#[test]
fn read_ahead_is_named() {
    let _alone = alone();
    let touches = ["mem.fault.major", "read_ahead=on", "step_bytes=16MiB", "--budget", "minimum", "--rounds", "8"];
    assert_named("read_ahead", 25.0, || explained(&Place::new(), &touches));
}

/// A twentieth of a CPU, and an operation that takes longer than its part of a period: it stands still in each, whatever else runs.
#[test]
fn a_quota_is_named() {
    let _alone = alone();
    let group = match Group::make(Controller::Cpu) {
        Ok(group) => group,
        Err(error) => return Missing::right(error).skips("why a pipe under a quota is slow"),
    };
    group.limit_cpu(1000, Duration::from_millis(20)).unwrap();
    let place = Place::new();
    let asked = "os.ipc.pipe.bandwidth placement=same_cpu message=64KiB --budget minimum --rounds 8 --json";
    let entering = format!("echo 0 > {} && exec {KELVIN} why {asked}", group.door().display());
    assert_named("group_quota", 25.0, || {
        let output = place.command("/bin/sh", &["-c", &entering]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    });
}

/// A busy loop on the CPU that probes run on, and an operation that takes longer than its turns.
#[test]
fn other_work_on_the_cpu_is_named() {
    let _alone = alone();
    if !kelvin_testing::is_root() {
        return Missing::right("real-time priority needs CAP_SYS_NICE").skips("why a fork beside other work is slow");
    }
    let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = Ended(&stop);
        scope.spawn(|| {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(());
            }
        });
        let fork = ["os.process.fork_rss", "pages=base", "resident=256MiB", "--budget", "minimum", "--rounds", "6"];
        assert_named("other_work", 25.0, || explained(&Place::new(), &fork));
    });
}

/// Ends a loop, whatever becomes of its test.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A set whose pages the TLBs hold waits for no walk.
#[test]
fn translation_has_no_share_in_a_small_set() {
    let _alone = alone();
    let explanation =
        explained(&Place::new(), &["mem.latency", "pages=base", "bytes=32KiB", "--budget", "minimum", "--rounds", "8"]);
    assert_eq!(share(&explanation, "translation"), None, "{explanation:#}");
    assert!(
        explanation["causes"][0]["evidence"][0]["without_because"]
            .as_str()
            .unwrap()
            .contains("smaller than a huge page")
    );
}

#[test]
fn a_table_fits_eighty_columns() {
    let place = Place::new();
    let output = place.run(&["why", "os.syscall.null", "call=getppid", "--budget", "minimum", "--rounds", "4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("os.syscall.null call=getppid\n") && text.contains("not explained"), "{text}");
}

#[test]
fn the_causes_are_listed() {
    let output = Place::new().run(&["why", "--causes"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("waking an idle CPU (idle_wake)") && text.contains("net.rtt.tcp"), "{text}");
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing() {
    let place = Place::new();
    let mut child = place.start(&["why", "net.rtt.tcp", "placement=same_cpu", "--budget", "60s"]);
    // Its scratch directory is made once it watches for signals.
    let begun = Instant::now();
    let entries =
        || std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    while entries().is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let begun = Instant::now();
    // With a figure the status is 1, without one it is 2.
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{status}");
    assert!(begun.elapsed() < PATIENCE / 2 && entries().is_empty(), "{:?}", entries());
}
