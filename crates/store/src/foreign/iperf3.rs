//! iperf3: the JSON of `--json`, or of `--json-stream`, by the client or the server.
//!
//! A file counts as a stream of kelvin's only if it states that nothing limited it. Otherwise the result is a metric of its own.

use std::net::IpAddr;

use kelvin_core::catalogue::net::{STREAMS, StreamDirection};
use kelvin_core::{Case, Fact};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::foreign::Tool;
use crate::foreign::json::{deserializes_to, is_only_object, only_object};
use crate::foreign::lmbench::architecture;
use crate::foreign::mapping::{ParsedResults, version_prefix};

/// The block that iperf3 sends unless it is asked for another one, in bytes.
const DEFAULT_BLOCK_BYTES: u64 = 128 << 10;

/// The shortest time for which the rate is that of the stream and not of its beginning, in seconds.
const MIN_SECONDS: f64 = 0.5;

#[derive(Deserialize)]
struct Iperf3Output {
    start: Start,
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    version: String,
    #[serde(default)]
    system_info: String,
    timestamp: Option<StartTime>,
    #[serde(default)]
    connected: Vec<Connected>,
    /// Of a client.
    connecting_to: Option<serde::de::IgnoredAny>,
    /// Of a server.
    accepted_connection: Option<serde::de::IgnoredAny>,
    /// Bytes, 0 for the system's choice; an iperf3 before 3.2 does not report it.
    sock_bufsize: Option<f64>,
    /// Only where it was asked for; otherwise there is a tcp_mss_default.
    tcp_mss: Option<f64>,
    target_bitrate: Option<f64>,
    fq_rate: Option<f64>,
    test_start: Option<Test>,
}

#[derive(Deserialize)]
struct StartTime {
    timesecs: i64,
}

#[derive(Deserialize)]
struct Connected {
    local_host: String,
    remote_host: String,
}

impl Connected {
    /// Whether both ends are on one host.
    fn is_local(&self) -> bool {
        let is_loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        self.local_host == self.remote_host || is_loopback(&self.local_host) || is_loopback(&self.remote_host)
    }
}

#[derive(Deserialize)]
struct Test {
    protocol: String,
    num_streams: u64,
    blksize: Option<u64>,
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    bytes: f64,
    #[serde(default)]
    blocks: f64,
    #[serde(default)]
    reverse: u64,
    #[serde(default)]
    bidir: u64,
    #[serde(default)]
    tos: u64,
    /// Bits per second, 0 for none; an iperf3 before 3.10 does not report it.
    target_bitrate: Option<f64>,
    /// Bits per second, 0 for none; an iperf3 before 3.13 does not report it.
    fqrate: Option<f64>,
}

#[derive(Default, Deserialize)]
struct End {
    sum_received: Option<Sum>,
    sum_received_bidir_reverse: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    streams: Vec<StreamEnd>,
    /// As [`StreamEnd::diskfile`].
    diskfile: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct StreamEnd {
    /// Only of an end that reads or writes a file.
    diskfile: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: Option<f64>,
    bits_per_second: f64,
}

/// Whether it is an object whose start names the version of iperf, or the first event of a stream of them.
pub(crate) fn is_signed(text: &str) -> bool {
    is_only_object(text, is_signed_object)
        || text.lines().next().is_some_and(|line| event(line, "start").is_some_and(is_start))
}

fn is_signed_object(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Signature<'a> {
        #[serde(borrow)]
        start: &'a RawValue,
    }
    deserializes_to(text, |signature: &Signature<'_>| is_start(signature.start.get()))
}

fn is_start(data: &str) -> bool {
    #[derive(Deserialize)]
    struct StartVersion {
        version: String,
    }
    deserializes_to(data, |start: &StartVersion| start.version.starts_with("iperf 3"))
}

/// The data of a line of `--json-stream` with this event.
fn event<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct Line<'a> {
        event: &'a str,
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let line: Line<'a> = kelvin_core::json::from_str(line).ok()?;
    (line.event == name).then(|| line.data.get())
}

pub(crate) fn read(text: &str) -> Result<ParsedResults, String> {
    let Iperf3Output { start, end, error } = parse(text)?;
    if error.is_some() {
        return Err("it says that the test failed (error)".into());
    }
    let test = start.test_start.as_ref().ok_or("start.test_start is missing")?;
    let mut results = ParsedResults::new(Tool::Iperf3, start.version.trim_start_matches("iperf "));
    results.measured_at_ms = start.timestamp.as_ref().and_then(|stamp| stamp.timesecs.checked_mul(1000));
    add_machine(&start.system_info, &mut results);
    if start.connecting_to.is_some() == start.accepted_connection.is_some() {
        let problem = "it does not say whose it is: start.connecting_to or start.accepted_connection is missing";
        return Err(problem.into());
    }
    if let Some(key) = other_work(&start, test, &end) {
        results.add_not_imported(key);
        return Ok(results);
    }
    let sum = end.sum_received.as_ref().ok_or("end.sum_received is missing: the receiver's count")?;
    let seconds = sum.seconds.ok_or("end.sum_received.seconds is missing")?;
    if seconds < MIN_SECONDS.max(0.9 * test.duration) {
        results.add_not_imported("too_short");
        return Ok(results);
    }
    // The client sends unless it is asked to receive.
    let sends = start.connecting_to.is_some() && test.reverse == 0;
    let direction = if sends { StreamDirection::ToAgent } else { StreamDirection::FromAgent };
    let unknown_limits = possible_limits(&start, test);
    let case = Case::new().with_number(STREAMS, test.num_streams).with_word(direction);
    results.add_value(
        if unknown_limits.is_empty() { "tcp_stream" } else { "maybe_limited" },
        case,
        sum.bits_per_second / 8.0,
    );
    if !unknown_limits.is_empty() {
        let options = unknown_limits.join(" or ");
        results.add_note(format!("it does not say whether {options} was asked for: the figure is a metric of its own"));
    }
    results.add_note("iperf3 does not say whether --congestion, --zerocopy, --skip-rx-copy or --mptcp was asked for");
    Ok(results)
}

