//! `kelvin study load` as a whole program: a server of its own, one that runs already, limits that are planted, mistakes, Ctrl-C.

mod server_process;
mod test_dir;

use std::fs;
use std::io::{BufRead, BufReader, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, PoisonError, RwLock};

use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_testing::MissingRequirement;
use serde_json::Value;
use server_process::ServerProcess;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, signal, stderr};

/// Short visits to few users, whose figures are no measure of anything.
const SHORT_OPTIONS: [&str; 10] =
    ["--users", "1,2,4", "--rounds", "2", "--budget", "1s", "--step", "300ms", "--file-count", "16"];

/// Held for writing while studies are made whose figures count, which have the CPUs of this machine. Others run concurrently.
static QUIET_CPU_LOCK: RwLock<()> = RwLock::new(());

/// Studies of servers that a link or their workers limit, and not the CPUs, which they leave idle: what they find counts, and several
/// tests look at it. They run concurrently.
static LIMITED_STUDIES: LazyLock<LimitedStudies> = LazyLock::new(LimitedStudies::study);

struct LimitedStudies {
    /// Behind a limited link, of the default server and of one of processes; or why there can be none here.
    link_limited: Result<[Value; 2], MissingRequirement>,
    /// By two workers.
    worker_limited: Value,
}

impl LimitedStudies {
    const LINK: [&str; 8] = ["--network", "namespaces", "--link", "20M", "--file-size", "100kB", "--file-count", "16"];
    const LINK_BITS: f64 = 20e6;

    fn study() -> Self {
        let _guard = QUIET_CPU_LOCK.write().unwrap_or_else(PoisonError::into_inner);
        let study_default =
            || study(&[&["--users", "1,2,4", "--rounds", "3", "--step", "1s"][..], &Self::LINK].concat());
        let forks = ["--users", "3", "--rounds", "2", "--step", "1s", "--server-options", "--model fork"];
        let study_forks = || study(&[&forks[..], &Self::LINK].concat());
        std::thread::scope(|scope| {
            let threads = check_namespaces().map(|()| [scope.spawn(study_default), scope.spawn(study_forks)]);
            let worker_limited = retry_unknown(study_of_two_workers);
            Self { link_limited: threads.map(|studies| studies.map(|study| study.join().unwrap())), worker_limited }
        })
    }
}

/// A study of what is limited. What other work leaves not known is asked again, twice at most; a wrong answer is never made up for.
fn retry_unknown(measure: impl Fn() -> Value) -> Value {
    let is_known = |study: &Value| limit(study).0.get("unknown").is_none();
    (0..2).map(|_| measure()).find(is_known).unwrap_or_else(&measure)
}

fn study_of_two_workers() -> Value {
    let limit = ["--server-options", "--model pool --threads 2", "--think", "50ms"];
    let files = ["--file-size", "10kB", "--file-count", "16"];
    study(&[&["--users", "1,2,4,6", "--rounds", "3", "--step", "700ms"][..], &limit, &files].concat())
}

/// A whole study whose figures count.
fn study(arguments: &[&str]) -> Value {
    run_study(&TestDir::new(), arguments)
}

/// A whole study whose figures do not count.
fn study_without_lock(dir: &TestDir, arguments: &[&str]) -> Value {
    let _guard = QUIET_CPU_LOCK.read().unwrap_or_else(PoisonError::into_inner);
    run_study(dir, arguments)
}

