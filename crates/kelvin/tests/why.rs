//! `kelvin why`: its explanations of real figures, and that nothing of it stays.

mod test_dir;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_sys::store_bypass;
use kelvin_testing::MissingRequirement;
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};
use serde_json::Value;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, wait_within};

/// Held by each test that plants a cause or measures one: another planted cause at that time would be part of the figure.
static CPU_LOCK: Mutex<()> = Mutex::new(());

fn lock_cpus() -> MutexGuard<'static, ()> {
    CPU_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than the longest time of a figure's causes, ten times 20 s, and than what comes before and after it on a busy machine.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(400);

/// An explanation of a figure, as JSON, and its verdict on each cause.
fn explain_json(dir: &TestDir, arguments: &[&str]) -> Value {
    let arguments = &[&["why"], arguments, &["--json"]].concat();
    let output = wait_within(EXPLANATION_TIMEOUT, dir.start(arguments), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let amount = |share: &Value| share["amount"]["value"].as_f64().unwrap();
    let parts: f64 = explanation["parts"].as_array().unwrap().iter().map(amount).sum();
    let (total, unexplained) = (explanation["whole"]["value"].as_f64().unwrap(), amount(&explanation["not_explained"]));
    assert!((parts + unexplained - total).abs() < 1e-6 * total, "{parts} and {unexplained} are not {total}");
    explanation
}

/// The verdict on a cause: a word, or the reason why it was not tried.
fn verdict(explanation: &Value, cause: &str) -> String {
    let causes = explanation["causes"].as_array().unwrap();
    let entry = causes.iter().find(|entry| entry["id"] == cause);
    entry.map_or_else(
        || "absent".into(),
        |entry| entry["verdict"].as_str().map_or(entry["verdict"].to_string(), str::to_owned),
    )
}

#[test]
fn call_without_wakeup_has_no_wakeup_cause() {
    let dir = TestDir::new();
    let explanation = explain_json(&dir, &["os.syscall.null", "call=getppid", "--budget", "minimum", "--rounds", "4"]);
    assert_eq!(explanation["metric"]["id"], "os.syscall.null");
    assert_eq!(verdict(&explanation, "idle_wake"), "absent");
    assert_eq!(explanation["passes"], 4);
}

#[test]
fn two_cpu_round_trip_is_explained() {
    let _guard = lock_cpus();
    if kelvin_sys::cpu::affinity().unwrap().len() < 2 {
        MissingRequirement::machine("this process may use one CPU").report_skip("why a round trip takes so long");
        return;
    }
    let dir = TestDir::new();
    let arguments = ["net.rtt.tcp", "placement=two_cpus", "--budget", "minimum", "--rounds", "4"];
    let explanation = explain_json(&dir, &arguments);
    assert_ne!(verdict(&explanation, "idle_wake"), "absent");
    let first = &explanation["causes"][0]["evidence"][0];
    assert!(first["amount"]["value"].is_number(), "{first}");
    // A switch on one CPU was looked at under every control.
    assert_eq!(first["negative_control"]["metric"], "os.switch.cost");
}

/// The share of a cause in percent, if it is shown.
fn share(explanation: &Value, cause: &str) -> Option<f64> {
    let unexplained = &explanation["not_explained"]["amount"];
    let (low, value, high) = (unexplained["low"].as_f64(), unexplained["value"].as_f64(), unexplained["high"].as_f64());
    assert!(low <= value && value <= high, "{unexplained}");
    assert_eq!(explanation["is_explained"], low <= Some(0.0) && high >= Some(0.0), "{unexplained}");
    let parts = explanation["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["kind"]["cause"] == cause)?;
    Some(100.0 * part["share"]["value"].as_f64().unwrap())
}

/// The shares of a cause whose planting fixes none.
const ANY_SHARE: RangeInclusive<f64> = 0.0..=100.0;
/// Points of a share that decide nothing.
const TOLERANCE_POINTS: f64 = 5.0;

/// Holds that a cause is named, with the share in percent that its planting fixes, if it does: one of these lies no more than 5 points
/// outside the interval. (How large the others are depends on the machine: `bench/causes.py` holds them against what two measurements find.)
/// What else the machine does can leave a cause undecided, which is an honest answer: then it is asked again, twice at most. A wrong one is
/// never made up for.
fn assert_named(cause: &str, planted: RangeInclusive<f64>, mut explain: impl FnMut() -> Value) -> Value {
    const UNDECIDED_VERDICTS: [&str; 3] = ["undecided", "mechanisms_disagree", "invalid"];
    let mut explanation = explain();
    for _ in 0..2 {
        if UNDECIDED_VERDICTS.contains(&verdict(&explanation, cause).as_str()) {
            explanation = explain();
        }
    }
    assert_eq!(verdict(&explanation, cause), "shown", "{explanation:#}");
    assert!(share(&explanation, cause).is_some(), "{explanation:#}");
    let parts = explanation["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["kind"]["cause"] == cause).unwrap();
    let [low, high] = ["low", "high"].map(|end| 100.0 * part["share"][end].as_f64().unwrap());
    let is_within_tolerance = low - TOLERANCE_POINTS <= *planted.end() && high + TOLERANCE_POINTS >= *planted.start();
    assert!(is_within_tolerance, "{cause}: {low} to {high} % and not {planted:?} %: {explanation:#}");
    explanation
}

/// Holds that none of these causes is named.
fn assert_not_named(explanation: &Value, causes: &[&str]) {
    for cause in causes {
        assert_eq!(share(explanation, cause), None, "{cause}: {explanation:#}");
    }
}

/// The least that is asked of an experiment here.
const SHORT_OPTIONS: [&str; 4] = ["--budget", "minimum", "--rounds", "8"];
/// For whether something is tried at all.
const SHORTEST_OPTIONS: [&str; 4] = ["--budget", "minimum", "--rounds", "4"];

/// An explanation by a shell that does something first, such as entering a group; `None`, with a message, where it has not the right.
fn explain_after(dir: &TestDir, first: &str, arguments: &str, rounds: [&str; 4]) -> Option<Value> {
    let script = format!("{first} || exit 77; exec {KELVIN} why {arguments} {} --json", rounds.join(" "));
    let output = dir.command("unshare", &["--net", "sh", "-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || message.starts_with("unshare:") {
        MissingRequirement::privilege(format!("a network namespace (root): {message}"))
            .report_skip(format!("why of {arguments}"));
        return None;
    }
    assert!(output.status.success(), "{arguments}: {message}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A tiny socket buffer makes a local stream many times slower on any machine: both ends wait for each other after each few
/// kilobytes. Congestion control has no share in that.
#[test]
#[ignore = "make causes"]
fn tiny_socket_buffer_is_the_only_cause() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let stream =
        [&["net.bandwidth.tcp", "placement=same_cpu", "streams=1", "message=64KiB"][..], &SHORT_OPTIONS].concat();
    let explain_stream = || explain_json(&dir, &[&stream[..], &["--socket-buffers", "4k"]].concat());
    let explanation = assert_named("socket_buffers", ANY_SHARE, explain_stream);
    assert_not_named(&explanation, &["congestion_control"]);
    assert_eq!(verdict(&explanation, "idle_wake"), "absent");
}

/// Like `tiny_socket_buffer_is_the_only_cause`, over Unix sockets, whose buffers the kernel never adjusts.
#[test]
#[ignore = "make causes"]
fn tiny_unix_socket_buffer_is_named() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let stream = [&["net.bandwidth.unix", "placement=same_cpu", "message=64KiB"][..], &SHORT_OPTIONS].concat();
    let explain_stream = || explain_json(&dir, &[&stream[..], &["--socket-buffers", "4k"]].concat());
    let explanation = assert_named("socket_buffers", ANY_SHARE, explain_stream);
    assert_eq!(verdict(&explanation, "congestion_control"), "absent");
}

/// A network of its own, whose system has a congestion control that paces; the same network with one that does
/// not.
#[test]
#[ignore = "make causes"]
fn pacing_congestion_control_is_named() {
    let _guard = lock_cpus();
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    // A network of its own may have the kernel's default and what everybody may choose, of which reno is one everywhere.
    if !["bbr", "reno"].iter().all(|name| available.split_whitespace().any(|control| control == *name)) {
        return MissingRequirement::machine(format!("the kernel has {}", available.trim()))
            .report_skip("why a stream under BBR is slow");
    }
    let dir = TestDir::new();
    let explain_under = |control: &str| {
        let first = format!("ip link set lo up && echo {control} > /proc/sys/net/ipv4/tcp_congestion_control");
        explain_after(
            &dir,
            &first,
            "net.bandwidth.tcp.system placement=same_cpu message=64KiB --realtime",
            SHORT_OPTIONS,
        )
    };
    let Some(first) = explain_under("bbr") else { return };
    let mut first = Some(first);
    // Buffers of a fixed size take much of it away too, so that they are no bystander.
    assert_named("congestion_control", ANY_SHARE, || first.take().unwrap_or_else(|| explain_under("bbr").unwrap()));
    assert_not_named(&explain_under("reno").unwrap(), &["congestion_control"]);
}

/// Zero copy over loopback, where the kernel copies: small messages, of which pins and reports are much. At real-time priority both ends
/// take turns in one order under any other load.
#[test]
#[ignore = "make causes"]
fn copying_zero_copy_is_named() {
    let _guard = lock_cpus();
    if !kelvin_testing::is_root() {
        return MissingRequirement::privilege("real-time priority needs CAP_SYS_NICE")
            .report_skip("why a stream by zero copy is slow");
    }
    let dir = TestDir::new();
    let explain_way = |argument: &str| {
        let arguments = ["net.bandwidth.tcp.way", argument, "placement=same_cpu", "message=4KiB", "--realtime"];
        explain_json(&dir, &[&arguments[..], &SHORT_OPTIONS].concat())
    };
    let [zero_copy, send] = ["way=zerocopy", "way=send"].map(|argument| move || explain_way(argument));
    let explanation = assert_named("zero_copy", ANY_SHARE, zero_copy);
    assert_not_named(&explanation, &["congestion_control", "socket_buffers"]);
    assert_eq!(verdict(&send(), "zero_copy"), "absent");
}

/// Small blocks from the device, each of which takes a hundred times as long as from memory.
#[test]
#[ignore = "make causes"]
fn device_access_is_named_unless_cached() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let read = |cache: &str, rounds: [&str; 4]| {
        explain_json(&dir, &[&["file.blocksize.read", cache, "block=4KiB"][..], &rounds].concat())
    };
    let explanation = assert_named("cold_cache", ANY_SHARE, || read("cache=direct", SHORT_OPTIONS));
    assert_eq!(verdict(&explanation, "read_ahead"), "absent");
    assert_eq!(verdict(&read("cache=cached", SHORTEST_OPTIONS), "cold_cache"), "absent");
}

/// Files in a directory of which every call is answered by another process, against files in memory; and
/// files that are in memory already: what cannot be taken away is not tried.
#[test]
#[ignore = "make causes"]
fn slow_file_system_is_named() {
    let _guard = lock_cpus();
    let Some(memory) = kelvin_testing::memory_dir("why of files in memory") else { return };
    let scratch = tempfile::tempdir_in(memory).unwrap();
    let dir = TestDir::new();
    let create = |directory: &Path| {
        let create = ["file.metadata.create", "files=100", "--dir", directory.to_str().unwrap()];
        explain_json(&dir, &[&create[..], &SHORT_OPTIONS].concat())
    };
    let in_memory = create(scratch.path());
    assert!(verdict(&in_memory, "file_system").contains("in memory already (tmpfs)"), "{in_memory:#}");
    assert_not_named(&in_memory, &["file_system"]);
    let mounted = match MountedFs::new(FileSystemKind::Bindfs, dir.path()) {
        Ok(slow) => slow,
        Err(missing) => return missing.report_skip("why files of a slow file system take so long"),
    };
    assert_named("file_system", ANY_SHARE, || create(&mounted.path()));
}

/// A flush takes many times as long as a write into memory, on every disk.
#[test]
#[ignore = "make causes"]
fn flush_is_named_only_where_present() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    if kelvin_sys::fs::kind(dir.path()).unwrap().is_in_memory() {
        return MissingRequirement::machine("the scratch directory is in memory")
            .report_skip("why a durable write takes so long");
    }
    let write =
        |by: &str, rounds: [&str; 4]| explain_json(&dir, &[&["file.sync", "place=in_place", by][..], &rounds].concat());
    assert_named("flush", ANY_SHARE, || write("by=fsync", SHORT_OPTIONS));
    assert_eq!(verdict(&write("by=none", SHORTEST_OPTIONS), "flush"), "absent");
}

/// A fork copies an entry for each of 16,384 base pages, or 32 page tables of huge ones.
#[test]
#[ignore = "make causes"]
fn many_page_tables_are_named() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let fork = |resident: &str, rounds: [&str; 4]| {
        explain_json(&dir, &[&["os.process.fork_rss", "pages=base", resident][..], &rounds].concat())
    };
    let explain_base = || fork("resident=64MiB", SHORT_OPTIONS);
    let first = explain_base();
    if verdict(&first, "page_tables") == "one_mechanism" {
        return MissingRequirement::machine("the kernel provides no huge pages")
            .report_skip("why a fork of a large process is slow");
    }
    let mut first = Some(first);
    assert_named("page_tables", ANY_SHARE, || first.take().unwrap_or_else(explain_base));
    let small_fork = fork("resident=1MiB", SHORTEST_OPTIONS);
    assert_not_named(&small_fork, &["page_tables"]);
    assert!(small_fork["causes"].to_string().contains("smaller than a huge page"), "{small_fork:#}");
}

#[test]
#[ignore = "make causes"]
fn fresh_memory_is_tried_for_first_touch_only() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let options = ["--budget", "minimum", "--rounds", "4"];
    let explanation = explain_json(&dir, &[&["mem.first_touch"][..], &options].concat());
    let cause = explanation["causes"].as_array().unwrap().iter().find(|entry| entry["id"] == "fresh_memory").unwrap();
    let evidence = cause["evidence"].as_array().unwrap();
    // How much it takes is this machine's; both ways were tried.
    assert!(evidence.len() == 2 && evidence.iter().all(|entry| entry["amount"]["value"].is_number()), "{cause:#}");
    let second_touch = explain_json(&dir, &[&["mem.first_touch.again"][..], &options].concat());
    assert_eq!(verdict(&second_touch, "fresh_memory"), "absent");
}

