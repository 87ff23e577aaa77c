//! A link of known rate: two network namespaces joined by a veth pair, one of which is shaped.
//!
//! The namespaces and interfaces belong to this process and end with it. Nothing is sent anywhere else.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use kelvin_core::catalogue::truth::{LINK, LINK_COUNTED_RATIO, LINK_RATE};
use kelvin_sys::net::iproute::{self, ConfigureError, limit_rate};
use kelvin_sys::net::namespace::Namespace;
use kelvin_sys::net::qdisc::{Qdisc, QdiscCounts};
use kelvin_sys::net::set_congestion_control;

use crate::net::bandwidth::stream_cpus;
use crate::net::bulk::{BulkStreams, StreamPlan, place_streams};
use crate::net::link::Link;
use crate::prelude::*;

/// Bits per second that the shaper passes.
const RATES: [u64; 3] = [10_000_000, 100_000_000, 1_000_000_000];
/// The interfaces' MTU, and its overhead: headers of IP and TCP, and the time stamps.
const MTU: f64 = 1500.0;
const HEADER_BYTES: f64 = 20.0 + 20.0 + 12.0;
/// What the shaper counts in addition to the packet: the Ethernet header. There is no wire, so nothing else.
const ETHERNET_HEADER: f64 = 14.0;
/// It fills the shaper's queue until a packet is dropped, so the link stays saturated even while this machine is busy;
/// a delay-based one keeps the queue nearly empty. It is part of every kernel.
const CONGESTION_CONTROL: &str = "reno";
/// Time after which the shaper's initial burst is spent and the connection has settled.
const SETTLE_TIME: Duration = Duration::from_millis(1500);
/// Time of a figure: at the slowest rate some sixty segments of 64 KiB, the most that TCP passes at once, and less on a
/// slow link.
const MEASURE_TIME: Duration = Duration::from_millis(3000);
/// Accuracy of the construction.
const MAX_RELATIVE_ERROR: f64 = 0.02;

pub(super) static PROBE: Probe = Probe {
    summary: "A TCP stream between two network namespaces over a shaped link",
    method: include_str!("link.md"),
    cases: |_, effort| numbers(LINK_RATE, if effort == Effort::Quick { &RATES[1..2] } else { &RATES }),
    run,
    predict,
    ..Probe::truth(&[&LINK, &LINK_COUNTED_RATIO])
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let rate = LINK_RATE.number_in(case).filter(|&rate| rate >= 1_000_000);
    let rate = rate.or_fail(format!("the case needs a rate of at least 1 Mbit/s, not {case}"))?;
    let (link, mut shaper) = shaped_link(rate)?;
    let plan = StreamPlan::tcp(16 << 10, place_streams(1, &stream_cpus(bench, 1), 1));
    let bulk = BulkStreams::over_links(vec![link], plan)?;
    std::thread::sleep(SETTLE_TIME);
    let before = (bulk.totals()?, shaper.counts()?);
    std::thread::sleep(MEASURE_TIME);
    let after = (bulk.totals()?, shaper.counts()?);
    let words = bulk.finish()?.words;
    let passed_bytes = payload_since(&after.1, &before.1);
    let received_bytes = after.0.bytes - before.0.bytes;
    bench.note(format!(
        "{received_bytes} bytes arrived of {passed_bytes} that the shaper ({}) passed; it dropped {} packets; {words}",
        after.1.kind,
        after.1.drops - before.1.drops
    ));
    bench.record(&LINK, vec![after.0.rate_since(&before.0)]);
    bench.record(&LINK_COUNTED_RATIO, vec![received_bytes as f64 / (passed_bytes.max(1)) as f64]);
    Ok(())
}

/// Payload bytes that the shaper has passed since an earlier reading, from its count with headers.
fn payload_since(counts: &QdiscCounts, earlier: &QdiscCounts) -> u64 {
    let (bytes, packets) = (counts.bytes - earlier.bytes, counts.packets.wrapping_sub(earlier.packets));
    bytes.saturating_sub((f64::from(packets) * (ETHERNET_HEADER + HEADER_BYTES)) as u64)
}