/// A whole study, as data; it is more than a pipe holds.
fn run_study(dir: &TestDir, arguments: &[&str]) -> Value {
    let arguments = [&["study", "load", "--no-store", "--json", "--with-samples"][..], arguments].concat();
    let mut file = tempfile::tempfile().unwrap();
    let output = dir.command(KELVIN, &arguments).stdout(file.try_clone().unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    file.rewind().unwrap();
    serde_json::from_reader(std::io::BufReader::new(file)).unwrap()
}

/// The conclusions of a study, each by the name of its claim.
fn claims(study: &Value) -> Vec<(String, Value)> {
    let conclusions = study["analysis"]["studies"][0]["conclusions"].as_array().unwrap();
    let claim_of =
        |conclusion: &Value| conclusion["claim"]["load"].as_object().unwrap().clone().into_iter().next().unwrap();
    conclusions.iter().map(claim_of).collect()
}

fn claim(study: &Value, name: &str) -> Value {
    claims(study)
        .into_iter()
        .find(|(claim_name, _)| claim_name == name)
        .unwrap_or_else(|| panic!("no {name}: {study}"))
        .1
}

/// The readings of a metric, with the case of each.
fn readings<'s>(study: &'s Value, metric: &str) -> Vec<(&'s Value, f64)> {
    let mut values = Vec::new();
    for measurement in study["run"]["measurements"].as_array().unwrap() {
        for round in measurement["rounds"].as_array().unwrap() {
            let measured = round["outcome"]["measured"].as_array().unwrap_or_else(|| panic!("{round}"));
            let metric_readings = measured.iter().filter(|reading| reading["metric"] == metric);
            values.extend(
                metric_readings
                    .map(|reading| (&measurement["case"], reading["readings"]["scalars"][0].as_f64().unwrap())),
            );
        }
    }
    values
}

#[test]
fn own_server_is_studied_and_removed() {
    let dir = TestDir::new();
    let options = ["--file-size", "10kB", "--think", "0,5ms", "--server-options", "--congestion-control reno"];
    let study = study_without_lock(&dir, &[&SHORT_OPTIONS[..], &options].concat());
    let notes = study["run"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note == "the server's connections send by reno"), "{notes:?}");
    assert_eq!(study["run"]["status"], "complete");
    // Two sweeps of three numbers of users, twice each, and each at one user again.
    const VISITS: usize = 2 * (3 * 2 + 1);
    let throughputs = readings(&study, "load.throughput");
    assert!(readings(&study, "load.errors").iter().all(|(_, value)| *value == 0.0));
    for metric in ["load.throughput", "load.rate", "load.sent", "load.server.memory"] {
        assert_eq!(readings(&study, metric).len(), VISITS, "{metric}");
    }
    // Where an end has no CPU for all of a visit, nothing is answered: its throughput is 0, and it has no response time.
    let answered_visits = throughputs.iter().filter(|(_, value)| *value > 0.0).count();
    for metric in ["load.response", "load.response.p99"] {
        assert_eq!(readings(&study, metric).len(), answered_visits, "{metric}");
    }
    // The generator may run, and wait, without an answer.
    let possible_counts = answered_visits..=VISITS;
    assert!(answered_visits > 0 && possible_counts.contains(&readings(&study, "load.awaited").len()), "{study}");
    let resources: Vec<&str> =
        readings(&study, "load.utilisation").iter().map(|(case, _)| case["resource"].as_str().unwrap()).collect();
    let visits_of = |resource: &str| resources.iter().filter(|name| **name == resource).count();
    assert!(possible_counts.contains(&visits_of("generator")), "{resources:?}");
    for resource in ["server-cpu", "server-thread", "client-cpu", "client-window"] {
        assert_eq!(visits_of(resource), VISITS, "{resource}: {resources:?}");
    }
    let generator_note =
        notes.iter().filter_map(Value::as_str).find(|note| note.starts_with("the load generator had "));
    assert!(generator_note.is_some_and(|note| note.contains("; the server had CPU")), "{notes:?}");
    assert!(readings(&study, "load.capacity").iter().all(|(_, value)| *value > 0.0));
    // Both ends are on one host and in one network namespace: the client has only its process of its own.
    let hosts = |metric| readings(&study, metric).into_iter().map(|(case, _)| case["host"].as_str().unwrap()).collect();
    let count = |hosts: &Vec<&str>, host: &str| hosts.iter().filter(|name| **name == host).count();
    for (metric, client_count) in
        [("load.host.cpu.system", 0), ("load.host.listen.overflows", 0), ("load.host.count.threads", 14)]
    {
        let hosts: Vec<&str> = hosts(metric);
        assert_eq!((count(&hosts, "server"), count(&hosts, "client")), (14, client_count), "{metric}");
    }
    assert!(readings(&study, "load.cache_hits").iter().all(|(_, share)| (0.0..=1.0).contains(share)));
    let limits = claims(&study).into_iter().filter(|(name, _)| name == "limit").count();
    assert_eq!(limits, 2, "one for each sweep");
    assert_eq!(dir.names(), Vec::<String>::new(), "its files and its token are gone");
}

