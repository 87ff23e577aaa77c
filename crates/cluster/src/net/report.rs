//! The results of a job as text for a terminal: hosts, a matrix for each quantity, what is slow, and what all reach at once.

use std::fmt::{self, Write};

use kelvin_core::cluster::{Analysis, PairMatrix, Quantity, SlowSubject, Subject, Transport};

use super::analysis::{MIN_HOSTS, speed_of};
use super::results::NetResults;
use crate::report::{shared_kernels, write_end, write_ranks};
use crate::results::Results;

/// Matrices of more hosts have one character for each pair.
const MAX_NUMBERED_HOSTS: usize = 12;
/// Matrices of more hosts do not fit a terminal.
const MAX_DRAWN_HOSTS: usize = 90;
/// What each character says: the measured value over the predicted one, as a speed, from this ratio on.
const SHADES: [(f64, char); 4] = [(0.95, '.'), (0.9, '-'), (0.7, 'o'), (0.0, '#')];

/// Writes all of it.
///
/// # Errors
/// Those of the writer.
pub fn write_text(out: &mut impl Write, results: &Results<NetResults>, analysis: &Analysis) -> fmt::Result {
    let pairs = results.ranks.len() * results.ranks.len().saturating_sub(1) / 2;
    let pairs = if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") };
    writeln!(out, "{} hosts, {pairs}, MPI: {}", results.ranks.len(), results.mpi)?;
    write_ranks(out, results)?;
    if let Some(kernels) = shared_kernels(results) {
        writeln!(
            out,
            "Only {kernels} {} these hosts. Hosts on one kernel share its CPUs, so their pairs were measured by turns.",
            if kernels == 1 { "kernel runs" } else { "kernels run" },
        )?;
    }
    for matrix in &analysis.matrices {
        write_matrix(out, results, matrix)?;
    }
    write_failed_pairs(out, results)?;
    write_disturbed_pairs(out, analysis)?;
    write_findings(out, results, analysis)?;
    write_together(out, results, analysis)?;
    write_end(out, results)
}

fn write_matrix(out: &mut impl Write, results: &Results<NetResults>, matrix: &PairMatrix) -> fmt::Result {
    let hosts = results.ranks.len();
    let title = match matrix.quantity {
        Quantity::BytesPerSecond => "rate of large messages",
        Quantity::RoundTripNs => "round trip of 8 bytes",
    };
    let scale = Scale::of(matrix);
    write!(out, "\n{} {title}", matrix.transport.label())?;
    if hosts <= MAX_NUMBERED_HOSTS {
        writeln!(out, ", {} (row sends, column receives)", scale.unit)?;
        let header: String = (0..hosts).map(|to| format!("{to:>8}")).collect();
        writeln!(out, "      {header}")?;
        for from in 0..hosts {
            let row: String = (0..hosts)
                .map(|to| match matrix.cell(from, to) {
                    Some(cell) => format!("{:>8}", scale.digits(cell.value)),
                    None => format!("{:>8}", if from == to { "-" } else { "?" }),
                })
                .collect();
            writeln!(out, "{from:>6}{row}")?;
        }
    } else if hosts <= MAX_DRAWN_HOSTS {
        writeln!(out, " over what the other pairs predict (row sends, column receives)")?;
        for from in 0..hosts {
            let row: String = (0..hosts).map(|to| shade(matrix, from, to)).collect();
            writeln!(out, "{from:>6}  {row}")?;
        }
        writeln!(out, "        . at least 95 %   - at least 90 %   o at least 70 %   # less   ? not measured")?;
    } else {
        writeln!(out, ": a matrix of {hosts} hosts is in the file of results")?;
    }
    let speeds: Vec<f64> = matrix.cells.iter().map(|cell| cell.value).collect();
    let (low, high) =
        speeds.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &value| (low.min(value), high.max(value)));
    let median = scale.text(kelvin_stats::median(&speeds));
    write!(out, "median {median}, from {} to {}", scale.digits(low), scale.digits(high))?;
    match matrix.deviation {
        Some(deviation) => writeln!(out, "; a pair differs by {:.1} % from what its hosts explain", 100.0 * deviation),
        None => writeln!(out, "; with fewer than {MIN_HOSTS} hosts no pair can be predicted from the others"),
    }
}

fn write_disturbed_pairs(out: &mut impl Write, analysis: &Analysis) -> fmt::Result {
    for matrix in analysis.matrices.iter().filter(|matrix| matrix.quantity == Quantity::BytesPerSecond) {
        let disturbed = matrix.cells.iter().filter(|cell| cell.is_disturbed).count() / 2;
        if disturbed > 0 {
            writeln!(
                out,
                "\n{}: {disturbed} pairs are not judged. In every pass other programs took CPUs that they needed.",
                matrix.transport.label()
            )?;
        }
    }
    Ok(())
}