/// The options that may have limited the stream and of which the file does not report whether they were set.
fn possible_limits(start: &Start, test: &Test) -> Vec<&'static str> {
    let options = [
        (test.target_bitrate.or(start.target_bitrate).is_none(), "--bitrate"),
        (start.sock_bufsize.is_none(), "--window"),
        (test.fqrate.or(start.fq_rate).is_none(), "--fq-rate"),
        // Only the end that reads or writes the file reports it.
        (start.accepted_connection.is_some(), "--file"),
    ];
    options.into_iter().filter_map(|(is_missing, option)| is_missing.then_some(option)).collect()
}

/// What a file holds: one object, or events of which the first and the last are what it consists of.
fn parse(text: &str) -> Result<Iperf3Output, String> {
    let starts: Vec<&str> =
        text.lines().filter_map(|line| event(line, "start")).filter(|data| is_start(data)).collect();
    match starts[..] {
        [] => {
            let object = only_object(text, is_signed_object)?;
            parse_object(object).map_err(|error| error.to_string())
        }
        [start] => {
            let event_data = |name| text.lines().find_map(|line| event(line, name));
            let end = event_data("end").ok_or("the event \"end\" is missing: the test did not end")?;
            Ok(Iperf3Output {
                start: parse_object(start).map_err(|error| format!("event \"start\": {error}"))?,
                end: parse_object(end).map_err(|error| format!("event \"end\": {error}"))?,
                error: event_data("error").map(str::to_owned),
            })
        }
        _ => Err(format!("it holds {} results: keep one of them, alone in its file", starts.len())),
    }
}

/// The fields of an object, in which iperf3 writes some once for each stream.
fn parse_object<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    kelvin_core::json::from_str(text).and_then(serde_json::from_value::<T>)
}

/// Why it is no stream of kelvin's, by the key of its result.
fn other_work(start: &Start, test: &Test, end: &End) -> Option<&'static str> {
    let is_local = start.connected.is_empty() || start.connected.iter().any(Connected::is_local);
    match test.protocol.as_str() {
        "TCP" => {}
        "UDP" => return Some("udp"),
        _ => return Some("sctp"),
    }
    let limits = [test.target_bitrate, start.target_bitrate, test.fqrate, start.fq_rate];
    // Before 3.13 only the sums of the other direction show both.
    let is_both_ways =
        test.bidir != 0 || end.sum_received_bidir_reverse.is_some() || start.connected.len() as u64 > test.num_streams;
    [
        (is_local, "same_host"),
        (is_both_ways, "bidirectional"),
        (limits.into_iter().flatten().any(|limit| limit != 0.0), "rate_limited"),
        (start.sock_bufsize.is_some_and(|bytes| bytes != 0.0), "socket_buffer"),
        (test.blksize != Some(DEFAULT_BLOCK_BYTES), "other_block_size"),
        (test.bytes != 0.0 || test.blocks != 0.0, "byte_limited"),
        (end.diskfile.is_some() || end.streams.iter().any(|stream| stream.diskfile.is_some()), "file_content"),
        (start.tcp_mss.is_some_and(|bytes| bytes != 0.0), "other_mss"),
        (test.tos != 0, "type_of_service"),
        (test.num_streams != 1 && !has_threads(&start.version), "single_threaded_streams"),
        (start.accepted_connection.is_some() && test.reverse != 0, "sender_side_file"),
    ]
    .into_iter()
    .find_map(|(is_different, key)| is_different.then_some(key))
}

/// Whether an iperf3 of this version has a thread for each stream: from 3.16 on, by its release notes.
fn has_threads(version: &str) -> bool {
    let minor = version
        .strip_prefix("iperf 3.")
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 16)
}

/// Of uname's output, the kernel's release and the architecture: not the host's name. Up to 3.1 it is what `uname -a` prints, which
/// ends with the operating system.
fn add_machine(system_info: &str, results: &mut ParsedResults) {
    const FACT_SOURCE: &str = "iperf3";
    let words: Vec<&str> = system_info.split_whitespace().collect();
    if let ["Linux", _host, release, ..] = words[..] {
        results.machine.kernel.release = Fact::known(version_prefix(release), FACT_SOURCE);
    }
    // Behind the name of the host, which may be any word.
    if let Some(architecture) = words.iter().skip(3).rev().find_map(|word| architecture(word)) {
        results.machine.architecture = architecture;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_threads_since_3_16() {
        let versions = ["iperf 3.12", "iperf 3.9", "iperf 3.16", "iperf 3.17.1+", "iperf 4.0", "iperf 3."];
        assert_eq!(versions.map(has_threads), [false, false, true, true, false, false]);
    }

    #[test]
    fn both_uname_forms_are_parsed() {
        for (text, architecture) in [
            ("Linux host 6.1.0 #1 SMP x86_64", "x86_64"),
            ("Linux host 4.4.0 #1 SMP x86_64 x86_64 x86_64 GNU/Linux\n", "x86_64"),
            ("Linux x86_64 5.4.0 #2 SMP PREEMPT aarch64 aarch64 aarch64 GNU/Linux\n", "aarch64"),
            ("Linux x86_64 5.4.0 #2 SMP riscv64", ""),
            ("", ""),
        ] {
            let mut results = ParsedResults::new(Tool::Iperf3, "");
            add_machine(text, &mut results);
            assert_eq!(results.machine.architecture, *architecture, "{text}");
        }
    }
}