#[test]
fn throughput_equals_bytes_sent() {
    let link_limited = LIMITED_STUDIES
        .link_limited
        .as_ref()
        .inspect_err(|missing| missing.report_skip("the flow of bytes through a limited link"));
    for study in link_limited.into_iter().flatten().chain([&LIMITED_STUDIES.worker_limited]) {
        // Of a visit's 25 answers as many as there are users may be under way when it begins, and when it ends.
        let sum_of = |metric| readings(study, metric).into_iter().map(|(_, value)| value).sum::<f64>();
        let (received, sent) = (sum_of("load.rate"), sum_of("load.sent"));
        assert!((sent / received - 1.0).abs() < 0.2, "{sent} {received}");
        for (case, awaited) in readings(study, "load.awaited") {
            let users = case["users"].as_f64().unwrap();
            assert!(awaited > 0.0 && awaited <= users + 0.001, "no more than there are: {awaited} of {users}");
        }
    }
}

#[test]
fn running_server_is_studied_by_its_stats() {
    let dir = TestDir::new();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    ["a", "b"].iter().for_each(|name| fs::write(root.join(name), vec![7; 5000]).unwrap());
    let token = dir.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(dir.path().join("list"), "a\nb\n").unwrap();
    let token = token.to_str().unwrap();
    let root = root.to_str().unwrap();
    let serve_arguments = ["serve", root, "--listen", "127.0.0.1:0", "--expose-stats", "--token-file", token];
    let mut server = ServerProcess::spawn(dir.command(KELVIN, &serve_arguments), Stdio::null());
    let (url, resources) = (format!("http://{}/", server.address), server.line());
    let options = ["--url", &url, "--url-list", "list", "--stats-token", token, "--stats-address", &resources];
    let study = study_without_lock(&dir, &[&SHORT_OPTIONS[..8], &options[..]].concat());
    assert_eq!(readings(&study, "load.throughput").len(), 7);
    assert_eq!(readings(&study, "load.rate")[0].0["file_bytes"], 5000);
    let wrong_token = dir.path().join("wrong");
    fs::write(&wrong_token, "another token of the same sort\n").unwrap();
    let options = ["--url", &url, "--url-list", "list", "--stats-token", "wrong", "--stats-address", &resources];
    let output = dir.run(&[&["study", "load", "--no-store"][..], &SHORT_OPTIONS[..8], &options].concat());
    assert_refused(&output, &["it answers 401"]);
}

/// What is named as the limit, and whether without a doubt.
fn limit(study: &Value) -> (Value, bool) {
    let limit = claim(study, "limit");
    (limit["verdict"].clone(), limit["doubts"].as_array().unwrap().is_empty())
}

#[test]
fn limited_link_is_named_with_capacity() {
    let study = match &LIMITED_STUDIES.link_limited {
        Ok([study, _]) => study,
        Err(missing) => return missing.report_skip("a limited link between two namespaces"),
    };
    let (verdict, _) = limit(study);
    assert_eq!(verdict["resource"]["resource"], "link", "{verdict}");
    // 1448 bytes of payload in 1514 of a frame, and some of HTTP's.
    let payload = LimitedStudies::LINK_BITS / 8.0 * 1448.0 / 1514.0;
    let link_readings =
        readings(study, "load.capacity.bytes").into_iter().filter(|(case, _)| case["resource"] == "link");
    let mut rounds: Vec<f64> = link_readings.map(|(_, bytes)| bytes).collect();
    rounds.sort_unstable_by(f64::total_cmp);
    // A round shows nothing of a link in which other work kept the load generator from its CPU.
    assert!((1..=3).contains(&rounds.len()), "{rounds:?}");
    let median = rounds[rounds.len() / 2];
    assert!((median / payload - 1.0).abs() < 0.05, "{rounds:?} of {payload}");
}

