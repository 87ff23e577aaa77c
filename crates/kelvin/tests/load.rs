//! `kelvin load` as a whole program: tables, JSON, gates, lists, logs, mistakes, and Ctrl-C.

mod made_server;
mod test_dir;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_testing::MissingRequirement;
use made_server::start_server;
use serde_json::Value;
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, handles_interrupts, is_met_within, signal, stderr, stdout,
    wait_for_output,
};

/// Starts a server that answers each path with itself, and /missing with status 404.
fn start_echo_server() -> SocketAddr {
    start_server(|path| (if path == "/missing" { "404 Not Found" } else { "200 OK" }, path.to_owned()))
}

/// A short load on a URL.
fn load(dir: &TestDir, arguments: &[&str]) -> Output {
    dir.run(&[&["load"], arguments, &["--duration", "200ms"]].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_str(stdout(output))
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

#[test]
fn users_print_table_or_json() {
    let (dir, url) = (TestDir::new(), format!("http://{}/file", start_echo_server()));
    for options in [&["--users", "2"][..], &["--rate", "400"], &["--rate", "100", "--connections", "1"]] {
        let output = load(&dir, &[&[url.as_str()], options].concat());
        let wide_lines: Vec<&str> = stdout(&output).lines().filter(|line| line.chars().count() > 80).collect();
        assert!(
            wide_lines.is_empty() && output.status.code() == Some(0),
            "{options:?}: {wide_lines:#?} {}",
            stderr(&output)
        );
    }
    let output = load(&dir, &[&url, "--users", "3"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let table = stdout(&output);
    for expected in [&*format!("{url}: 3 users, no think time"), "no errors", "p99.9", "as users saw it", "generator: "]
    {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    let data = json(&load(&dir, &[&url, "--users", "3", "--think", "5ms", "--arrivals", "exponential", "--json"]));
    assert_eq!(data["offered"]["users"]["users"], 3);
    assert_eq!(data["bytes"].as_u64().unwrap(), 5 * data["requests"].as_u64().unwrap());
    assert_eq!(data["errors"]["status"], serde_json::json!({}));
}

#[test]
fn open_loop_latency_is_from_due_time() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let output = load(&dir, &[&url, "--rate", "100", "--no-warm-up"]);
    assert!(stdout(&output).contains("from when it was due"), "{}", stdout(&output));
    let data = json(&load(&dir, &[&url, "--rate", "100", "--no-warm-up", "--json"]));
    // At 0, 10, ... 190 ms.
    assert_eq!(
        (&data["response"]["count"], &data["requests"], data["offered"]["rate"]["due"].as_f64()),
        (&20.into(), &20.into(), Some(100.0))
    );
    for (warm_up, rate) in [("--no-warm-up", "5"), ("--warm-up=100ms", "5"), ("--no-warm-up", "1")] {
        let gate = format!("rate<{rate}");
        let output =
            dir.run(&["load", &url, "--rate", rate, "--duration", "1s", warm_up, "--fail-on", &gate, "--json"]);
        let (data, rate) = (json(&output), rate.parse::<f64>().unwrap());
        assert_eq!((data["requests"].as_f64(), data["offered"]["rate"]["due"].as_f64()), (Some(rate), Some(rate)));
        // An answer that comes after the measured time, since other work has the processor, makes the rate lower.
        let slowest = data["response"]["max"].as_f64().unwrap();
        if slowest < 50e6 {
            assert_eq!((data["answer_seconds"].as_f64(), output.status.code()), (Some(1.0), Some(0)), "{data}");
        }
    }
}

/// The number, the body and the connections that users of other programs ask for, by the options that they know.
#[test]
fn limited_requests_have_body_and_connections_of_their_own() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let run = |arguments: &[&str]| {
        let output = dir.run(&[&["load", &*url], arguments, &["--json"]].concat());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{arguments:?}");
        json(&output)
    };
    let data = run(&["-n", "30", "-c", "4", "--no-keepalive"]);
    assert_eq!(
        (&data["requests"], &data["connections"], &data["schedule"]["requests"]),
        (&30.into(), &30.into(), &30.into())
    );
    fs::write(dir.path().join("body"), "").unwrap();
    let data = run(&["-n", "30", "-c", "4", "-X", "POST", "-D", "body"]);
    assert_eq!((&data["requests"], &data["schedule"]["method"]), (&30.into(), &"POST".into()), "{data}");
    let data = run(&["-n", "5", "--rate", "500,1000", "--users", "2", "-d", "1h"]);
    let loads = data["loads"].as_array().unwrap();
    assert!(loads.len() == 3 && loads.iter().all(|load| load["requests"] == 5), "{data}");
}

#[test]
fn kinds_and_stages_have_figures_of_their_own() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let mix =
        "[[request]]\nname = 'list'\nweight = 3\npath = '/list'\n[[request]]\npath = '/missing'\nbody_file = 'empty'\n";
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/shop.toml"), mix).unwrap();
    fs::write(dir.path().join("sub/empty"), "").unwrap();
    let output = dir.run(&["load", &url, "--mix", "sub/shop.toml", "-n", "200", "--json"]);
    let data = json(&output);
    let (list, missing) = (&data["kinds"][0], &data["kinds"][1]);
    assert_eq!((&list["name"], &missing["name"]), (&"list".into(), &"GET /missing".into()), "{data}");
    assert_eq!((&list["requests"], &missing["failed_requests"]), (&data["requests"], &data["errors"]["status"]["404"]));
    assert_eq!(list["requests"].as_u64().unwrap() + missing["failed_requests"].as_u64().unwrap(), 200);
    let output = dir.run(&["load", &url, "--mix", "sub/shop.toml", "-n", "200"]);
    assert!(
        stdout(&output).contains("\nkind of request ") && stdout(&output).contains("\nGET /missing "),
        "{}",
        stdout(&output)
    );
    let output = dir.run(&["load", &url, "--stages", "100ms:100,100ms:300"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let lines = ["2 stages, 200 ms\n", "\nstage  ", "\n100 ms, 100 /s ", "\n100 ms, 300 /s "];
    assert!(lines.iter().all(|line| stdout(&output).contains(line)), "{}", stdout(&output));
    let output = dir.run(&["load", &url, "--user-stages", "50ms:1,50ms:3", "--json"]);
    let data = json(&output);
    assert_eq!(
        (&data["stages"][1]["level"]["users"], &data["offered"]["users"]["users"]),
        (&3.into(), &3.into()),
        "{data}"
    );
}

#[test]
fn users_and_rates_are_plotted_together() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let output = load(&dir, &[&url, "--users", "1,2", "--rate", "100,200", "--plot", "plot.svg"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let lines: Vec<&str> = stdout(&output).lines().filter_map(|line| Some(line.split_once("   ")?.0)).collect();
    let names = ["1 user", "2 users", "100 a second", "200 a second"];
    assert!(names.iter().all(|name| lines.contains(name)), "{}", stdout(&output));
    let svg = fs::read_to_string(dir.path().join("plot.svg")).unwrap();
    for line in ["users, median", "users, p99", "rates, median", "rates, p99"] {
        assert!(svg.contains(line) && stdout(&output).contains(line), "{line}: {}", stdout(&output));
    }
    let gates = ["--rate", "100", "--users", "1", "--fail-on", "max>1us", "--json"];
    let output = load(&dir, &[&[&*url], &gates[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).lines().next().is_some_and(|line| line.ends_with(" with 1 user")), "{}", stderr(&output));
    let loads = &json(&output)["loads"];
    assert_eq!(
        (&loads[0]["offered"]["users"]["users"], &loads[1]["offered"]["rate"]["rate"]),
        (&1.into(), &100.0.into())
    );
}

#[test]
fn generator_is_pinned_with_local_server() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let allowed = kelvin_sys::cpu::affinity().unwrap();
    let last = allowed.last().unwrap();
    let cpus =
        |arguments: &[&str]| json(&load(&dir, &[&[&*url, "--json"], arguments].concat()))["generator"]["cpus"].clone();
    assert_eq!(cpus(&[]), serde_json::json!([last]));
    assert_eq!(cpus(&["--no-pin"]), serde_json::json!(allowed));
    assert_eq!(cpus(&["--cpu", &allowed[0].to_string()]), serde_json::json!([allowed[0]]));
    let output = load(&dir, &[&url]);
    let expected = if allowed.len() > 1 { "(taskset -a -p -c " } else { "is allowed to the generator" };
    assert!(stdout(&output).contains(expected), "{}", stdout(&output));
}

/// Several threads do what one does: as many requests at the same rate, the same files, a search, and each has its users.
#[test]
fn threads_divide_the_load() {
    let (dir, address) = (TestDir::new(), start_echo_server());
    let url = format!("http://{address}/file");
    let output = load(&dir, &[&url, "--users", "5", "--threads", "3", "--no-pin"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert!(stdout(&output).contains("generator: 3 threads, the busiest "), "{}", stdout(&output));
    let run = |arguments: &[&str]| {
        let output = load(&dir, &[arguments, &["--threads", "3", "--no-pin", "--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        json(&output)
    };
    let data = run(&[&url, "--users", "5", "--verify"]);
    assert_eq!((&data["connections"], data["generator"]["threads"].as_array().unwrap().len()), (&5.into(), 3));
    assert_eq!(data["response"]["count"], data["requests"]);
    let data = run(&[&url, "--rate", "100", "--no-warm-up"]);
    // At 0, 10, ... 190 ms.
    assert_eq!((&data["requests"], data["offered"]["rate"]["due"].as_f64()), (&20.into(), Some(100.0)), "{data}");
    fs::write(dir.path().join("list"), "/a\n/missing\n/b\n/missing\n").unwrap();
    let list = ["--files", "list", "--pattern", "sequence", "--rate", "100", "--no-warm-up"];
    let data = run(&[&[&*url], &list[..]].concat());
    assert_eq!((&data["requests"], &data["errors"]["status"]["404"]), (&10.into(), &10.into()), "{data}");
    let line = |path: &str| format!("::1 - - [10/Oct/2000:20:55:36 +0000] \"GET {path} HTTP/1.1\" 200 1\n");
    fs::write(dir.path().join("log"), ["/a", "/b", "/missing", "/c"].map(line).concat()).unwrap();
    let data = run(&[&url, "--replay", "log", "--speed", "10"]);
    assert_eq!((&data["requests"], &data["errors"]["status"]["404"]), (&3.into(), &1.into()), "{data}");
}

#[test]
fn threads_search_a_rate_and_are_interrupted() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let search = ["--slo", "max:1us", "--threads", "2", "--no-pin", "--json"];
    let data = json(&load(&dir, &[&[&*url], &search[..]].concat()));
    let tries = data["tries"].as_array().unwrap();
    assert!(!tries.is_empty() && data["highest_passing"].is_null(), "{data}");
    assert!(tries.iter().all(|load| load["generator"]["threads"].as_array().unwrap().len() == 2), "{data}");
    let endless = ["--users", "4", "--threads", "2", "--no-pin", "--duration", "1h", "--no-warm-up", "--json"];
    let child = dir.start(&[&["load", &*url], &endless[..]].concat());
    assert!(is_met_within(HANG_TIMEOUT, || handles_interrupts(&child)));
    signal(&child, "INT");
    let output = wait_for_output(child, &["load"]);
    let data = json(&output);
    assert_eq!((output.status.code(), &data["interrupted"]), (Some(1), &"SIGINT".into()));
    assert!(data["in_flight"].as_f64().is_none_or(|in_flight| in_flight <= 4.001), "{data}");
}

/// Starts a server that answers the first requests, and refuses all others.
fn start_limited_server(answers: u64) -> SocketAddr {
    let requests = AtomicU64::default();
    start_server(move |_| {
        let status = if requests.fetch_add(1, Ordering::Relaxed) < answers { "200 OK" } else { "503 Busy" };
        (status, String::new())
    })
}

/// Of three threads a search finds what the server bears: two steps of 22 and 44 requests, and half of the third.
#[test]
fn threads_search_the_rate_of_a_limited_server() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_limited_server(22 + 44 + 44)));
    // No response is too late: what is refused alone decides.
    let search = ["--slo", "p50:1h", "--threads", "3", "--no-pin", "--connections", "7", "--json"];
    let output = load(&dir, &[&[&*url], &search[..]].concat());
    let data = json(&output);
    assert_eq!((output.status.code(), &data["highest_passing"]), (Some(0), &200.0.into()), "{data}");
    let tries = data["tries"].as_array().unwrap();
    let requests: Vec<&Value> = tries.iter().map(|load| &load["requests"]).collect();
    assert_eq!(requests[..2], [&Value::from(20), &Value::from(40)], "{data}");
    assert!(tries.len() > 2 && tries[2]["errors"]["status"]["503"].as_u64().is_some_and(|count| count > 0), "{data}");
    for load in tries {
        assert_eq!(load["generator"]["threads"].as_array().unwrap().len(), 3);
        assert!(load["connections"].as_u64().is_some_and(|count| count <= 7), "{load}");
    }
}

#[test]
fn signals_end_all_threads() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let endless = ["--threads", "3", "--no-pin", "--duration", "1h", "--no-warm-up", "--json"];
    for (name, demand) in [("INT", ["--users", "7"]), ("TERM", ["--users", "7"]), ("TERM", ["--rate", "500"])] {
        let child = dir.start(&[&["load", &*url], &demand[..], &endless].concat());
        assert!(is_met_within(HANG_TIMEOUT, || handles_interrupts(&child)));
        signal(&child, name);
        let output = wait_for_output(child, &["load"]);
        let data = json(&output);
        assert_eq!((output.status.code(), &data["interrupted"]), (Some(1), &format!("SIG{name}").into()), "{data}");
        assert_eq!(data["errors"]["first"], Value::Null, "{data}");
        assert!(data["in_flight"].as_f64().is_none_or(|in_flight| in_flight <= 1000.001), "{data}");
    }
    // A search ends as well.
    let search = ["--slo", "p50:1h", "--threads", "3", "--no-pin", "--duration", "1h", "--no-warm-up", "--json"];
    let child = dir.start(&[&["load", &*url], &search[..]].concat());
    assert!(is_met_within(HANG_TIMEOUT, || handles_interrupts(&child)));
    signal(&child, "TERM");
    let output = wait_for_output(child, &["load"]);
    let data = json(&output);
    assert_eq!((output.status.code(), &data["tries"][0]["interrupted"]), (Some(1), &"SIGTERM".into()), "{data}");
}

#[test]
fn threads_have_cpus_of_their_own() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let allowed = kelvin_sys::cpu::affinity().unwrap();
    let count = allowed.len();
    let users = (count + 1).to_string();
    let thread_cpus = |arguments: &[&str]| {
        let data = json(&load(&dir, &[&[&*url, "--users", &users, "--json"], arguments].concat()));
        let threads = data["generator"]["threads"].as_array().unwrap();
        threads.iter().map(|thread| thread["cpus"].clone()).collect::<Vec<Value>>()
    };
    let all = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let own_cpus: Vec<Value> = allowed.iter().map(|cpu| serde_json::json!([cpu])).collect();
    assert_eq!(thread_cpus(&["--cpu", &all]), own_cpus);
    assert_eq!(thread_cpus(&["--threads", &count.to_string()]), vec![serde_json::json!(allowed); count]);
    if count > 2 {
        assert_eq!(thread_cpus(&["--threads", "2"]), own_cpus[count - 2..]);
    }
    let output = load(&dir, &[&url, "--users", &users, "--threads", &users]);
    assert_refused(&output, &[&format!("--threads {users}: "), &format!("give at most {count}, or --no-pin")]);
}

#[test]
fn met_fail_condition_is_exit_status_1() {
    let (dir, address) = (TestDir::new(), start_echo_server());
    let output = load(&dir, &[&format!("http://{address}/"), "--fail-on", "max>1us", "--fail-on", "errors>0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("kelvin: --fail-on max>1us: max is "), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
    let output = load(&dir, &[&format!("http://{address}/missing")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("status 404"), "{}", stdout(&output));
}

#[test]
fn listed_files_are_requested_and_verified() {
    let (dir, address) = (TestDir::new(), start_echo_server());
    fs::write(dir.path().join("list"), format!("# files\nhttp://{address}/one\n/two\n")).unwrap();
    fs::write(dir.path().join("one"), "/one").unwrap();
    fs::write(dir.path().join("two"), "/owt").unwrap();
    let arguments = ["--files", "list", "--pattern", "sequence", "--verify", "--root", ".", "--json"];
    let data = json(&load(&dir, &arguments));
    let (right_count, wrong_count) = (data["requests"].as_u64().unwrap(), data["errors"]["wrong"].as_u64().unwrap());
    assert!(right_count > 0 && right_count.abs_diff(wrong_count) <= 1, "{data}");
    let data = json(&load(&dir, &["--files", "list", "--verify", "--json"]));
    assert_eq!(data["errors"]["wrong"], 0);
}

#[test]
fn log_is_replayed_in_time() {
    let (dir, address) = (TestDir::new(), start_echo_server());
    let line =
        |second: u32, path: &str| format!("::1 - - [10/Oct/2000:20:55:{second} +0000] \"GET {path} HTTP/1.1\" 200 1\n");
    let log = [line(36, "/a"), line(36, "/b"), line(37, "/missing"), "other\n".to_owned()].concat();
    fs::write(dir.path().join("log"), log).unwrap();
    let url = format!("http://{address}/");
    let output = dir.run(&["load", &url, "--replay", "log", "--speed", "20", "--json"]);
    let data = json(&output);
    assert_eq!((&data["requests"], &data["errors"]["status"]["404"]), (&2.into(), &1.into()), "{data}");
    assert_eq!(stderr(&output), "kelvin: lines of log that are left out: 1 in another format\n");
    // Of several requests in one second, and of one alone, all are counted, and they took a second.
    for count in [1, 4] {
        fs::write(dir.path().join("log"), line(36, r"/caf\xC3\xA9").repeat(count)).unwrap();
        let output = dir.run(&["load", &url, "--replay", "log", "--verify=length"]);
        assert_eq!(output.status.code(), Some(2), "what is replayed is not compared");
        let output = dir.run(&["load", &url, "--replay", "log"]);
        let ending = if count == 1 { "" } else { "s" };
        let expected = format!("\n{count} request{ending}, {count}.00 /s; {} B", "/caf%C3%A9".len() * count);
        assert!(stdout(&output).contains(&expected) && output.status.code() == Some(0), "{}", stdout(&output));
    }
}

#[test]
fn recording_of_a_browser_is_replayed_in_time() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let entry = |second: &str, method: &str, target: &str| {
        format!(
            r#"{{"startedDateTime": "2026-11-30T07:00:{second}Z", "time": 1, "request": {{"method": "{method}", "url": "{target}"}}}}"#
        )
    };
    let entries = [
        entry("00", "GET", "https://a/1"),
        entry("01", "PUT", "https://a/missing"),
        entry("02", "DELETE", "https://a/22"),
        entry("02", "GET", "https://b/"),
    ];
    fs::write(dir.path().join("x.har"), format!(r#"{{"log": {{"entries": [{}]}}}}"#, entries.join(","))).unwrap();
    let output = dir.run(&["load", &url, "--replay", "x.har", "--speed", "20", "--method", "GET", "--json"]);
    assert_eq!(output.status.code(), Some(2), "each request has its own method");
    let output = dir.run(&["load", &url, "--replay", "x.har", "--speed", "20", "--json"]);
    assert_eq!(stderr(&output), "kelvin: requests of x.har that are left out: 1 to another host than the first\n");
    let data = json(&output);
    assert_eq!((&data["requests"], &data["schedule"]["method"]), (&2.into(), &"DELETE, GET, PUT".into()), "{data}");
    assert_eq!((&data["bytes"], &data["errors"]["status"]["404"]), (&5.into(), &1.into()), "{data}");
}

#[test]
fn log_list_and_body_are_read_from_stdin() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let line = "::1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a HTTP/1.1\" 200 1\n";
    for (name, content) in [("log", line), ("list", "/a\n")] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    for (name, option, value) in [("log", "--replay", "-"), ("list", "--files", "-"), ("list", "--body", "@-")] {
        let mut command = dir.command(KELVIN, &["load", &url, option, value, "--duration", "200ms"]);
        let input = fs::File::open(dir.path().join(name)).unwrap();
        let output = command.stdin(input).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{option}: {}{}", stderr(&output), stdout(&output));
    }
}

#[test]
fn unmeasured_figures_are_null_in_json() {
    let (dir, address) = (TestDir::new(), start_echo_server());
    let line = "::1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a HTTP/1.1\" 200 1\n";
    fs::write(dir.path().join("log"), line.repeat(2)).unwrap();
    // The log is over before its first request is on its way.
    let data =
        json(&dir.run(&["load", &format!("http://{address}/"), "--replay", "log", "--speed", "1000000", "--json"]));
    assert_eq!(data["requests"], 2, "{data}");
    assert!(data["response"]["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{data}");
    assert!(data["in_flight"].is_null() && data["generator"]["cpu"].is_null(), "{data}");
    assert!(data["generator"]["busy"].is_null(), "{data}");
    // Each answer is a mistake: no right one has a response time.
    let output =
        dir.run(&["load", &format!("http://{address}/missing"), "--duration", "1100ms", "--no-warm-up", "--json"]);
    let data = json(&output);
    assert_eq!(data["requests"], 0, "{data}");
    let second = &data["series"][0];
    for figure in [&data["response"], &data["service"], &data["generator"]["own_delay"], &second["p50"], &second["max"]]
    {
        assert!(figure.is_null(), "{data}");
    }
    assert!(data["in_flight"].as_f64().is_some_and(|in_flight| in_flight > 0.0), "{data}");
}

#[test]
fn impossible_slo_has_no_passing_rate() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let output = load(&dir, &[&url, "--slo", "max:1us", "--json"]);
    // No rate keeps a microsecond.
    assert_eq!(output.status.code(), Some(1));
    let data = json(&output);
    assert_eq!((&data["objective"], &data["highest_passing"]), (&"max of at most 1.00 µs".into(), &Value::Null));
    assert!(!data["tries"].as_array().unwrap().is_empty());
}

/// In a tenth of a second no request of a rate below ten a second need be due.
#[test]
fn rate_search_ends_where_nothing_is_due() {
    // Only errors: no time of the generator's own can be the reason of a miss, but for one that is kept from its CPU.
    let (dir, url) = (TestDir::new(), format!("http://{}/missing", start_echo_server()));
    let output = dir.run(&["load", &url, "--slo", "p50:1s", "--duration", "100ms"]);
    let message = stderr(&output);
    assert!(message.contains(": missed, no answer, ") && !message.contains("0.00 ns"), "{message}");
    assert!(stdout(&output).contains("no rate that was measured kept p50 of at most 1.00 s"), "{}", stdout(&output));
    let is_of_generator = stdout(&output).contains("The generator was the limit");
    assert!(is_of_generator || message.contains("no request was due within"), "{message}");
}

#[test]
fn counts_of_one_are_singular() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let output = dir.run(&["load", &url, "--rate", "7", "--duration", "100ms", "--no-warm-up", "--fail-on", "rate>8"]);
    let text = stdout(&output);
    for expected in ["\n1 request, 7.00 /s;", ", 1 connection opened\n", "\n7.00 /s became due\n"] {
        assert!(text.contains(expected) && output.status.code() == Some(0), "{expected}: {text}");
    }
}

#[test]
fn load_usage_errors_are_one_line() {
    let dir = TestDir::new();
    let unused_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unused_address}/");
    fs::write(dir.path().join("empty"), "").unwrap();
    let expect_refusal = |arguments: &[&str], expected: &str| {
        let output = dir.run(&[&["load"], arguments].concat());
        assert_refused(&output, &[expected]);
    };
    expect_refusal(&[&url], "Connection refused");
    expect_refusal(&[], "<URL>");
    expect_refusal(&["localhost"], "give a URL such as");
    expect_refusal(&[&url, "--users", "0"], "--users");
    expect_refusal(&[&url, "--users", "2,0"], "--users");
    expect_refusal(&[&url, "--rate", "5", "--think", "1s"], "--think");
    expect_refusal(&[&url, "--users", "2", "--connections", "5"], "--connections");
    expect_refusal(&[&url, "--slo", "p99:1ms", "--plot", "x.svg"], "--plot");
    expect_refusal(&[&url, "--cpu", "0", "--no-pin"], "--no-pin");
    expect_refusal(&[&url, "--threads", "0"], "--threads");
    expect_refusal(&[&url, "--threads", "2"], "--threads 2: each thread needs a user, and a load has 1: give at least");
    expect_refusal(
        &[&url, "--threads", "3", "--users", "9,2,3"],
        "--threads 3: each thread needs a user, and a load has 2",
    );
    expect_refusal(
        &[&url, "--threads", "3", "--rate", "9", "--connections", "2"],
        "--threads 3: each thread needs a connection, and there are 2: give at least --connections 3, or fewer threads",
    );
    expect_refusal(&[&url, "--cpu", "0,1"], "--cpu 0,1: each thread needs a user");
    expect_refusal(&[&url, "--cpu", "0,x", "--users", "2"], "--cpu");
    expect_refusal(&[&url, "--duration", "5x"], "--duration");
    expect_refusal(&[&url, "--fail-on", "p98>5ms"], "--fail-on");
    expect_refusal(&[&url, "-H", "Accept"], "-H 'Accept': give a name, a colon and a value");
    expect_refusal(&[&url, "--method", "G T"], "--method G T: give a method such as GET");
    expect_refusal(&[&url, "--body", "@none"], "--body @none: No such file");
    expect_refusal(&[&url, "-D", "none"], "--body-file none: No such file");
    expect_refusal(&[&url, "-d", "{}"], "; the body of a request is --body");
    expect_refusal(&[&url, "-t", "20s"], "; a time-out is --timeout");
    expect_refusal(&[&url, "-n", "0"], "'0' for '--requests");
    expect_refusal(&[&url, "-n", "9", "--slo", "p99:1ms"], "--slo");
    let at_time = ["-n", "9", "--users", "1,2", "--start-at", "@4000000000"];
    expect_refusal(&[&[&*url], &at_time[..]].concat(), "--requests: with --start-at");
    expect_refusal(&[&url, "--unix-socket", "none"], "cannot connect to none: No such file");
    fs::write(dir.path().join("mix"), "[[request]]\npath = '/'\nmethod = 'G T'\n").unwrap();
    expect_refusal(&[&url, "--mix", "mix"], "--mix mix: line 3: method: give a method such as GET");
    expect_refusal(&[&url, "--mix", "none"], "--mix none: No such file");
    expect_refusal(&[&url, "--stages", "10s:x"], "10s:x: give times and rates");
    expect_refusal(&[&url, "--stages", "10s:5", "--think", "1s"], "--think");
    expect_refusal(&[&url, "--user-stages", "10s:5", "-t", "9"], "give at least --user-stages 9");
    expect_refusal(&["--files", "none"], "--files none: No such file");
    expect_refusal(&["--files", "empty"], "--files empty: it names no file");
    expect_refusal(&[&url, "--replay", "empty"], "--replay empty: it has no GET request");
    expect_refusal(&["https://localhost/", "--ca", "empty"], "--ca: empty: it holds no certificate");
    expect_refusal(&["http://name.invalid/"], "http://name.invalid/: ");
}

#[test]
fn ctrl_c_prints_measured_part() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    let child = dir.start(&["load", &url, "--duration", "1h", "--no-warm-up"]);
    assert!(is_met_within(HANG_TIMEOUT, || handles_interrupts(&child)));
    signal(&child, "INT");
    let output = wait_for_output(child, &["load"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("ended early by SIGINT"), "{}", stdout(&output));
}

/// Starts a server that answers each request with a beginning and then the same bytes without end; counts the bytes.
fn start_endless_server(beginning: &'static str, repeated: &'static str) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, sent_bytes) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
    let counter = Arc::clone(&sent_bytes);
    std::thread::spawn(move || {
        let block = repeated.repeat(1000);
        for connection in listener.incoming().flatten() {
            let (counter, block) = (Arc::clone(&counter), block.clone());
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut writer = &connection;
                writer.write_all(beginning.as_bytes())?;
                loop {
                    writer.write_all(block.as_bytes())?;
                    counter.fetch_add(block.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    (address, sent_bytes)
}

/// Bytes of memory that a process had at most.
fn peak_memory(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn endless_answers_use_bounded_memory() {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    let dir = TestDir::new();
    for (beginning, repeated) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        (OK, "X-Header: value\r\n"),
        (OK, "x"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", "body"),
        ("HTTP/1.1 200 OK\r\n\r\n", "body"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5;extension\r\nchunk\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "body"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Trailer: value\r\n"),
    ] {
        let (address, sent_bytes) = start_endless_server(beginning, repeated);
        let url = format!("http://{address}/");
        let child = dir.start(&["load", &url, "--users", "4", "--duration", "1h", "--no-warm-up", "--json"]);
        assert!(
            is_met_within(HANG_TIMEOUT, || sent_bytes.load(Ordering::Relaxed) > 100_000_000),
            "{beginning:?} {repeated:?}"
        );
        let peak = peak_memory(&child);
        assert!(peak < 60 << 20, "{peak} after {beginning:?} {repeated:?}");
        signal(&child, "INT");
        let data = json(&wait_for_output(child, &["load"]));
        assert_eq!((&data["interrupted"], &data["requests"]), (&"SIGINT".into(), &0.into()), "{data}");
    }
}

/// A configuration of nginx that speaks HTTP/2, by its own directives alone, and ends each connection after 50 requests.
const NGINX_HTTP2_CONF: &str = "daemon off; master_process off; pid nginx.pid; error_log stderr; events {} http { access_log off; \
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; keepalive_requests 50; \
    http2_max_concurrent_streams 4; server { listen unix:plain.socket http2; listen unix:tls.socket ssl http2; server_name localhost; \
    ssl_certificate cert.pem; ssl_certificate_key key.pem; root .; } }";

#[test]
fn nginx_is_loaded_by_http2() {
    let dir = TestDir::new();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let files = [
        ("nginx.conf", NGINX_HTTP2_CONF.to_owned()),
        ("cert.pem", cert.pem()),
        ("key.pem", signing_key.serialize_pem()),
    ];
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    fs::write(dir.path().join("file"), "x".repeat(20_000)).unwrap();
    let mut command = Command::new("nginx");
    command.current_dir(dir.path()).arg("-p").arg(dir.path()).args(["-c", "nginx.conf"]).stderr(Stdio::null());
    let mut nginx = match command.spawn() {
        Ok(nginx) => nginx,
        Err(error) => {
            return MissingRequirement::program("nginx", "nginx", &error).report_skip("kelvin load on nginx by HTTP/2");
        }
    };
    let socket = dir.path().join("tls.socket");
    let is_listening = is_met_within(HANG_TIMEOUT, || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let run = |url: &str, options: &[&str]| {
        let common = ["--http2", "-n", "400", "-c", "12", "--verify", "--root", ".", "--json"];
        dir.run(&[&["load", url], options, &common].concat())
    };
    let plain = run("http://localhost/file", &["--unix-socket", "plain.socket", "--streams", "3"]);
    let secure = ["--unix-socket", "tls.socket", "--ca", "cert.pem"];
    let by_tls = run("https://localhost/file", &[&secure[..], &["--streams", "6"]].concat());
    nginx.kill().unwrap();
    nginx.wait().unwrap();
    assert!(is_listening);
    for (output, allowed) in [(plain, Value::Null), (by_tls, 4.into())] {
        let data = json(&output);
        assert_eq!((&data["requests"], &data["bytes"]), (&400.into(), &8_000_000.into()), "{data}");
        assert_eq!((&data["http2"]["allowed_streams"], output.status.code()), (&allowed, Some(0)), "{data}");
        assert!(data["http2"]["goaways"].as_u64() > Some(2) && data["connections"].as_u64() > Some(4), "{data}");
    }
}

#[test]
fn what_http2_cannot_do_is_refused() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_echo_server()));
    for (options, words) in [
        (&["--streams", "4"][..], &["--http2"][..]),
        (&["--http2", "--no-keepalive"], &["--no-keepalive"]),
        (&["--http2", "--streams", "0"], &["--streams", "1 to 1000"]),
        (&["--http2", "-H", "Connection: close"], &["--http2: HTTP/2 has no header connection: leave it out"]),
        (
            &["--http2", "--rate", "9", "--connections", "5000", "--streams", "300"],
            &["--streams 300: ", "--connections 5000"],
        ),
    ] {
        assert_refused(&load(&dir, &[&[&*url], options].concat()), words);
    }
    // A server that speaks HTTP/1.1 alone brings no answer, and is told from one that is gone.
    let output = load(&dir, &[&url, "--http2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).replace('\n', " ").contains("the server does not speak HTTP/2 (leave out --http2)"),
        "{}",
        stdout(&output)
    );
}
