//! What limited a direction of a test: the rate that was asked for, a CPU, a window or buffer, or the network; and what would show it.

use kelvin_core::units;
use kelvin_transfer::wire::cpu_usage::{CpuUsage, SATURATED_SHARE};
use kelvin_transfer::wire::message::Transport;
use kelvin_transfer::wire::throughput::ThroughputSpec;
use serde::Serialize;

use super::flow::{DatagramFlow, Flow, TcpFlow};
use super::text::{lost_percent, rate_text};

/// The share of the rate that was asked for from which on it was reached: the first and the last message take a part of the time.
const MIN_REACHED_SHARE: f64 = 0.98;
/// Shorter tests show no limit: the kernel and the clocks of CPUs count in ticks of up to 10 ms.
const MIN_SECONDS: f64 = 0.1;
/// The share of the time from which on a full window or buffer is the limit.
const MIN_LIMITED_SHARE: f64 = 0.5;
/// The share of the time in which a window that a receiver without CPU time leaves full is that CPU's doing.
const MIN_WINDOW_OF_CPU_SHARE: f64 = 0.1;
/// The share of the time in which a connection that the network limits has something on its way.
const MIN_BUSY_SHARE: f64 = 0.9;

/// What limited a direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FlowLimit {
    pub(super) name: &'static str,
    pub(super) text: String,
}

impl FlowLimit {
    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into() }
    }

    /// From what both ends report, of the names of the sending and the receiving one.
    pub(super) fn find(spec: &ThroughputSpec, flow: &Flow, streams: usize, [sender, receiver]: [&str; 2]) -> Self {
        if flow.bytes == 0 {
            return Self::new("none", "nothing arrived");
        }
        if flow.seconds < MIN_SECONDS {
            return Self::new("unknown", "not known: the test was too short");
        }
        let asked = spec.bits_per_second.map(|bits| bits as f64 * streams as f64);
        let reached = match (&flow.datagrams, spec.transport) {
            (Some(datagrams), Transport::Udp) => datagrams.sent_bits(spec) / flow.seconds,
            _ => flow.bits_per_second,
        };
        let is_reached = asked.is_some_and(|asked| reached >= MIN_REACHED_SHARE * asked);
        if is_reached && flow.datagrams.as_ref().is_none_or(|datagrams| datagrams.lost == 0) {
            return Self::new("rate", "the rate that was asked for");
        }
        let limit = match (&flow.datagrams, &flow.tcp) {
            (Some(datagrams), _) if is_reached => by_losses(datagrams, receiver),
            (Some(datagrams), _) => by_sending(flow, datagrams, [sender, receiver]),
            (None, Some(tcp)) => by_connection(flow, tcp, [sender, receiver]),
            (None, None) => Self::new("unknown", "not known: the sender's kernel reports nothing of its connections"),
        };
        match asked.filter(|_| !is_reached) {
            Some(asked) => Self { text: format!("below the {} asked for: {}", rate_text(asked), limit.text), ..limit },
            None => limit,
        }
    }
}

impl DatagramFlow {
    /// Bits of payload that were sent.
    fn sent_bits(&self, spec: &ThroughputSpec) -> f64 {
        self.sent as f64 * 8.0 * f64::from(spec.message)
    }
}

/// Of datagrams that were sent at their rate, and did not all arrive.
fn by_losses(datagrams: &DatagramFlow, receiver: &str) -> FlowLimit {
    let share = lost_percent(datagrams.lost, datagrams.sent);
    if 2 * datagrams.dropped_by_receiver >= datagrams.lost {
        let text = format!(
            "the rate was sent, and {share} % lost, most of it at {receiver}, whose socket was full: its thread was too slow; -w gives it \
             a larger buffer, -P more threads"
        );
        return FlowLimit::new("receiver_socket", text);
    }
    let text = format!(
        "the rate was sent, and {share} % lost on the way: probably the network carries less; a lower -b would show it"
    );
    FlowLimit::new("network", text)
}