#[test]
fn requests_in_flight_obey_littles_law() {
    let studies = match &LIMITED_STUDIES.link_limited {
        Ok(studies) => studies,
        Err(missing) => return missing.report_skip("Little's law behind a limited link"),
    };
    let (mut products, mut in_flight) = (Vec::new(), Vec::new());
    for study in studies {
        // Of three users at least two wait for the link: what is not known of a request at either end is little of it.
        let crowded_values = |metric| {
            let crowded_readings =
                readings(study, metric).into_iter().filter(|(case, _)| case["users"].as_u64() >= Some(3));
            crowded_readings.map(|(_, value)| value).collect::<Vec<f64>>()
        };
        let (throughput, response) = (crowded_values("load.throughput"), crowded_values("load.response"));
        let (by_client, by_server) = (crowded_values("load.awaited"), crowded_values("load.in_flight"));
        // Two visits to three users and the return to them, or three visits to four.
        assert_eq!((by_client.len(), by_server.len()), (3, 3));
        for (client, server) in by_client.iter().zip(&by_server) {
            assert!((server / client - 1.0).abs() < 0.1, "{by_client:?}, {by_server:?}");
        }
        products.extend(throughput.iter().zip(&response).map(|(rate, time)| rate * time / 1e9));
        in_flight.extend(by_client);
    }
    let shares: Vec<f64> = products.iter().zip(&in_flight).map(|(product, in_flight)| product / in_flight).collect();
    // In one visit the law holds but for its ends: a response counts in full in the visit in which it ends, a sixth of a second here.
    // Over all visits that is as often too much as too little.
    let share_of_all = products.iter().sum::<f64>() / in_flight.iter().sum::<f64>();
    assert!(share_of_all < 1.05, "{shares:?} of {in_flight:?}");
    // A request whose packets are lost again and again is in flight during a whole visit of one second and has no response time.
    assert!(shares.iter().any(|share| (0.95..1.05).contains(share)), "{shares:?} of {in_flight:?}");
}

#[test]
fn cgroup_holds_all_server_processes() {
    let group = match Cgroup::create(Controller::Cpu) {
        Ok(group) => group,
        Err(error) => {
            return MissingRequirement::privilege(error).report_skip("a server of processes in a control group");
        }
    };
    let _guard = QUIET_CPU_LOCK.read().unwrap_or_else(PoisonError::into_inner);
    let dir = TestDir::new();
    let directory = group.procs_file().parent().unwrap().to_str().unwrap().to_owned();
    let options = ["--server-options", "--model fork", "--server-group", &directory];
    let arguments = ["study", "load", "--no-store"];
    let mut child = dir.start(&[&arguments[..], &options, &SHORT_OPTIONS].concat());
    // The program, the process that forks, and one that serves.
    let processes = || fs::read_to_string(group.procs_file()).unwrap().lines().count();
    assert!(is_met_within(HANG_TIMEOUT, || processes() >= 3));
    signal(&child, "INT");
    assert!(is_met_within(HANG_TIMEOUT, || child.try_wait().unwrap().is_some()));
    assert!(is_met_within(HANG_TIMEOUT, || processes() == 0));
}

#[test]
fn cached_and_uncached_files_are_compared() {
    if let Err(error) = Cgroup::create(Controller::Memory) {
        return MissingRequirement::privilege(error).report_skip("a server with little memory");
    }
    let dir = TestDir::new();
    // Beside the files it holds the pages of the program, without which it is killed, and so is the process that reads the disk: those
    // of one for tests are 18 MB.
    let options = ["--cache", "cached,uncached", "--server-memory", "46M", "--file-size", "1MB", "--file-count", "100"];
    let study =
        study_without_lock(&dir, &[&["--users", "1,3", "--rounds", "2", "--step", "300ms"], &options[..]].concat());
    for cache in ["cached", "uncached"] {
        let count_readings =
            |metric| readings(&study, metric).iter().filter(|(case, _)| case["cache"] == cache).count();
        assert_eq!(
            (count_readings("load.throughput"), count_readings("load.host.cpu.user")),
            (2 * 2 + 1, 2 * 2 + 1),
            "{cache}"
        );
        assert!(count_readings("load.capacity") > 0, "{cache}");
    }
    let disk = |case: &Value| case["resource"] == "disk";
    let capacities = readings(&study, "load.capacity");
    assert!(capacities.iter().any(|(case, _)| disk(case) && case["cache"] == "uncached"));
    assert!(!capacities.iter().any(|(case, _)| disk(case) && case["cache"] == "cached"));
    assert!(readings(&study, "load.throughput").iter().all(|(case, _)| case["files"] == 100), "two sets of as many");
    let limits = claims(&study).into_iter().filter(|(name, _)| name == "limit").count();
    assert_eq!(limits, 2, "one for each");
    assert_eq!(dir.names(), Vec::<String>::new(), "both sets are gone");
}