/// The kernel's default slack can be taken away, and none cannot.
#[test]
#[ignore = "make causes"]
fn timer_slack_is_tried_where_present() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let sleep = |slack: &str| explain_json(&dir, &[&["os.timer.wakeup", slack][..], &SHORTEST_OPTIONS].concat());
    let default_slack = sleep("slack=50000");
    let causes = default_slack["causes"].as_array().unwrap();
    let slack = causes.iter().find(|cause| cause["id"] == "timer_slack").unwrap();
    assert!(slack["evidence"][0]["amount"]["value"].is_number(), "{slack:#}");
    assert!(verdict(&sleep("slack=1"), "timer_slack").contains("no timer slack already"));
}

/// Where it may, it holds the other CPUs and watches a chain of adds meanwhile; else it reports what that needs.
#[test]
#[ignore = "make causes"]
fn holding_cpus_works_or_names_requirement() {
    let _guard = lock_cpus();
    let arguments = [&["mem.latency", "pages=base", "bytes=32KiB"][..], &SHORTEST_OPTIONS].concat();
    let explanation = explain_json(&TestDir::new(), &arguments);
    let causes = explanation["causes"].as_array().unwrap();
    let neighbour = causes.iter().find(|cause| cause["id"] == "neighbour").unwrap();
    let evidence = &neighbour["evidence"][0];
    if kelvin_testing::is_root() && kelvin_sys::cpu::affinity().unwrap().len() > 1 {
        assert!(evidence["amount"]["value"].is_number(), "{neighbour:#}");
        assert_eq!(evidence["negative_control"]["metric"], "cpu.latency.add");
    } else {
        assert!(evidence["missing_reason"].is_string(), "{neighbour:#}");
    }
}