/// Of datagrams that were not sent at the rate that was asked for, or as fast as possible.
fn by_sending(flow: &Flow, datagrams: &DatagramFlow, [sender, receiver]: [&str; 2]) -> FlowLimit {
    if flow.cpu.sender.is_cpu_bound() {
        return FlowLimit::new("sender_cpu", cpu_text(sender, &flow.cpu.sender));
    }
    if datagrams.lost > 0 {
        return by_losses(datagrams, receiver);
    }
    let text = format!(
        "{sender}: its threads waited, for a CPU or for room in the queue of its interface ({})",
        flow.cpu.sender
    );
    FlowLimit::new("sender", text)
}

/// Of an end whose CPUs are full: by one thread of the test, or by all that runs on them.
fn cpu_text(end: &str, usage: &CpuUsage) -> String {
    match usage.busiest_thread >= SATURATED_SHARE {
        true => format!("probably one CPU of {end}: {usage}; -P more streams would show it, if it has more CPUs"),
        false => format!("probably the CPUs of {end}, which threads, packets and other programs share: {usage}"),
    }
}

fn by_connection(flow: &Flow, tcp: &TcpFlow, [sender, receiver]: [&str; 2]) -> FlowLimit {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let [is_sender_full, is_receiver_full] = [&flow.cpu.sender, &flow.cpu.receiver].map(CpuUsage::is_cpu_bound);
    if is_receiver_full && (tcp.window_limited >= MIN_WINDOW_OF_CPU_SHARE || !is_sender_full) {
        return FlowLimit::new("receiver_cpu", cpu_text(receiver, &flow.cpu.receiver));
    }
    if is_sender_full {
        return FlowLimit::new("sender_cpu", cpu_text(sender, &flow.cpu.sender));
    }
    if tcp.window_limited >= MIN_LIMITED_SHARE {
        let text = format!(
            "probably the receive window of {receiver}, {} a stream, which was full for {} of the time: a round trip of {} lets no more \
             through; -w larger would show it",
            units::decimal_bytes(tcp.receive_window as f64),
            percent(tcp.window_limited),
            units::seconds(tcp.round_trip)
        );
        return FlowLimit::new("receive_window", text);
    }
    if tcp.buffer_limited >= MIN_LIMITED_SHARE {
        let text = format!(
            "probably the send buffer of {sender}, which was full for {} of the time; -w larger would show it",
            percent(tcp.buffer_limited)
        );
        return FlowLimit::new("send_buffer", text);
    }
    if tcp.busy >= MIN_BUSY_SHARE {
        let cause = match tcp.retransmits {
            0 => "no segment was lost: its links or a shaper carry no more".to_owned(),
            lost => format!("{} sent again: it loses what is above its rate", units::plural(lost, "segment")),
        };
        let text = format!(
            "probably the network: data was on its way for {} of the time, in a congestion window of {} a stream, and {cause}",
            percent(tcp.busy),
            units::decimal_bytes(tcp.congestion_window as f64)
        );
        return FlowLimit::new("network", text);
    }
    let text = format!(
        "{sender}, which had nothing on its way for {} of the time: its threads waited for a CPU ({})",
        percent(1.0 - tcp.busy),
        flow.cpu.sender
    );
    FlowLimit::new("sender", text)
}

#[cfg(test)]
mod tests {
    use super::super::flow::FlowCpu;
    use super::super::flow::tests::spec;
    use super::*;

    fn flow(bits_per_second: f64, threads: [f64; 2]) -> Flow {
        let [sender, receiver] =
            threads.map(|share| CpuUsage { busiest_thread: share, threads: share, ..CpuUsage::default() });
        Flow {
            bytes: bits_per_second as u64 / 8,
            seconds: 1.0,
            bits_per_second,
            stream_bytes: vec![1],
            tcp: Some(TcpFlow {
                retransmits: 0,
                round_trip: 0.02,
                congestion_window: 1 << 20,
                receive_window: 64 << 10,
                busy: 1.0,
                window_limited: 0.0,
                buffer_limited: 0.0,
            }),
            datagrams: None,
            cpu: FlowCpu { sender, receiver },
        }
    }