fn shade(matrix: &PairMatrix, from: usize, to: usize) -> char {
    match matrix.cell(from, to) {
        None => {
            if from == to {
                ' '
            } else {
                '?'
            }
        }
        Some(cell) => {
            let speed = |value| speed_of(matrix.quantity, value);
            let ratio = cell.expected.map_or(1.0, |expected| (speed(cell.value) - speed(expected.value)).exp());
            SHADES.iter().find(|(least, _)| ratio >= *least).map_or('#', |&(_, shade)| shade)
        }
    }
}

fn write_failed_pairs(out: &mut impl Write, results: &Results<NetResults>) -> fmt::Result {
    if results.measured.failed_pairs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPairs that could not be measured:")?;
    for ((transport, pair), reason) in &results.measured.failed_pairs {
        let [first, second] = pair.map(|rank| &results.ranks[rank].label);
        writeln!(out, "  {first} and {second}, {}: {reason}", transport.label())?;
    }
    Ok(())
}

fn write_findings(out: &mut impl Write, results: &Results<NetResults>, analysis: &Analysis) -> fmt::Result {
    if results.ranks.len() < MIN_HOSTS {
        return Ok(());
    }
    if analysis.findings.is_empty() {
        let tolerance = 100.0 * results.measured.plan.tolerance;
        return writeln!(out, "\nNo link and no host is more than {tolerance:.0} % slower than the others predict.");
    }
    writeln!(out, "\nSlower than the others predict (of those named here, 1 % may be false):")?;
    analysis.findings.iter().try_for_each(|finding| writeln!(out, "  {}", sentence(results, finding)))
}

/// One line about a slow link or host.
pub fn sentence(results: &Results<NetResults>, finding: &SlowSubject) -> String {
    let label = |rank: usize| results.ranks[rank].label.as_str();
    let subject = match finding.subject {
        Subject::Link { from, to } => match finding.quantity {
            Quantity::BytesPerSecond => format!("link from {} to {}", label(from), label(to)),
            Quantity::RoundTripNs => format!("link between {} and {}", label(from), label(to)),
        },
        Subject::Sender(rank) => format!("host {} as a sender", label(rank)),
        Subject::Receiver(rank) => format!("host {} as a receiver", label(rank)),
        Subject::Host(rank) => format!("host {}", label(rank)),
    };
    let scale = Scale::around(finding.quantity, finding.expected.value);
    let (quantity, word) = match finding.quantity {
        Quantity::BytesPerSecond => ("", "lower"),
        Quantity::RoundTripNs => ("round trip ", "longer"),
    };
    let difference = 100.0 * (finding.value / finding.expected.value - 1.0).abs();
    format!(
        "{subject}: {} {quantity}{}, predicted {} ({} to {}): {difference:.0} % {word}",
        finding.transport.label(),
        scale.text(finding.value),
        scale.digits(finding.expected.value),
        scale.digits(finding.expected.low),
        scale.digits(finding.expected.high),
    )
}

fn write_together(out: &mut impl Write, results: &Results<NetResults>, analysis: &Analysis) -> fmt::Result {
    if results.measured.bisection.is_empty() && results.measured.all_to_all_bytes_per_second.is_none() {
        return Ok(());
    }
    writeln!(out, "\nAll at once:")?;
    for transport in [Transport::Tcp, Transport::Mpi] {
        let rates = analysis
            .matrices
            .iter()
            .find(|matrix| matrix.transport == transport && matrix.quantity == Quantity::BytesPerSecond);
        let pairs = results.measured.bisection.iter().filter(|((of_transport, _), _)| *of_transport == transport);
        let mut together = [0.0; 2];
        let mut alone = [0.0; 2];
        for (&(_, [first, second]), figures) in pairs {
            let alone_rates = [(first, second), (second, first)];
            for (direction, (from, to)) in alone_rates.into_iter().enumerate() {
                together[direction] += figures.bytes_per_second[direction];
                alone[direction] += rates.and_then(|rates| rates.cell(from, to)).map_or(0.0, |cell| cell.value);
            }
        }
        for (direction, words) in ["from the lower half of the ranks to the upper", "back"].into_iter().enumerate() {
            if alone[direction] > 0.0 {
                let scale = Scale::around(Quantity::BytesPerSecond, together[direction]);
                writeln!(
                    out,
                    "  {} {words}: {}, {:.0} % of the sum of these pairs alone",
                    transport.label(),
                    scale.text(together[direction]),
                    100.0 * together[direction] / alone[direction],
                )?;
            }
        }
    }
    if let Some(rate) = results.measured.all_to_all_bytes_per_second {
        let scale = Scale::around(Quantity::BytesPerSecond, rate);
        let per_host = scale.text(rate / results.ranks.len() as f64);
        writeln!(out, "  MPI all to all: {} in total, {per_host} from each host", scale.text(rate))?;
    }
    Ok(())
}

/// A unit that fits the values of a quantity.
struct Scale {
    unit: &'static str,
    factor: f64,
}

impl Scale {
    fn of(matrix: &PairMatrix) -> Self {
        let values: Vec<f64> = matrix.cells.iter().map(|cell| cell.value).collect();
        Self::around(matrix.quantity, kelvin_stats::median(&values))
    }

