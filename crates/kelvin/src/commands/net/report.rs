//! The report of a test of throughput, for JSON and in words.

use kelvin_core::units;
use kelvin_stats::{CONFIDENCE_LEVEL, MIN_INTERVAL_ROUNDS, UncertainValue, effective_samples};
use kelvin_transfer::wire::client::throughput::{ThroughputOutcome, ThroughputSample};
use kelvin_transfer::wire::cpu_usage::CpuUsage;
use kelvin_transfer::wire::message::{TestDirection, Transport};
use kelvin_transfer::wire::test_socket::TcpEndInfo;
use kelvin_transfer::wire::throughput::{StreamCounts, ThroughputSpec};
use serde::Serialize;

use super::flow::{DatagramFlow, Direction, Flow};
use super::limit::FlowLimit;
use super::text::{lost_percent, rate_text};

/// A test, for JSON.
#[derive(Serialize)]
pub(super) struct NetReport {
    /// The agent's address; none of this process.
    pub(super) agent: Option<String>,
    pub(super) options: ThroughputSpec,
    pub(super) intervals: Vec<IntervalReport>,
    directions: Vec<DirectionReport>,
    /// Most tests that the agent served at one time, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    tests_of_agent: Option<u32>,
    /// Whether a signal ended it.
    pub(super) interrupted: bool,
}

/// A part of the time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct IntervalReport {
    /// Seconds since the test began.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) warm_up: bool,
    pub(super) flows: Vec<DirectedFlow>,
}

/// What one direction carried.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DirectedFlow {
    /// To the agent, or from it.
    pub(super) direction: &'static str,
    #[serde(flatten)]
    pub(super) flow: Flow,
}

/// What came of a direction.
#[derive(Serialize)]
struct DirectionReport {
    #[serde(flatten)]
    carried: DirectedFlow,
    /// The 95 % interval of the mean rate, where the time has enough parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_second_interval: Option<(f64, f64)>,
    /// From the first byte to the last one, whatever was on its way at the end of the time.
    whole: WholeTest,
    /// The kernel's report on the sender's first connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<TcpEndInfo>,
    limit: FlowLimit,
}

/// What both ends counted of a whole test.
#[derive(Serialize)]
struct WholeTest {
    bytes_sent: u64,
    bytes_received: u64,
    /// Whether each stream's bytes are the same at both ends.
    ends_agree: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams: Option<DatagramFlow>,
}

/// The name of a direction.
pub(super) fn direction_word(direction: TestDirection) -> &'static str {
    match direction {
        TestDirection::ToAgent => "to",
        TestDirection::FromAgent => "from",
    }
}

/// What every direction of a test carried.
pub(super) fn directed_flows(spec: &ThroughputSpec, flow: impl Fn(Direction) -> Flow) -> Vec<DirectedFlow> {
    let directed = |direction: Direction| {
        let flow = flow(direction);
        DirectedFlow { direction: direction_word(direction.direction), flow }
    };
    Direction::all(spec).into_iter().map(directed).collect()
}

/// What a test is, and what came of it.
pub(super) struct MeasuredTest<'a> {
    pub(super) spec: &'a ThroughputSpec,
    pub(super) outcome: &'a ThroughputOutcome,
    /// Looks that do not count, at the beginning.
    pub(super) warm_up_looks: usize,
    /// The agent's host, as the user named it; none of this process.
    pub(super) host: Option<&'a str>,
}

impl NetReport {
    /// Of a test and its intervals; `None` if it ended before anything counted.
    pub(super) fn new(
        test: &MeasuredTest<'_>,
        agent: Option<String>,
        intervals: Vec<IntervalReport>,
        interrupted: bool,
    ) -> Option<Self> {
        let directions = Direction::all(test.spec).into_iter().map(|direction| test.direction_report(direction));
        Some(Self {
            agent,
            options: test.spec.clone(),
            intervals,
            directions: directions.collect::<Option<_>>()?,
            tests_of_agent: test.outcome.report.as_ref().map(|report| report.max_concurrent_tests),
            interrupted,
        })
    }

    /// Whether it was measured, and both ends agree on what was carried.
    pub(super) fn is_sound(&self) -> bool {
        let is_tcp = self.options.transport == Transport::Tcp;
        !self.interrupted && self.directions.iter().all(|direction| direction.whole.ends_agree || !is_tcp)
    }