#[test]
fn worker_limit_is_named() {
    let study = &LIMITED_STUDIES.worker_limited;
    let (verdict, _) = limit(study);
    assert_eq!(verdict["resource"]["resource"], "workers", "{verdict}");
    // Twice as many were tried, and serve more.
    let workers_claim = claim(study, "more_workers");
    assert_eq!(
        (&workers_claim["workers"][0], &workers_claim["workers"][1], &workers_claim["users"]),
        (&2.into(), &4.into(), &6.into()),
        "{workers_claim}"
    );
    assert!(workers_claim["ratio"]["value"].as_f64().unwrap() > 1.2, "{workers_claim}");
    let waiting = claim(study, "waiting");
    assert_eq!(waiting["users"], 4, "two of four wait for as long as the others stay: {waiting}");
}

fn check_namespaces() -> Result<(), MissingRequirement> {
    let result = std::process::Command::new("unshare").args(["--net", "true"]).output();
    let output = result.map_err(|error| MissingRequirement::program("unshare", "util-linux", &error))?;
    if !output.status.success() {
        return Err(MissingRequirement::privilege(String::from_utf8_lossy(&output.stderr).trim()));
    }
    for program in ["ip", "tc"] {
        let output = std::process::Command::new(program).arg("-V").output();
        output.map_err(|error| MissingRequirement::program(program, "iproute2", &error))?;
    }
    Ok(())
}