    fn around(quantity: Quantity, value: f64) -> Self {
        let (unit, factor) = match quantity {
            Quantity::BytesPerSecond if 8.0 * value >= 1e10 => ("Gbit/s", 8e-9),
            Quantity::BytesPerSecond => ("Mbit/s", 8e-6),
            Quantity::RoundTripNs if value >= 1e7 => ("ms", 1e-6),
            Quantity::RoundTripNs => ("us", 1e-3),
        };
        Self { unit, factor }
    }

    /// Three digits or more.
    fn digits(&self, value: f64) -> String {
        let value = value * self.factor;
        let decimals = if value >= 100.0 { 0 } else { 1 };
        format!("{value:.decimals$}")
    }

    fn text(&self, value: f64) -> String {
        format!("{} {}", self.digits(value), self.unit)
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::cluster::{Cell, Expected};

    use super::*;
    use crate::event::RankFacts;
    use crate::net::event::NetPlan;
    use crate::net::task::{PairFigures, PairPlan};

    fn results(hosts: usize) -> Results<NetResults> {
        let rank = |rank| RankFacts { clock_offset_s: 1.5e-5, clock_error_s: 2e-6, ..RankFacts::made(rank) };
        let plan = PairPlan { transport: Transport::Tcp, round_trip_seconds: 0.1, rate_seconds: 0.1, message_bytes: 1 };
        let ranks = (0..hosts).map(rank).collect();
        let measured = NetResults { plan: NetPlan { plans: vec![plan], tolerance: 0.1 }, ..NetResults::default() };
        Results { mpi: "a test".into(), ranks, measured, failure: None, is_complete: false }
    }

    fn figures(bytes_per_second: [f64; 2]) -> PairFigures {
        PairFigures { round_trip: None, bytes_per_second, sent_bytes: 0, interface_bytes: 0, cpu_wait: 0.0 }
    }

    #[test]
    fn two_hosts_have_values_and_what_they_reach_at_once() {
        let mut results = results(2);
        results.measured.pairs.insert((Transport::Tcp, [0, 1]), vec![figures([1.25e8, 1.25e7])]);
        results.measured.bisection.insert((Transport::Tcp, [0, 1]), figures([1e8, 1.25e7]));
        results.is_complete = true;
        let mut text = String::new();
        write_text(&mut text, &results, &crate::net::analysis::analyse(&results)).unwrap();
        let expected = "2 hosts, 1 pair, MPI: a test

rank  host  CPUs  clock offset to rank 0
   0  n0       2  -
   1  n1       2  15.0 us (at most 2.0 us wrong)

TCP rate of large messages, Mbit/s (row sends, column receives)
             0       1
     0       -    1000
     1     100       -
median 550 Mbit/s, from 100 to 1000; with fewer than 4 hosts no pair can be predicted from the others

All at once:
  TCP from the lower half of the ranks to the upper: 800 Mbit/s, 80 % of the sum of these pairs alone
  TCP back: 100 Mbit/s, 100 % of the sum of these pairs alone
";
        assert_eq!(text, expected);
    }

    #[test]
    fn finding_is_one_sentence() {
        let expected = |value: f64| Expected { value, low: 0.9 * value, high: 1.1 * value };
        let rate = SlowSubject {
            subject: Subject::Link { from: 2, to: 0 },
            transport: Transport::Mpi,
            quantity: Quantity::BytesPerSecond,
            value: 0.6e9,
            expected: expected(1e9),
            p_value: 1e-9,
        };
        let text = sentence(&results(3), &rate);
        assert_eq!(text, "link from n2 to n0: MPI 4800 Mbit/s, predicted 8000 (7200 to 8800): 40 % lower");
        let round_trip = SlowSubject {
            subject: Subject::Host(1),
            quantity: Quantity::RoundTripNs,
            value: 3e4,
            expected: expected(2e4),
            ..rate
        };
        let text = sentence(&results(3), &round_trip);
        assert_eq!(text, "host n1: MPI round trip 30.0 us, predicted 20.0 (18.0 to 22.0): 50 % longer");
    }

    #[test]
    fn many_hosts_have_a_shade_for_each_pair() {
        let expected = Some(Expected { value: 100.0, low: 90.0, high: 110.0 });
        let cell = |to: usize, value: f64| Cell { from: 0, to, value, expected, is_disturbed: false };
        let mut matrix = PairMatrix {
            transport: Transport::Tcp,
            quantity: Quantity::BytesPerSecond,
            cells: vec![cell(1, 96.0), cell(2, 91.0), cell(3, 75.0), cell(4, 60.0)],
            deviation: None,
        };
        let row = |matrix: &PairMatrix| (0..6).map(|to| shade(matrix, 0, to)).collect::<String>();
        assert_eq!(row(&matrix), " .-o#?");
        matrix.quantity = Quantity::RoundTripNs;
        matrix.cells = vec![cell(1, 104.0), cell(2, 109.0), cell(3, 140.0), cell(4, 160.0)];
        assert_eq!(row(&matrix), " .-o#?");
    }
}