/// Touches of a mapped file far apart, each of which makes the kernel read what nobody asks for.
#[test]
#[ignore = "make causes"]
fn readahead_is_named() {
    let _guard = lock_cpus();
    let dir = TestDir::new();
    let touches = [&["mem.fault.major", "read_ahead=on", "step_bytes=16MiB"][..], &SHORT_OPTIONS].concat();
    assert_named("read_ahead", ANY_SHARE, || explain_json(&dir, &touches));
}

/// A tenth of a CPU, and an operation that takes several times its part of a period: it stands still for nine tenths under any load.
#[test]
#[ignore = "make causes"]
fn cpu_quota_is_named() {
    let _guard = lock_cpus();
    let group = match Cgroup::create(Controller::Cpu) {
        Ok(group) => group,
        Err(error) => {
            return MissingRequirement::privilege(error).report_skip("why a new file under a quota takes so long");
        }
    };
    group.limit_cpu(2000, Duration::from_millis(20)).unwrap();
    let dir = TestDir::new();
    let enter_group = format!("echo 0 > {}", group.procs_file().display());
    let file = || explain_after(&dir, &enter_group, "file.new filled=write block=1MiB bytes=16MiB", SHORT_OPTIONS);
    let Some(first) = file() else { return };
    let mut first = Some(first);
    let explanation = assert_named("group_quota", 90.0..=90.0, || first.take().unwrap_or_else(|| file().unwrap()));
    assert_eq!(verdict(&explanation, "memory_limit"), "absent");
}

