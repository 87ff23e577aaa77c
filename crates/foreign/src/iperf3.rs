//! iperf3: the JSON of `--json`.

use kelvin_catalogue::net::{PEER_BANDWIDTH, STREAMS, StreamDirection};
use kelvin_model::{Case, Fact};
use serde::Deserialize;

use crate::lmbench::architecture;
use crate::table::{Found, Row, version};

static STREAM: Row = Row::same(
    "TCP to another host: end.sum_received.bits_per_second",
    &PEER_BANDWIDTH,
    "bytes that arrive at the other end, counted there, from a sender that never waits",
);
static LOCAL: Row =
    Row::other("TCP within one host", "where sender and receiver run is left to the scheduler, and decides the rate");
static DATAGRAMS: Row = Row::other("UDP", "iperf3 paces its datagrams; kelvin's sender never waits");
static SCTP: Row = Row::other("another protocol than TCP", "kelvin measures none");
static LIMITED: Row = Row::other("a stream limited to a rate (--bitrate)", "it measures the limit");
static BOTH_WAYS: Row = Row::other("both directions at once (--bidir)", "kelvin's streams go one way");
static ONE_THREAD: Row =
    Row::other("several streams by an iperf3 before 3.16", "one thread sends them all; kelvin's have a thread each");

/// All of it.
pub(crate) static TABLE: &[Row] = &[STREAM, LOCAL, DATAGRAMS, SCTP, LIMITED, BOTH_WAYS, ONE_THREAD];

#[derive(Deserialize)]
struct File {
    start: Start,
    end: End,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    version: String,
    #[serde(default)]
    system_info: String,
    timestamp: Option<Stamp>,
    #[serde(default)]
    connected: Vec<Connected>,
    test_start: Option<Test>,
}

#[derive(Deserialize)]
struct Stamp {
    timesecs: i64,
}

#[derive(Deserialize)]
struct Connected {
    local_host: String,
    remote_host: String,
}

#[derive(Deserialize)]
struct Test {
    protocol: String,
    num_streams: u64,
    #[serde(default)]
    reverse: u64,
    #[serde(default)]
    bidir: u64,
    #[serde(default)]
    target_bitrate: f64,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
}

/// Whether it is an object whose start says which iperf it is.
pub(crate) fn is_signed(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Signature {
        start: Who,
    }
    #[derive(Deserialize)]
    struct Who {
        version: String,
    }
    text.trim_start().starts_with('{')
        && serde_json::from_str::<Signature>(text).is_ok_and(|signature| signature.start.version.starts_with("iperf 3"))
}

pub(crate) fn read(text: &str) -> Result<Found, String> {
    if !is_signed(text) {
        return Err("it is no JSON object with start.version \"iperf 3\" (--json)".into());
    }
    let File { start, end, error } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if error.is_some() {
        return Err("it says that the test failed (error)".into());
    }
    let test = start.test_start.as_ref().ok_or("start.test_start is missing")?;
    let mut found = Found { version: version(start.version.trim_start_matches("iperf ")), ..Found::default() };
    found.made_at = start.timestamp.as_ref().and_then(|stamp| stamp.timesecs.checked_mul(1000));
    machine(&start.system_info, &mut found);
    match (differs(&start, test), &end.sum_received) {
        (Some(row), _) => found.leave_out(row),
        (None, None) => return Err("end.sum_received is missing: the receiver's count".into()),
        (None, Some(sum)) => {
            let direction = if test.reverse == 0 { StreamDirection::ToAgent } else { StreamDirection::FromAgent };
            let case = Case::new().with(STREAMS, test.num_streams).at(direction);
            found.keep(&STREAM, case, sum.bits_per_second / 8.0);
        }
    }
    Ok(found)
}

/// Why it is no metric of kelvin.
fn differs(start: &Start, test: &Test) -> Option<&'static Row> {
    let is_local = start.connected.is_empty() || start.connected.iter().any(|pair| pair.local_host == pair.remote_host);
    match test.protocol.as_str() {
        "TCP" => {}
        "UDP" => return Some(&DATAGRAMS),
        _ => return Some(&SCTP),
    }
    [
        (is_local, &LOCAL),
        (test.bidir != 0, &BOTH_WAYS),
        (test.target_bitrate != 0.0, &LIMITED),
        (test.num_streams != 1 && !has_threads(&start.version), &ONE_THREAD),
    ]
    .into_iter()
    .find_map(|(differs, row)| differs.then_some(row))
}

/// Whether an iperf3 of this version has a thread for each stream: from 3.16 on, by its release notes.
fn has_threads(version: &str) -> bool {
    let minor = version
        .strip_prefix("iperf 3.")
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 16)
}

/// Of what uname says, the kernel's release and the architecture: not the host's name.
fn machine(system_info: &str, found: &mut Found) {
    const SOURCE: &str = "iperf3";
    let words: Vec<&str> = system_info.split(' ').collect();
    if let ["Linux", _host, release, ..] = words[..] {
        found.machine.kernel.release = Fact::known(version(release), SOURCE);
    }
    if let Some(architecture) = words.last().and_then(|word| architecture(word)) {
        found.machine.architecture = architecture;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_threads_from_a_version_on() {
        let versions = ["iperf 3.12", "iperf 3.9", "iperf 3.16", "iperf 3.17.1+", "iperf 4.0", "iperf 3."];
        assert_eq!(versions.map(has_threads), [false, false, true, true, false, false]);
    }
}