    /// The labelled lines for people; an empty one between directions.
    pub(super) fn lines(&self, host: Option<&str>) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for direction in &self.directions {
            if !lines.is_empty() {
                lines.push(("", String::new()));
            }
            lines.extend(direction.lines(&self.options, host, self.directions.len() > 1));
        }
        if let Some(tests) = self.tests_of_agent.filter(|&tests| tests > 1) {
            lines.push(("beside", format!("the agent served up to {tests} tests at once, which share its host")));
        }
        if self.interrupted {
            lines.push(("end", "interrupted: the figures are those until then".to_owned()));
        }
        lines
    }
}

impl MeasuredTest<'_> {
    fn direction_report(&self, direction: Direction) -> Option<DirectionReport> {
        let Self { spec, outcome, .. } = *self;
        let counted = &outcome.samples[self.warm_up_looks.min(outcome.samples.len() - 1)..];
        let mut flow = match (&outcome.last, spec.bytes) {
            (Some(last), Some(_)) => direction.whole_flow(last),
            _ if counted.len() < 2 => return None,
            _ => direction.flow(&counted[0], &counted[counted.len() - 1]),
        };
        (flow.cpu.sender, flow.cpu.receiver) = (
            median_usage(counted, |sample| direction.ends(sample).sender.busy),
            median_usage(counted, |sample| direction.ends(sample).receiver.busy),
        );
        let rates: Vec<f64> =
            counted.windows(2).map(|pair| direction.flow(&pair[0], &pair[1]).bits_per_second).collect();
        let limit = FlowLimit::find(spec, &flow, direction.streams, end_names(direction.direction, self.host));
        let connection = match direction.direction {
            TestDirection::ToAgent => outcome.connection.clone(),
            TestDirection::FromAgent => outcome.report.as_ref().and_then(|report| report.stream.clone()),
        };
        let end = outcome.last.as_ref().unwrap_or(&counted[counted.len() - 1]);
        Some(DirectionReport {
            bits_per_second_interval: rate_interval(flow.bits_per_second, &rates),
            carried: DirectedFlow { direction: direction_word(direction.direction), flow },
            whole: WholeTest::new(direction, end),
            connection: connection.filter(|_| spec.transport == Transport::Tcp),
            limit,
        })
    }
}

fn median_usage(counted: &[ThroughputSample], busy: impl Fn(&ThroughputSample) -> CpuUsage) -> CpuUsage {
    // The first one shows what was before.
    let usages: Vec<CpuUsage> = counted.iter().skip(1).map(busy).collect();
    CpuUsage::median(&usages).unwrap_or_default()
}

/// The 95 % interval of a mean rate, by the rates of equal parts of the time; it is wider where neighbours are alike.
fn rate_interval(mean: f64, rates: &[f64]) -> Option<(f64, f64)> {
    let parts = (rates.len() >= MIN_INTERVAL_ROUNDS).then(|| UncertainValue::mean(rates)).flatten()?;
    let dependence = rates.len() as f64 / effective_samples(&[rates]).max(1.0);
    let (low, high) = parts.widened(dependence.max(1.0).sqrt()).interval(CONFIDENCE_LEVEL);
    Some((low.max(0.0).min(mean), high.max(mean)))
}

/// The sending and the receiving end, in words.
fn end_names(direction: TestDirection, host: Option<&str>) -> [&str; 2] {
    match (direction, host) {
        (_, None) => ["the sending end", "the receiving end"],
        (TestDirection::ToAgent, Some(host)) => ["this host", host],
        (TestDirection::FromAgent, Some(host)) => [host, "this host"],
    }
}

impl WholeTest {
    fn new(direction: Direction, last: &ThroughputSample) -> Self {
        let ends = direction.ends(last);
        let sum = |streams: &[StreamCounts]| streams.iter().map(|stream| stream.bytes).sum();
        let mut flow = direction.whole_flow(last);
        if let Some(datagrams) = &mut flow.datagrams {
            // What was sent last, too, has arrived by now or is lost.
            datagrams.lost = datagrams.sent.saturating_sub(datagrams.arrived);
        }
        Self {
            bytes_sent: sum(ends.senders()),
            bytes_received: sum(ends.receivers()),
            ends_agree: ends
                .senders()
                .iter()
                .zip(ends.receivers())
                .all(|(sent, received)| sent.bytes == received.bytes),
            datagrams: flow.datagrams,
        }
    }
}