/// A file read in order through a page cache that may not hold half of it; and pages of which all fit.
#[test]
#[ignore = "make causes"]
fn memory_limit_is_tried_where_reached() {
    let _guard = lock_cpus();
    let group = match Cgroup::create(Controller::Memory) {
        Ok(group) => group,
        Err(error) => {
            return MissingRequirement::privilege(error).report_skip("why reads under a memory limit take so long");
        }
    };
    let dir = TestDir::new();
    let enter_group = format!("echo 0 > {}", group.procs_file().display());
    group.limit_memory(1 << 30).unwrap();
    let Some(unlimited) = explain_after(&dir, &enter_group, "mem.fault.minor kind=anonymous", SHORTEST_OPTIONS) else {
        return;
    };
    assert!(verdict(&unlimited, "memory_limit").contains("never met"), "{unlimited:#}");
    group.limit_memory(32 << 20).unwrap();
    // How much it takes depends on what the kernel reclaims, and more passes than this would take minutes.
    let read = "file.seqrand order=sequential cache=uncached bytes=64MiB";
    let limited_explanation = explain_after(&dir, &enter_group, read, SHORTEST_OPTIONS).unwrap();
    assert!(
        ["shown", "undecided"].contains(&verdict(&limited_explanation, "memory_limit").as_str()),
        "{limited_explanation:#}"
    );
    assert_eq!(verdict(&explain_after(&dir, "true", read, SHORTEST_OPTIONS).unwrap(), "memory_limit"), "absent");
}