#[test]
fn study_load_errors_are_one_line() {
    let dir = TestDir::new();
    let expect_refusal = |arguments: &[&str], words: &[&str]| {
        let output = dir.run(&[&["study", "load", "--no-store"][..], arguments].concat());
        assert_refused(&output, words);
    };
    expect_refusal(&["--users", "0"], &["--users", "from 1 to 10000"]);
    expect_refusal(&["--server-memory", "1M"], &["--server-memory", "at least 16M"]);
    expect_refusal(&["--link", "100M"], &["--link", "add --network namespaces"]);
    expect_refusal(&["--link", "fast", "--network", "namespaces"], &["--link", "bits a second"]);
    expect_refusal(&["--url", "http://127.0.0.1:1/"], &["--url-list"]);
    expect_refusal(&["--cache", "cached,uncached"], &["--cache cached,uncached", "--server-memory"]);
    expect_refusal(
        &["--cache", "cached,uncached", "--server-memory", "10000G"],
        &["--cache cached,uncached", "less --server-memory"],
    );
    expect_refusal(&["--cache", "cached,hot"], &["--cache", "hot"]);
    expect_refusal(
        &["--cache", "uncached", "--server-memory", "1G", "--write-limit", "1M"],
        &["--cache uncached", "--write-limit"],
    );
    expect_refusal(&["--server-options", "--model pigeon"], &["the server did not start", "pigeon"]);
    expect_refusal(&["--server-group", "/no/such/group"], &["--server-group", "/no/such/group"]);
    expect_refusal(&["--file-size", "1G", "--write-limit", "2G"], &["there is room for", "--file-size"]);
    let elsewhere = dir.run(&["study", "tasks", "--users", "3"]);
    assert_refused(&elsewhere, &["unexpected argument '--users'", "`kelvin study tasks --help`"]);
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn interrupted_study_keeps_finished_steps() {
    let dir = TestDir::new();
    let arguments = ["study", "load", "--no-store"];
    let mut child = dir.start(&[&arguments[..], &SHORT_OPTIONS[..4], &SHORT_OPTIONS[8..]].concat());
    // Its first visits follow when it has reported how many there will be.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "kelvin: the server's files take 32 MB until the end: 16 of 2 MB");
    assert!(lines.any(|line| line.contains(" visits in about ")), "it says how long it takes");
    signal(&child, "INT");
    let mut status = None;
    assert!(is_met_within(HANG_TIMEOUT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    }));
    assert!(matches!(status.and_then(|status| status.code()), Some(1 | 2)), "{status:?}");
    assert_eq!(dir.names(), Vec::<String>::new());

    // Nor while it makes its files.
    let mut child = dir.start(&[&arguments[..], &SHORT_OPTIONS[..4]].concat());
    assert!(is_met_within(HANG_TIMEOUT, || has_children(child.id())), "its server runs");
    signal(&child, "INT");
    assert!(is_met_within(HANG_TIMEOUT, || child.try_wait().unwrap().is_some()));
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn killed_server_is_reported() {
    let dir = TestDir::new();
    let arguments = ["study", "load", "--no-store"];
    let mut study = dir.start(&[&arguments[..], &SHORT_OPTIONS[..4], &SHORT_OPTIONS[8..]].concat());
    let mut lines = BufReader::new(study.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(" visits in about ")), "it says how long it takes");
    let server: u32 = children(study.id()).trim().parse().expect("one child, its server");
    assert!(Command::new("sh").args(["-c", &format!("kill -KILL {server}")]).status().unwrap().success());
    let log: String = lines.map(|line| line + "\n").collect();
    let output = study.wait_with_output().unwrap();
    let text = log + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the server ended: it was killed by signal 9"), "{text}");
    assert!(!text.contains("refused") && !text.contains("until Ctrl-C"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn oom_killed_server_process_ends_study() {
    if let Err(error) = Cgroup::create(Controller::Memory) {
        return MissingRequirement::privilege(error).report_skip("a server with little memory");
    }
    let dir = TestDir::new();
    let arguments = ["study", "load", "--no-store", "--cache", "uncached", "--server-memory", "40M"];
    let visits = ["--file-size", "1MB", "--file-count", "100", "--users", "1,2,4", "--rounds", "2", "--step", "1s"];
    let mut study = dir.start(&[&arguments[..], &visits].concat());
    let mut lines = BufReader::new(study.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(" visits in about ")), "it says how long it takes");
    let server: u32 = children(study.id()).trim().parse().expect("one child, its server");
    // As if it were one of those that the server forks: it needs more than there is.
    let enter = format!("echo $$ > {}; exec tail /dev/zero", memory_group(server).join("cgroup.procs").display());
    assert!(!Command::new("sh").args(["-c", &enter]).status().unwrap().success());
    let log: String = lines.map(|line| line + "\n").collect();
    let output = study.wait_with_output().unwrap();
    let text = log + &String::from_utf8_lossy(&output.stdout);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("a process of the server was killed, as its memory was used up: give it more"), "{flat}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(dir.names(), Vec::<String>::new());
}

/// The group that limits the memory of a process.
fn memory_group(process: u32) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let group_path = |beginning: &str| {
        groups
            .lines()
            .find_map(|line| line.split_once(beginning))
            .map(|(_, path)| path.trim_start_matches('/').to_owned())
    };
    let first = group_path(":memory:").map(|path| Path::new("/sys/fs/cgroup/memory").join(path));
    first.or_else(|| group_path("0::").map(|path| Path::new("/sys/fs/cgroup").join(path))).expect("a group of control")
}

fn has_children(process: u32) -> bool {
    !children(process).trim().is_empty()
}

/// The numbers of a process's children, separated by spaces.
fn children(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default()
}

#[test]
fn study_load_has_help_and_explanation() {
    let dir = TestDir::new();
    for arguments in
        [&["explain", "load.throughput"][..], &["explain", "load.capacity"], &["list", "--studies", "load"]]
    {
        let output = dir.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn published_study_prints_text_or_json() {
    let dir = TestDir::new();
    let report = dir.json(&["study", "load", "--published"]);
    let conclusions = report["conclusions"].as_array().unwrap();
    assert!(report["id"] == "load" && !conclusions.is_empty() && conclusions[0]["text"].is_string(), "{report}");
    let text = dir.run(&["study", "load", "--published"]);
    assert!(text.status.success() && serde_json::from_slice::<Value>(&text.stdout).is_err());
}
