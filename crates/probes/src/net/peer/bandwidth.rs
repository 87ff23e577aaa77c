//! How many bytes a second arrive at another host over TCP, and how many from there, counted where they arrive.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Axis, AxisScale, Basis, Better, Canaries, Case, Metric, NoPrediction, Prediction, Treatment, Unit};
use kelvin_wire::message::Direction;

use super::AGENT;
use super::streams::{MESSAGE, Wanted, stream};
use super::watched::{FEWEST, share};
use crate::claimed::fastest_link;
use crate::net::sender::Way;
use crate::predict::Predicting;

/// Connections at a time, each with a thread at either end.
const STREAMS: Axis = Axis::new("streams", "streams, each a thread", AxisScale::Linear);
/// Which way the bytes go.
const DIRECTION: Axis = Axis::new("direction", "direction", AxisScale::Category);
/// Its words in cases.
const DIRECTIONS: [(&str, Direction); 2] = [("to_agent", Direction::ToAgent), ("from_agent", Direction::FromAgent)];

const fn metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::rate(id, summary)
        .over([Some(STREAMS), Some(DIRECTION), None])
        .headline(Treatment::AsFound)
        .canaries(Canaries::NONE)
}

pub(super) static METRIC: Metric = metric(
    "net.peer.bandwidth",
    "Bytes per second that arrive at another host over TCP, or from it, counted where they arrive",
);
static BUSY_HERE: Metric = share(
    metric("net.peer.bandwidth.busy_here", "Share of a CPU that the fullest CPU or thread of this host was busy"),
    Better::Neither,
);
static BUSY_THERE: Metric = share(
    metric(
        "net.peer.bandwidth.busy_there",
        "Share of a CPU that the fullest CPU or thread of the agent's host was busy",
    ),
    Better::Neither,
);

pub(in crate::net) static PROBE: Probe = Probe {
    id: "net.peer.bandwidth",
    summary: "Bytes to another host over TCP and from it, by streams (--peer HOST)",
    kind: Kind::Study,
    method: Method {
        how: "direction=to_agent: a thread for each stream, on the CPUs in turn, sends messages of 128 KiB to `kelvin agent` on \
              another host, where a thread for each takes them. The agent counts what arrives, and says it when it is asked, with \
              its own time: the rate is that between two such answers, 200 ms apart at least. direction=from_agent: the agent sends, \
              over connections that this host opened, and threads of this host take and count it by this host's clock, over the \
              same windows (iperf3 -R). Windows begin when the rate no longer \
              rises, so that slow start is left out. The buffers of each connection grow by themselves and the congestion control \
              is that of either system, unless --congestion-control and --socket-buffers ask for something else, at both ends; what \
              was asked for and obtained, TCP_INFO of both ends and the interfaces are noted. How busy either host was is measured in the same \
              windows: its busiest thread of the test, and its fullest CPU by the kernel's own account (/proc/stat), which also \
              has the packets in it. A host that is the limit is named.",
        prediction: "What the fastest interface of this machine claims x payload / bytes on the wire of a packet: with \
                     timestamps (MTU - 52) / (MTU + 38) of Ethernet. None if no interface has a rate, as virtual ones have \
                     none. Unremarkable from three quarters of it up to all of it.",
        not_for: "The speed of the link where a host is the limit: it is said then that it is CPU-limited.",
        pitfalls: &[
            "A shaper on the way counts other bytes than the wire does, and the claim of the interface knows nothing of it.",
            "Loss: segments that were sent again are noted, by the end that sent them.",
            AGENT,
        ],
        sources: &["iperf3", "RFC 7323 (timestamps), IEEE 802.3: preamble, header, check sequence, gap of 38 bytes"],
    },
    metrics: &[&METRIC, &BUSY_HERE, &BUSY_THERE],
    inputs: &[],
    cases: |_, effort| match effort {
        Effort::Quick => DIRECTIONS.map(|(word, _)| case(1, word)).to_vec(),
        // What more streams add is a matter of the hosts and of what is on the way, and seldom another one on the way back.
        Effort::Default => vec![streams(1), streams(2), streams(4), case(1, "from_agent"), case(4, "from_agent")],
        Effort::Thorough => [1, 2, 4].iter().flat_map(|&count| DIRECTIONS.map(|(word, _)| case(count, word))).collect(),
    },
    run,
    predict: |facts, metric, _| match metric.id == METRIC.id {
        true => predict(facts),
        false => Err(NoPrediction::because("it depends on which of the link and the two hosts is the slowest")),
    },
};

/// The case of so many streams to the agent.
pub(super) fn streams(count: u64) -> Case {
    case(count, "to_agent")
}

fn case(count: u64, direction: &'static str) -> Case {
    Case::new().with(&STREAMS.name, count).with_word(&DIRECTION.name, direction)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let count = case.integer(&STREAMS.name).filter(|count| (1..=16).contains(count));
    let count = count.ok_or_else(|| Stop::fail(format!("the case needs 1 to 16 streams, not {case}")))?;
    let word = case.word(&DIRECTION.name).unwrap_or_default();
    let direction = DIRECTIONS.iter().find(|(known, _)| *known == word).map(|(_, direction)| *direction);
    let direction =
        direction.ok_or_else(|| Stop::fail(format!("the case needs direction to_agent or from_agent, not {case}")))?;
    let wanted = Wanted { direction, streams: count as u32, way: Way::Send, message: MESSAGE, windows: FEWEST };
    let streamed = stream(bench, wanted)?;
    streamed.notes.iter().for_each(|note| bench.note(note));
    bench.record(&METRIC, streamed.rates());
    bench.record(&BUSY_HERE, vec![streamed.busy[0].fullest()]);
    bench.record(&BUSY_THERE, vec![streamed.busy[1].fullest()]);
    Ok(())
}

fn predict(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let Some((claimed, interface)) = fastest_link(facts.machine()) else {
        return Err(NoPrediction::because("no interface of this machine has a rate that is known"));
    };
    let Some(&mtu) = interface.mtu.get() else {
        return Err(NoPrediction::because(format!("the MTU of {} is not known", interface.name)));
    };
    let share = payload_share(mtu);
    let value = claimed.value * share;
    let derivation = format!("{:.1} MB/s x ({mtu} - 52) / ({mtu} + 38) = {:.1} MB/s", claimed.value / 1e6, value / 1e6);
    Ok(Predicting::between(Basis::Derived, value, value * 0.75, value)
        .formula("link rate x (MTU - 52) / (MTU + 38)")
        .input(claimed)
        .constant("MTU", f64::from(mtu), Unit::Bytes, "the same interface")
        .source("IEEE 802.3: preamble 8, header 14, check sequence 4, gap 12 bytes; IP 20, TCP 20, timestamps 12 bytes")
        .derived_as(derivation))
}

/// The share of the bytes on an Ethernet that is payload of TCP with timestamps.
fn payload_share(mtu: u32) -> f64 {
    (f64::from(mtu) - 52.0) / (f64::from(mtu) + 38.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_an_ethernet_is_as_it_is_known() {
        // 941.48 Mbit/s of a gigabit link, as every iperf3 on one shows.
        assert!((payload_share(1500) - 0.941_482).abs() < 1e-6);
        assert!((payload_share(9000) - 0.990_04).abs() < 1e-5);
    }
}
