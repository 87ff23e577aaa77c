//! The lines of a test of throughput: one of each interval, and what is said at the end.

use kelvin_core::units;
use kelvin_report::text::{display_width, pad_left, pad_right};
use kelvin_transfer::wire::message::Transport;

use super::flow::Flow;
use super::report::IntervalReport;

/// Columns of the time, of a direction, of a rate, and of each other figure.
const TIME_WIDTH: usize = 11;
const DIRECTION_WIDTH: usize = 5;
const RATE_WIDTH: usize = 13;
const FIGURE_WIDTH: usize = 10;

/// Bits per second, with four digits.
pub(super) fn rate_text(bits: f64) -> String {
    let (value, unit) = match bits {
        1e9.. => (bits / 1e9, "Gbit/s"),
        1e6.. => (bits / 1e6, "Mbit/s"),
        _ => (bits / 1e3, "kbit/s"),
    };
    let decimals = match value {
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$} {unit}")
}

/// The head of the lines of intervals, as far as columns have room.
pub(super) fn interval_head(transport: Transport, has_directions: bool, columns: usize) -> String {
    let figures = match transport {
        Transport::Tcp => ["rate", "arrived", "resent", "RTT", "cwnd"],
        Transport::Udp => ["rate", "arrived", "datagrams", "lost", "jitter"],
    };
    line("time", has_directions.then_some(""), figures.map(str::to_owned), "", columns)
}

/// The lines of an interval, one of each direction, as far as columns have room.
pub(super) fn interval_lines(interval: &IntervalReport, columns: usize) -> Vec<String> {
    let time = |seconds: f64| units::trimmed_decimal(seconds, 2);
    let time = format!("{}-{} s", time(interval.start), time(interval.end));
    let note = if interval.warm_up { "  warm-up" } else { "" };
    let has_directions = interval.flows.len() > 1;
    let flows = interval.flows.iter();
    flows
        .map(|flow| line(&time, has_directions.then_some(flow.direction), figures(&flow.flow), note, columns))
        .collect()
}

fn figures(flow: &Flow) -> Vec<String> {
    let mut figures = vec![rate_text(flow.bits_per_second), units::decimal_bytes(flow.bytes as f64)];
    if let Some(tcp) = &flow.tcp {
        let window = units::decimal_bytes(tcp.congestion_window as f64);
        figures.extend([units::count(tcp.retransmits), units::seconds(tcp.round_trip), window]);
    }
    if let Some(datagrams) = &flow.datagrams {
        let lost = format!("{} %", lost_percent(datagrams.lost, datagrams.arrived + datagrams.lost));
        figures.extend([units::count(datagrams.arrived), lost, units::seconds(datagrams.jitter)]);
    }
    figures
}

/// A share that was lost, in percent.
pub(super) fn lost_percent(lost: u64, of: u64) -> String {
    units::trimmed_decimal(100.0 * lost as f64 / of.max(1) as f64, 2)
}

fn line(
    time: &str,
    direction: Option<&str>,
    figures: impl IntoIterator<Item = String>,
    note: &str,
    columns: usize,
) -> String {
    let mut line = pad_right(time, TIME_WIDTH);
    line += &direction.map_or_else(String::new, |direction| pad_right(direction, DIRECTION_WIDTH));
    let widths = std::iter::once(RATE_WIDTH).chain(std::iter::repeat(FIGURE_WIDTH));
    let cells = figures.into_iter().zip(widths).map(|(figure, width)| pad_left(&figure, width));
    for part in cells.chain([note.to_owned()]) {
        if display_width(&line) + display_width(&part) > columns {
            break;
        }
        line += &part;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{bytes, sample, spec};
    use super::super::flow::{Direction, Flow};
    use super::super::report::DirectedFlow;
    use super::*;

    #[test]
    fn rates_have_four_digits() {
        let texts = [9.4123e9, 94.123e6, 941.23e6, 1e6, 999.0, 0.0].map(rate_text);
        assert_eq!(
            texts,
            ["9.412 Gbit/s", "94.12 Mbit/s", "941.2 Mbit/s", "1.000 Mbit/s", "0.999 kbit/s", "0.000 kbit/s"]
        );
    }

    #[test]
    fn interval_is_a_line_of_each_direction() {
        let before = sample(0, vec![bytes(0), bytes(0)], vec![bytes(0), bytes(0)]);
        let after = sample(1, vec![bytes(0), bytes(125_000)], vec![bytes(1_000_000), bytes(0)]);
        let flows: Vec<Flow> = Direction::all(&spec(Transport::Tcp, 1, 1))
            .into_iter()
            .map(|direction| direction.flow(&before, &after))
            .collect();
        let flows = flows.into_iter().zip(["to", "from"]).map(|(flow, direction)| DirectedFlow { direction, flow });
        let interval = IntervalReport { start: 0.0, end: 1.0, warm_up: true, flows: flows.collect() };
        let lines = interval_lines(&interval, 80);
        assert_eq!(lines[0], "0-1 s      to    8.000 Mbit/s      1 MB  warm-up");
        assert!(lines[1].starts_with("0-1 s      from  1.000 Mbit/s "), "{lines:?}");
        assert_eq!(interval_lines(&interval, 40)[0], "0-1 s      to    8.000 Mbit/s      1 MB");
        let head = interval_head(Transport::Udp, false, 80);
        assert_eq!(head, "time                rate   arrived datagrams      lost    jitter");
    }
}