    fn find(spec: &ThroughputSpec, flow: &Flow) -> FlowLimit {
        FlowLimit::find(spec, flow, 1, ["near", "far"])
    }

    fn tcp_limit(threads: [f64; 2], change: fn(&mut TcpFlow)) -> FlowLimit {
        let mut flow = flow(1e9, threads);
        flow.tcp.as_mut().map(change);
        find(&spec(Transport::Tcp, 1, 0), &flow)
    }

    #[test]
    fn limit_of_a_connection_follows_from_kernel_and_cpus() {
        let idle = [0.2, 0.2];
        assert_eq!(tcp_limit(idle, |_| {}).name, "network");
        assert!(tcp_limit(idle, |tcp| tcp.retransmits = 7).text.contains("7 segments sent again"));
        let window = tcp_limit(idle, |tcp| tcp.window_limited = 0.8);
        assert_eq!(window.name, "receive_window");
        assert!(
            window.text.contains("of far, 65.54 kB a stream, which was full for 80 % of the time"),
            "{}",
            window.text
        );
        assert_eq!(tcp_limit(idle, |tcp| tcp.buffer_limited = 0.8).name, "send_buffer");
        assert_eq!(tcp_limit([0.99, 0.5], |tcp| tcp.window_limited = 0.8).name, "sender_cpu");
        assert_eq!(tcp_limit([0.5, 0.99], |_| {}).name, "receiver_cpu");
        // Both are full: a full window is left by the one that receives.
        assert_eq!(tcp_limit([0.99, 0.99], |tcp| tcp.window_limited = 0.3).name, "receiver_cpu");
        assert_eq!(tcp_limit([0.99, 0.99], |_| {}).name, "sender_cpu");
        assert_eq!(tcp_limit(idle, |tcp| tcp.busy = 0.5).name, "sender");
        let short = Flow { seconds: 0.05, ..flow(1e9, idle) };
        assert_eq!(find(&spec(Transport::Tcp, 1, 0), &short).name, "unknown");
    }

    #[test]
    fn rate_that_was_asked_for_is_the_limit_once_it_is_reached() {
        let spec = ThroughputSpec { bits_per_second: Some(1_000_000_000), ..spec(Transport::Tcp, 1, 0) };
        assert_eq!(find(&spec, &flow(0.99e9, [0.99; 2])).name, "rate");
        let below = find(&spec, &flow(0.5e9, [0.1; 2]));
        assert!(below.name == "network" && below.text.starts_with("below the 1.000 Gbit/s asked for: "), "{below:?}");
    }

    #[test]
    fn datagrams_are_lost_on_the_way_or_at_a_full_socket() {
        let spec = ThroughputSpec { bits_per_second: Some(8_000_000), ..spec(Transport::Udp, 1, 0) };
        let limit = |sent, lost, dropped_by_receiver, threads| {
            let arrived = sent - lost;
            let datagrams = DatagramFlow { sent, arrived, lost, dropped_by_receiver, reordered: 0, jitter: 0.0 };
            let flow = Flow { tcp: None, datagrams: Some(datagrams), ..flow(arrived as f64 * 8000.0, threads) };
            find(&spec, &flow).name
        };
        let idle = [0.2, 0.2];
        assert_eq!(limit(1000, 0, 0, idle), "rate");
        assert_eq!((limit(1000, 100, 100, idle), limit(1000, 100, 10, idle)), ("receiver_socket", "network"));
        assert_eq!((limit(500, 0, 0, [1.0, 0.2]), limit(500, 0, 0, idle)), ("sender_cpu", "sender"));
    }
}
