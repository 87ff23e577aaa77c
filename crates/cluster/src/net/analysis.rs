//! What the pairs say of links and hosts: what each pair should reach by all others, and which links and hosts are slower than that.

use std::ops::Range;

use kelvin_core::cluster::{Analysis, Cell, Expected, PairMatrix, Quantity, SlowSubject, Subject, Transport};
use kelvin_stats::{PairValue, TwoWayModel, adjusted_p_values, median};

use super::results::NetResults;
use super::schedule::Pair;
use super::task::PairFigures;
use crate::peers::{NAMING_LEVEL, PeerComparison, Peers};
use crate::results::Results;

/// Hosts that a prediction of a pair needs: with three, the other pairs leave nothing to tell hosts from links by.
pub const MIN_HOSTS: usize = 4;
/// Two measurements of one link differ by about this, as a logarithm: a table that agrees better does so by chance.
const RESOLUTION: f64 = 0.005;
/// The level of the range of a prediction.
const PREDICTION_LEVEL: f64 = 0.95;

/// A link or host before the correction for all tests.
struct Candidate {
    finding: SlowSubject,
    /// How slow it is, as a logarithm below 0.
    difference: f64,
}

/// Analyses what was measured so far.
pub fn analyse(results: &Results<NetResults>) -> Analysis {
    let mut analysis = Analysis::default();
    let mut candidates = Vec::new();
    for plan in &results.measured.plan.plans {
        for quantity in [Quantity::RoundTripNs, Quantity::BytesPerSecond] {
            let mut matrix = PairMatrix {
                transport: plan.transport,
                quantity,
                cells: cells(results, plan.transport, quantity),
                deviation: None,
            };
            if !matrix.cells.is_empty() {
                candidates.extend(compare(&mut matrix, results.ranks.len()));
                analysis.matrices.push(matrix);
            }
        }
    }
    let p_values: Vec<f64> = candidates.iter().map(|candidate| candidate.finding.p_value).collect();
    let mut found: Vec<Candidate> = candidates
        .into_iter()
        .zip(adjusted_p_values(&p_values))
        .map(|(candidate, p_value)| Candidate { finding: SlowSubject { p_value, ..candidate.finding }, ..candidate })
        .filter(|Candidate { finding, difference }| {
            finding.p_value <= NAMING_LEVEL && *difference <= (1.0 - results.measured.plan.tolerance).ln()
        })
        .collect();
    found.sort_by(|first, second| first.difference.total_cmp(&second.difference));
    analysis.findings = found.into_iter().map(|candidate| candidate.finding).collect();
    analysis
}

/// The medians of the passes of each pair, by sender and receiver: of those that nothing disturbed, where there are any.
fn cells(results: &Results<NetResults>, transport: Transport, quantity: Quantity) -> Vec<Cell> {
    let mut cells = Vec::new();
    let pairs = results.measured.pairs.iter().filter(|((of_transport, _), _)| *of_transport == transport);
    for (&(_, pair), passes) in pairs {
        let [first, second]: Pair = pair;
        let is_disturbed = passes.iter().all(PairFigures::is_disturbed);
        let passes: Vec<&PairFigures> =
            passes.iter().filter(|figures| is_disturbed || !figures.is_disturbed()).collect();
        let mut push = |from, to, value: &dyn Fn(&PairFigures) -> Option<f64>| {
            let values: Vec<f64> =
                passes.iter().filter_map(|figures| value(figures)).filter(|value| *value > 0.0).collect();
            if !values.is_empty() {
                cells.push(Cell { from, to, value: median(&values), expected: None, is_disturbed });
            }
        };
        match quantity {
            Quantity::BytesPerSecond => {
                push(first, second, &|figures| Some(figures.bytes_per_second[0]));
                push(second, first, &|figures| Some(figures.bytes_per_second[1]));
            }
            Quantity::RoundTripNs => push(first, second, &|figures| Some(figures.round_trip?.median_ns)),
        }
    }
    cells.sort_by_key(|cell| (cell.from, cell.to));
    cells
}