impl DirectionReport {
    fn lines(&self, spec: &ThroughputSpec, host: Option<&str>, is_one_of_two: bool) -> Vec<(&'static str, String)> {
        let DirectedFlow { direction, flow } = &self.carried;
        let mut lines = Vec::new();
        if is_one_of_two {
            lines.push(("direction", format!("{direction} {}", host.unwrap_or("the other end"))));
        }
        let interval = match self.bits_per_second_interval {
            Some((low, high)) => format!("{} to {}, 95 %", rate_text(low), rate_text(high)),
            None => "too few parts of the time for an interval".to_owned(),
        };
        let (rate, bytes) = (rate_text(flow.bits_per_second), units::decimal_bytes(flow.bytes as f64));
        lines.push(("rate", format!("{rate} ({interval}), {bytes} in {}", units::seconds(flow.seconds))));
        if let [_, _, ..] = flow.stream_bytes[..] {
            let rate = |bytes: Option<&u64>| rate_text(8.0 * bytes.copied().unwrap_or(0) as f64 / flow.seconds);
            let (slowest, fastest) = (rate(flow.stream_bytes.iter().min()), rate(flow.stream_bytes.iter().max()));
            lines.push(("streams", format!("{}: {slowest} to {fastest}", flow.stream_bytes.len())));
        }
        lines.push(match &self.whole.datagrams {
            Some(datagrams) => ("datagrams", datagrams.text(flow)),
            None => self.whole.verified_line(),
        });
        if let Some(tcp) = &flow.tcp {
            let again = format!("{} sent again", units::plural(tcp.retransmits, "segment"));
            let connection = self.connection.as_ref().map_or_else(String::new, |info| {
                let TcpEndInfo { congestion_control, mss, buffers: [send, _], .. } = info;
                let send = units::bytes((*send).into());
                format!("; {congestion_control}, segments of {mss} bytes, send buffer of {send}")
            });
            let (trip, window) = (units::seconds(tcp.round_trip), units::decimal_bytes(tcp.congestion_window as f64));
            lines.push(("TCP", format!("{again}, round trip {trip}, congestion window {window}{connection}")));
        }
        let direction = if *direction == "to" { TestDirection::ToAgent } else { TestDirection::FromAgent };
        let [sender, receiver] = end_names(direction, host);
        lines.push(("CPU", format!("{sender}: {}", flow.cpu.sender)));
        lines.push(("", format!("{receiver}: {}", flow.cpu.receiver)));
        lines.push(("limit", self.limit.text.clone()));
        if spec.transport == Transport::Udp && spec.bits_per_second == Some(super::DEFAULT_DATAGRAM_RATE) {
            lines
                .push(("", "1 Mbit/s is the default of --udp; -b 1G offers more, -b 0 as much as possible".to_owned()));
        }
        lines
    }
}

impl DatagramFlow {
    /// What became of all datagrams of a test; the jitter is that at the end of the time that counts.
    fn text(&self, counted: &Flow) -> String {
        let Self { sent, arrived, lost, dropped_by_receiver, reordered, .. } = self;
        let percent = lost_percent(*lost, *sent);
        let mut text = format!("{} sent, {} arrived", units::count(*sent), units::count(*arrived));
        text += &format!(", {} lost ({percent} %)", units::count(*lost));
        if *dropped_by_receiver > 0 {
            text +=
                &format!(", of these {} at the receiver, whose socket was full", units::count(*dropped_by_receiver));
        }
        let jitter = counted.datagrams.as_ref().map_or(0.0, |datagrams| datagrams.jitter);
        text + &format!(", {} reordered; jitter {} (RFC 3550)", units::count(*reordered), units::seconds(jitter))
    }
}

impl WholeTest {
    fn verified_line(&self) -> (&'static str, String) {
        let [sent, received] = [self.bytes_sent, self.bytes_received].map(units::count);
        match self.ends_agree {
            true => ("verified", format!("the receiver has all {sent} bytes that were sent, in each stream")),
            false => ("not verified", format!("{sent} bytes were sent, and {received} had arrived at the end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_a_rate_is_wider_where_neighbours_are_alike() {
        let alternating = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0];
        let stepped = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0];
        let width = |rates: &[f64]| rate_interval(2.0, rates).map(|(low, high)| high - low).unwrap();
        assert!(width(&stepped) > 1.5 * width(&alternating), "{} {}", width(&stepped), width(&alternating));
        assert_eq!(rate_interval(2.0, &alternating[..3]), None);
        let (low, high) = rate_interval(9.0, &alternating).unwrap();
        assert!(low > 0.0 && high == 9.0, "the figure lies within");
    }
}