/// The mitigation of speculative store bypass, which a thread has and its children inherit. A call that looks at a hundred descriptors stores
/// and loads at each. By force it cannot be undone, and without it there is nothing to be tried.
#[test]
#[ignore = "make causes"]
fn disabled_store_bypass_is_named() {
    let _alone = lock_cpus();
    if let Err(error) = store_bypass::allow() {
        return MissingRequirement::machine(format!("a process cannot choose whether loads bypass stores: {error}"))
            .report_skip("why a call is slow under the mitigation of speculative store bypass");
    }
    let select = |rounds: [&str; 4]| {
        explain_json(&TestDir::new(), &[&["os.syscall.select", "descriptors=100"][..], &rounds].concat())
    };
    assert_eq!(verdict(&select(SHORTEST_OPTIONS), "store_bypass"), "absent");
    let in_thread_with = |by_force: bool, explain: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                store_bypass::disable(by_force).unwrap();
                explain();
            });
            thread.join().unwrap();
        });
    };
    in_thread_with(false, &|| {
        let explanation = assert_named("store_bypass", ANY_SHARE, || select(SHORT_OPTIONS));
        assert_not_named(&explanation, &["group_quota", "memory_limit"]);
    });
    in_thread_with(true, &|| {
        let forced = select(SHORTEST_OPTIONS);
        assert!(verdict(&forced, "store_bypass").contains("disabled by force"), "{forced:#}");
    });
}

/// A busy loop on the CPU that probes run on, with nine times the weight of an ordinary program (sched_prio_to_weight of -10 and 0: 9548
/// and 1024), next to an operation that takes longer than its turns. It takes 90 % of the time, and all that else runs there takes more.
#[test]
#[ignore = "make causes"]
fn competing_cpu_load_is_named() {
    let _guard = lock_cpus();
    if !kelvin_testing::is_root() {
        return MissingRequirement::privilege("real-time priority needs CAP_SYS_NICE")
            .report_skip("why a fork beside other work is slow");
    }
    let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_guard = StopOnDrop(&stop);
        let (renice_sender, renice_receiver) = std::sync::mpsc::channel();
        let stop = &stop;
        scope.spawn(move || {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            let thread_path = std::fs::read_link("/proc/thread-self").unwrap();
            let thread_id = thread_path.file_name().unwrap().to_str().unwrap().to_owned();
            renice_sender.send(Command::new("renice").args(["-n", "-10", "-p", &thread_id]).output().unwrap()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(());
            }
        });
        let renice = renice_receiver.recv().unwrap();
        assert!(renice.status.success(), "{}", String::from_utf8_lossy(&renice.stderr));
        let fork = [&["os.process.fork_rss", "pages=base", "resident=64MiB"][..], &SHORTEST_OPTIONS].concat();
        assert_named("other_work", 90.0..=100.0, || explain_json(&TestDir::new(), &fork));
    });
}