/// Adds the prediction of each pair to the matrix, and returns each link and host with its chance.
fn compare(matrix: &mut PairMatrix, ranks: usize) -> Vec<Candidate> {
    let quantity = matrix.quantity;
    let is_directed = quantity == Quantity::BytesPerSecond;
    let (hosts, senders_and_receivers) = (0..ranks, [0..ranks, ranks..2 * ranks]);
    let groups = if is_directed { &senders_and_receivers[..] } else { std::slice::from_ref(&hosts) };
    let receiver_offset = if is_directed { ranks } else { 0 };
    let value =
        |cell: &Cell| PairValue { ends: [cell.from, cell.to + receiver_offset], value: speed_of(quantity, cell.value) };
    let values: Vec<PairValue> = matrix.cells.iter().map(value).collect();
    let Some(model) = (ranks >= MIN_HOSTS).then(|| TwoWayModel::fit(&values, groups, RESOLUTION)).flatten() else {
        return Vec::new();
    };
    matrix.deviation = Some(model.std());
    let mut candidates = Vec::new();
    for (index, cell) in matrix.cells.iter_mut().enumerate() {
        let prediction = model.predict_without(&values, index);
        let expected = expected(quantity, prediction.value, prediction.range(PREDICTION_LEVEL));
        cell.expected = Some(expected);
        if cell.is_disturbed {
            continue;
        }
        candidates.push(Candidate {
            difference: values[index].value - prediction.value,
            finding: SlowSubject {
                subject: Subject::Link { from: cell.from, to: cell.to },
                transport: matrix.transport,
                quantity,
                value: cell.value,
                expected,
                p_value: prediction.lower_tail(values[index].value),
            },
        });
    }
    for group in groups {
        let peers = Peers::new(group.clone().map(|effect| model.effects()[effect]).collect());
        candidates.extend(group.clone().map(|effect| {
            let comparison = peers.compare(effect - group.start, model.effect_error(effect));
            host_candidate(matrix, group, effect, comparison)
        }));
    }
    candidates
}

/// A host against the other hosts of its group. Hosts differ by more than the error of their effects: their own spread is part of the test.
fn host_candidate(matrix: &PairMatrix, group: &Range<usize>, effect: usize, comparison: PeerComparison) -> Candidate {
    let rank = effect - group.start;
    let is_directed = matrix.quantity == Quantity::BytesPerSecond;
    let subject = match (is_directed, group.start) {
        (false, _) => Subject::Host(rank),
        (true, 0) => Subject::Sender(rank),
        (true, _) => Subject::Receiver(rank),
    };
    let own_cells = matrix.cells.iter().filter(|cell| match subject {
        Subject::Sender(rank) => cell.from == rank,
        Subject::Receiver(rank) => cell.to == rank,
        _ => cell.from == rank || cell.to == rank,
    });
    let speed = median(&own_cells.map(|cell| speed_of(matrix.quantity, cell.value)).collect::<Vec<f64>>());
    let half = comparison.half_range(PREDICTION_LEVEL);
    let center = speed - comparison.difference;
    Candidate {
        difference: comparison.difference,
        finding: SlowSubject {
            subject,
            transport: matrix.transport,
            quantity: matrix.quantity,
            value: value_of(matrix.quantity, speed),
            expected: expected(matrix.quantity, center, (center - half, center + half)),
            p_value: comparison.p_value(),
        },
    }
}

/// The logarithm of a value, turned so that lower is slower.
pub fn speed_of(quantity: Quantity, value: f64) -> f64 {
    match quantity {
        Quantity::BytesPerSecond => value.ln(),
        Quantity::RoundTripNs => -value.ln(),
    }
}

/// The value of such a logarithm.
fn value_of(quantity: Quantity, speed: f64) -> f64 {
    match quantity {
        Quantity::BytesPerSecond => speed.exp(),
        Quantity::RoundTripNs => (-speed).exp(),
    }
}

fn expected(quantity: Quantity, speed: f64, (low, high): (f64, f64)) -> Expected {
    let [first, second] = [low, high].map(|speed| value_of(quantity, speed));
    Expected { value: value_of(quantity, speed), low: first.min(second), high: first.max(second) }
}

#[cfg(test)]
mod tests;