/// Both ends of a connection over a link shaped to this many bits per second, and its counter.
fn shaped_link(rate: u64) -> ProbeResult<((Link, Link), Qdisc)> {
    let [near_address, far_address] = [Ipv4Addr::new(10, 83, 77, 1), Ipv4Addr::new(10, 83, 77, 2)];
    let (far, near) = (enter_namespace()?, enter_namespace()?);
    configure("ip", &["link", "add", "near", "mtu", "1500", "type", "veth", "peer", "name", "far", "mtu", "1500"])?;
    configure("ip", &["link", "set", "far", "netns", &far.path()])?;
    bring_up("near", near_address)?;
    limit_rate("near", rate).map_err(configure_error)?;
    let shaper = Qdisc::open("near")?;
    far.enter()?;
    bring_up("far", far_address)?;
    let listener = TcpListener::bind((far_address, 0))?;
    near.enter()?;
    let link = Link::tcp_pair(&listener, |socket| set_congestion_control(&socket, CONGESTION_CONTROL))
        .or_fail("the two ends of the link do not reach each other")?;
    Ok((link, shaper))
}

/// A new network namespace, in which this thread then is.
pub(super) fn enter_namespace() -> ProbeResult<Namespace> {
    Namespace::enter_new().or_skip("needs the right to make a network namespace (root)")
}

/// Gives an interface of this thread's namespace an address, and sets it up.
pub(super) fn bring_up(name: &str, address: Ipv4Addr) -> ProbeResult {
    configure("ip", &["address", "add", &format!("{address}/30"), "dev", name])?;
    configure("ip", &["link", "set", name, "up"])
}

/// Runs ip or tc in this thread's namespace.
fn configure(program: &str, arguments: &[&str]) -> ProbeResult {
    iproute::configure(program, arguments).map_err(configure_error)
}

fn configure_error(error: ConfigureError) -> ProbeError {
    ProbeError::skip(match error {
        ConfigureError::Program { name, error } => format!("needs {name} (Debian: iproute2): {error}"),
        ConfigureError::Refused { command, stderr } => format!("needs a kernel and rights for `{command}`: {stderr}"),
    })
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    if *metric == LINK_COUNTED_RATIO {
        let construction = "the bytes received are the payload that the shaper passes";
        return Ok(super::known_prediction(1.0, MAX_RELATIVE_ERROR, Unit::Ratio, construction));
    }
    let rate = LINK_RATE.number_in(case).unwrap_or_default() as f64;
    let mtu = || fact("MTU", MTU, Unit::Bytes, "as configured");
    let header = |name, bytes| quantity(name, bytes, Unit::Bytes);
    let limit = fact("rate", rate / 8.0, Unit::BytesPerSecond, "the shaper's limit");
    let share = (mtu() - header("headers", HEADER_BYTES)) / (mtu() + header("Ethernet header", ETHERNET_HEADER));
    let payload = (limit * share).source(
        "Linux kernel, net/core/dev.c: qdisc_pkt_len_init counts each segment's headers; RFC 7323: 12 bytes of time stamps",
    );
    let remark = format!("the construction is accurate to {} %", MAX_RELATIVE_ERROR * 100.0);
    Ok(payload.widen_by_share(MAX_RELATIVE_ERROR).explained(PredictionBasis::Spec, "shaped link", &remark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn payload_share_of_100_mbit_is_95_64() {
        let case = Case::new().with_number(LINK_RATE, 100_000_000);
        let prediction = with_facts(&[], |facts| predict(facts, &LINK, &case)).unwrap();
        assert!((prediction.value * 8.0 / 1e6 - 95.641).abs() < 0.001, "{}", prediction.value);
        let ratio = with_facts(&[], |facts| predict(facts, &LINK_COUNTED_RATIO, &case)).unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high), (1.0, 0.98, 1.02));
    }

    #[test]
    fn shaper_counts_packet_headers() {
        let counts = |bytes, packets| QdiscCounts { kind: "tbf".into(), bytes, packets, drops: 0 };
        // Ten full packets, and one of a single byte; the count of packets begins anew after 2^32.
        let (before, after) = (counts(5_000_000_000, u32::MAX), counts(5_000_000_000 + 15_140 + 67, 10));
        assert_eq!(payload_since(&after, &before), 14_481);
    }
}