/// Ends a loop, even if its test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A set whose pages the TLBs hold waits for no walk.
#[test]
#[ignore = "make causes"]
fn small_working_set_has_no_tlb_share() {
    let _guard = lock_cpus();
    let explanation = explain_json(
        &TestDir::new(),
        &["mem.latency", "pages=base", "bytes=32KiB", "--budget", "minimum", "--rounds", "8"],
    );
    assert_eq!(share(&explanation, "translation"), None, "{explanation:#}");
    assert!(
        explanation["causes"][0]["evidence"][0]["missing_reason"]
            .as_str()
            .unwrap()
            .contains("smaller than a huge page")
    );
}

#[test]
fn why_table_fits_80_columns() {
    let dir = TestDir::new();
    let output = dir.run(&["why", "os.syscall.null", "call=getppid", "--budget", "minimum", "--rounds", "4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("os.syscall.null call=getppid\n") && text.contains("not explained"), "{text}");
}

/// A run of forks as an exported file, which are predicted to take a nanosecond.
fn mispredicted_run(dir: &TestDir) -> Value {
    // Without canaries other load leaves it a figure.
    let run = dir.run(&["run", "os.process.fork", "--no-canaries", "--budget", "minimum", "--rounds", "4"]);
    assert!(run.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&run.stderr));
    let mut run: Value = serde_json::from_slice(&dir.run(&["runs", "export", "last"]).stdout).unwrap();
    let records = run["predictions"].as_array_mut().unwrap();
    records.retain(|record| record["metric"] == "os.process.fork");
    assert!(!records.is_empty());
    records[0]["prediction"] = serde_json::json!({
        "value": 1.0, "low": 0.5, "high": 2.0, "basis": "derived", "formula": "a test", "inputs": [], "derivation": "a test",
        "sources": [],
    });
    records[0]["missing_reason"] = Value::Null;
    run
}

#[test]
fn gaps_are_explained_on_their_machine_only() {
    let dir = TestDir::new();
    let mut run = mispredicted_run(&dir);
    let write = |run: &Value| std::fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
    write(&run);
    let explain_gaps = |options: &[&str]| {
        dir.run(&[&["why", "--gaps", "--run", "run.json", "--budget", "minimum", "--rounds", "4"], options].concat())
    };
    let message = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let output = explain_gaps(&["--json"]);
    assert!(output.status.success(), "{}: {}", output.status, message(&output));
    assert!(message(&output).contains("one figure of the run"), "{}", message(&output));
    let explanations: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let metrics: Vec<&Value> = explanations.iter().map(|explanation| &explanation["metric"]["id"]).collect();
    assert_eq!(metrics, ["os.process.fork"]);
    let text = String::from_utf8(explain_gaps(&[]).stdout).unwrap();
    assert!(text.starts_with("os.process.fork\n") && text.contains("\n1 figure: 1 "), "{text}");

    let output = explain_gaps(&["--format", "html"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(message(&output).contains("--format: html and svg are of one figure"), "{}", message(&output));
    // As stored it is not so far from its prediction.
    let output = dir.run(&["why", "--gaps=1000", "--json"]);
    assert!(output.status.success() && output.stdout == b"[]\n", "{}", message(&output));
    assert!(message(&output).contains("is 1000 times worse than predicted or more"), "{}", message(&output));

    run["machine"]["identity"] = "another".into();
    write(&run);
    let output = explain_gaps(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(message(&output).contains("is of another machine or kernel"), "{}", message(&output));
}

#[test]
fn causes_option_lists_all_causes() {
    let output = TestDir::new().run(&["why", "--causes"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("waking an idle CPU (idle_wake)") && text.contains("net.rtt.tcp"), "{text}");
}

#[test]
fn interrupted_why_leaves_nothing() {
    let dir = TestDir::new();
    let mut child = dir.start(&["why", "net.rtt.tcp", "placement=same_cpu", "--budget", "60s"]);
    // Its scratch directory is made once it watches for signals.
    let start = Instant::now();
    let entries =
        || std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    while entries().is_empty() && start.elapsed() < HANG_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let start = Instant::now();
    // With a figure the status is 1, without one it is 2.
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{status}");
    assert!(start.elapsed() < HANG_TIMEOUT / 2 && entries().is_empty(), "{:?}", entries());
}
