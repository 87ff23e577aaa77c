//! Several lines or cases of one metric: where two lines cross, and which of several cases is the best.

use kelvin_core::IndirectSort;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::prelude::*;

/// The rounds of a metric along one axis, all other parameters fixed.
pub(crate) struct MetricLine<'e, 'r> {
    /// The other parameters.
    pub fixed: Case,
    /// By their position on the axis, ascending.
    pub points: Vec<(u64, &'e RoundHeadlines<'r>)>,
}

/// The headlines of the rounds at one position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinePoint {
    pub position: u64,
    pub rounds: Vec<f64>,
}

impl<'e, 'r> MetricLine<'e, 'r> {
    pub fn rounds_at(&self, position: u64) -> Option<&'e RoundHeadlines<'r>> {
        self.points.iter().find(|(candidate, _)| *candidate == position).map(|(_, rounds)| *rounds)
    }

    pub fn line_points(&self) -> Vec<LinePoint> {
        let point =
            |&(position, rounds): &(u64, &RoundHeadlines<'_>)| LinePoint { position, rounds: rounds.values.clone() };
        self.points.iter().map(point).collect()
    }
}

/// Values in their order, each once.
pub(crate) fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<BTreeSet<T>>().into_iter().collect()
}

/// A case without some of its parameters.
pub(crate) fn without_axes(case: &Case, axes: &[Axis]) -> Case {
    case.iter().filter(|(name, _)| axes.iter().all(|axis| axis.name != *name)).collect()
}

/// The lines of a metric along one of its axes, in the order in which they were planned.
pub(crate) fn lines<'e, 'r>(cases: &'e [RoundHeadlines<'r>], axis: Axis) -> Vec<MetricLine<'e, 'r>> {
    let mut lines: Vec<MetricLine<'e, 'r>> = Vec::new();
    for rounds in cases {
        let Some(position) = axis.number_in(rounds.case) else { continue };
        let fixed = without_axes(rounds.case, &[axis]);
        let new = || MetricLine { fixed: fixed.clone(), points: Vec::new() };
        find_or_push(&mut lines, |line| line.fixed == fixed, new).points.push((position, rounds));
    }
    lines.iter_mut().for_each(|line| line.points.indirect_sort_by_key(|(position, _)| *position));
    lines
}

/// The second of two lines against the first at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineRatio {
    pub position: u64,
    /// Median of the second over that of the first, with an interval of a level at which all positions hold together.
    pub ratio: Estimate,
    /// The chance of a ratio as far from one by accident, of this position alone; `None` of a range.
    pub p_value: Option<f64>,
}

impl LineRatio {
    /// Whether the second is below or above; `Equal` if that is not certain.
    pub fn side(&self) -> Ordering {
        match self.ratio.is_above(1.0) {
            Some(true) => Ordering::Greater,
            Some(false) => Ordering::Less,
            None => Ordering::Equal,
        }
    }
}

/// The second of two lines against the first at all common positions.
///
/// The interval at each position is at a level (Bonferroni's) at which all of them hold at once with 95 %: two equal lines
/// cross by accident in far fewer than one case in twenty.
pub(super) fn line_ratios(first: &[LinePoint], second: &[LinePoint]) -> Vec<LineRatio> {
    let pairs = first
        .iter()
        .filter_map(|point| Some((point, second.iter().find(|candidate| candidate.position == point.position)?)));
    let is_positive =
        |(base, other): &(&LinePoint, &LinePoint)| base.rounds.iter().chain(&other.rounds).all(|&value| value > 0.0);
    let common: Vec<(&LinePoint, &LinePoint)> = pairs.filter(is_positive).collect();
    let ratio =
        |(base, other): &(&LinePoint, &LinePoint)| line_ratio(base.position, &base.rounds, &other.rounds, common.len());
    common.iter().filter_map(ratio).collect()
}

/// The second against the first at one of this many positions.
pub(super) fn line_ratio(position: u64, first: &[f64], second: &[f64], count: usize) -> Option<LineRatio> {
    let ratio = TestedFigure::ratio(first, second, None)?;
    Some(LineRatio { position, ratio: ratio.at_joint_level(count).estimate, p_value: ratio.p_value(1.0) })
}

/// The chance by which it stands that the second is on a side at some of these positions.
pub(super) fn side_p_value(standings: &[LineRatio], side: Ordering) -> Option<f64> {
    let side_standings = standings.iter().filter(|standing| standing.side() == side);
    p_value_of_any(side_standings.map(|standing| standing.p_value), standings.len())
}

/// The rounds of a case, one of several of which the best is sought.
pub(super) struct Contender<'a> {
    /// It, as the best.
    pub side: MetricValue,
    /// It, as one of the others.
    pub case: Case,
    pub rounds: &'a [f64],
    pub name: String,
}

impl<'a> Contender<'a> {
    pub fn from_rounds(rounds: &'a RoundHeadlines<'_>, case: Case, name: String) -> Self {
        Self { side: rounds.metric_value(), case, rounds: &rounds.values, name }
    }
}

/// The best of several, those not significantly different from it, and how that was tested.
pub(super) struct BestOf {
    pub question: BestQuestion,
    pub best: MetricValue,
    /// Those as good, with their names.
    pub rivals: Vec<(Case, String)>,
    next: Case,
    pub others: usize,
    test: ClaimTest,
}

impl BestOf {
    /// `None` without another that can be compared. `is_lower_better`, and rounds that are not positive do not count.
    pub fn find(question: BestQuestion, mut contenders: Vec<Contender<'_>>, is_lower_better: bool) -> Option<Self> {
        contenders.retain(|contender| contender.rounds.iter().all(|&value| value > 0.0));
        contenders.indirect_sort_by(|a, b| {
            let order = median(a.rounds).total_cmp(&median(b.rounds));
            if is_lower_better { order } else { order.reverse() }
        });
        let (best, alternatives) = contenders.split_first()?;
        let count = alternatives.len();
        let comparisons: Vec<(&Contender<'_>, LineRatio)> = alternatives
            .iter()
            .filter_map(|alternative| {
                let pair =
                    if is_lower_better { [best.rounds, alternative.rounds] } else { [alternative.rounds, best.rounds] };
                Some((alternative, line_ratio(0, pair[0], pair[1], count)?))
            })
            .collect();
        let &(next, nearest) = comparisons.first()?;
        let rivals = comparisons.iter().filter(|(_, ratio)| ratio.side() != Ordering::Greater);
        let rivals = rivals.map(|(rival, _)| (rival.case.clone(), rival.name.clone())).collect();
        // The best was chosen by the same rounds.
        let chance = p_value_of_all(comparisons.iter().map(|(_, ratio)| ratio.p_value));
        let outcome = outcome_of_p_value(chance.map(|chance| chance * comparisons.len() as f64));
        let (name, times, count) = (&next.name, ratio_text(&nearest.ratio, "as much"), comparisons.len());
        let text =
            format!("against {name}: {times}; ratios of medians against each of {count} others, jointly at 95 %");
        let evidence = TestEvidence::JointRatios { ratios: vec![(None, nearest.ratio)], rounds: best.rounds.len() };
        Some(Self {
            question,
            best: best.side.clone(),
            rivals,
            next: next.case.clone(),
            others: comparisons.len(),
            test: ClaimTest::new(evidence, text, outcome),
        })
    }

    /// `; no different from A, B`: those that may be as good.
    pub fn rivals_text(&self, words: &str) -> String {
        let names: Vec<&str> = self.rivals.iter().map(|(_, name)| name.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("; {words} {}", names.join(", ")) }
    }

    pub fn conclude(self, text: String) -> StatedConclusion {
        let Self { question, best, rivals, next, others, test } = self;
        let holds = rivals.is_empty().then_some(true);
        let rivals = rivals.into_iter().map(|(case, _)| case).collect();
        test.conclude(Claim::Best { question, best, rivals, next, others }, holds, text)
    }
}

/// The test of a comparison at several sizes, by what it compares.
pub(super) fn joint_test(
    description: &str,
    ratios: &[LineRatio],
    rounds: usize,
    outcome: Option<TestOutcome>,
) -> ClaimTest {
    let figures =
        ratios.iter().map(|ratio| format!("{} at {}", span_text(&ratio.ratio, number), bytes(ratio.position)));
    let (sizes, figures) = (ratios.len(), figures.collect::<Vec<_>>().join(", "));
    let text = format!("{description} at each of {sizes} sizes, intervals jointly at 95 %: {figures}");
    let ratios = ratios.iter().map(|ratio| (Some(ratio.position), ratio.ratio)).collect();
    ClaimTest::new(TestEvidence::JointRatios { ratios, rounds }, text, outcome)
}

/// Certain positions that a line needs on each side of a crossing: one alone, between positions on the other side or at an end, is an odd
/// point and no place where lines cross.
const MIN_POINTS_PER_SIDE: usize = 2;

/// Where the second line changes sides: positions at which neither side is certain are passed over.
pub(super) fn crossings(standings: &[LineRatio]) -> Vec<Crossover> {
    let certain_indices: Vec<usize> =
        (0..standings.len()).filter(|&i| standings[i].side() != Ordering::Equal).collect();
    let stretches: Vec<&[usize]> =
        certain_indices.chunk_by(|&a, &b| standings[a].side() == standings[b].side()).collect();
    let change = |sides: &[&[usize]]| {
        let (&before, &after) = (sides[0].last()?, sides[1].first()?);
        let is_carried = sides.iter().all(|side| side.len() >= MIN_POINTS_PER_SIDE);
        is_carried.then(|| Crossover {
            after: standings[before].position,
            until: standings[after].position,
            near: equal_position(&standings[before..=after]),
            reversed: standings[after].side() == Ordering::Less,
        })
    };
    stretches.windows(2).filter_map(change).collect()
}

/// Where the ratio is one between the first and the last of these, which lie on opposite sides.
fn equal_position(standings: &[LineRatio]) -> f64 {
    let point = |standing: &LineRatio| ((standing.position.max(1) as f64).ln(), standing.ratio.value.ln());
    let is_sign_change = |pair: &&[LineRatio]| (pair[0].ratio.value < 1.0) != (pair[1].ratio.value < 1.0);
    let pair = standings.windows(2).find(is_sign_change).unwrap_or(standings);
    let ((x0, y0), (x1, y1)) = (point(&pair[0]), point(&pair[pair.len() - 1]));
    if y0 == y1 { ((x0 + x1) / 2.0).exp() } else { (x0 + (x1 - x0) * y0 / (y0 - y1)).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_stats::Random;
    use proptest::prelude::*;

    const SIZES: [u64; 9] = [1, 10, 100, 1000, 4096, 10_000, 65_536, 262_144, 1_048_576];

    /// A line of fixed and proportional cost, in rounds with this relative noise.
    fn line(fixed: f64, slope: f64, noise: f64, random: &mut Random) -> Vec<LinePoint> {
        let mut point = |position: u64| {
            let value = fixed + slope * position as f64;
            LinePoint { position, rounds: (0..6).map(|_| value * (noise * random.normal()).exp()).collect() }
        };
        SIZES.into_iter().map(&mut point).collect()
    }

    #[test]
    fn equal_noisy_lines_do_not_cross() {
        const PAIRS: usize = 4000;
        let mut random = Random::new(1);
        let (mut crossing_pairs, mut separate_pairs) = (0, 0);
        for _ in 0..PAIRS {
            let [first, second] = [(); 2].map(|()| line(100.0, 0.1, 0.05, &mut random));
            let standings = line_ratios(&first, &second);
            crossing_pairs += usize::from(!crossings(&standings).is_empty());
            separate_pairs += usize::from(standings.iter().any(|standing| standing.side() != Ordering::Equal));
        }
        // One pair in twenty may come out apart somewhere: 200 of 4000, deviation 14. To cross takes two such
        // accidents.
        assert!(separate_pairs < 250, "{separate_pairs} of {PAIRS} equal pairs came out apart");
        assert!(crossing_pairs < 12, "{crossing_pairs} of {PAIRS} equal pairs came out crossing");
        // The test is not blind: as much noise does not hide twice the cost.
        let standings = line_ratios(&line(100.0, 0.1, 0.05, &mut random), &line(200.0, 0.2, 0.05, &mut random));
        assert!(standings.iter().all(|standing| standing.side() == Ordering::Greater), "{standings:?}");
    }

    #[test]
    fn crossing_is_where_medians_meet() {
        // 100 + x / 10 and 10 + x meet at 100, where both have a point that is certain of nothing.
        let line = |fixed: f64, slope: f64| {
            let noise = |round: u32| 1.0 + 0.01 * (f64::from(round) - 2.5);
            let point = |position: u64| {
                let value = fixed + slope * position as f64;
                LinePoint { position, rounds: (0..6).map(|round| value * noise(round)).collect() }
            };
            [1, 10, 100, 1000, 10_000].map(point)
        };
        let (call_line, byte_line) = (line(100.0, 0.1), line(10.0, 1.0));
        let crossovers = crossings(&line_ratios(&call_line, &byte_line));
        let [Crossover { after: 10, until: 1000, near, reversed: false }] = crossovers[..] else {
            panic!("{crossovers:?}")
        };
        assert!((99.0..101.0).contains(&near), "{near}");
    }

    #[test]
    fn single_point_is_no_crossing() {
        let standing = |(position, ratio): (u64, f64)| {
            let ratio = Estimate { value: ratio, low: 0.9 * ratio, high: 1.1 * ratio, is_range: false };
            LineRatio { position, ratio, p_value: Some(0.001) }
        };
        let ranges = |ratios: &[(u64, f64)]| {
            crossings(&ratios.iter().copied().map(standing).collect::<Vec<_>>())
                .iter()
                .map(|crossover| (crossover.after, crossover.until))
                .collect::<Vec<_>>()
        };
        assert!(ranges(&[(1, 2.0), (1000, 0.5)]).is_empty(), "two points");
        assert!(ranges(&[(1, 2.0), (10, 2.0), (100, 0.5), (1000, 2.0), (10_000, 2.0)]).is_empty(), "an odd one");
        assert!(ranges(&[(1, 2.0), (10, 0.5), (100, 0.5), (1000, 0.5)]).is_empty(), "one at an end");
        // Those of which nothing is certain neither carry a crossing nor hide one.
        let clear = [(1, 2.0), (10, 2.0), (100, 1.0), (1000, 0.5), (10_000, 0.5)];
        assert_eq!(ranges(&clear), [(10, 1000)]);
        assert!(ranges(&clear[1..]).is_empty());
    }

    #[test]
    fn unpaired_positions_and_single_rounds_are_ignored() {
        let mut random = Random::new(3);
        let (mut first, mut second) = (line(100.0, 0.1, 0.01, &mut random), line(10.0, 1.0, 0.01, &mut random));
        first.truncate(2);
        second.remove(0);
        assert_eq!(line_ratios(&first, &second).len(), 1);
        second[0].rounds.truncate(1);
        assert!(line_ratios(&first, &second).is_empty() && crossings(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn lines_of_known_costs_cross_as_computed(
            fixed in 20.0f64..500.0, cheaper in 0.01f64..0.5, each in 0.01f64..1.0, dearer in 2.0f64..50.0, seed: u64,
        ) {
            let mut random = Random::new(seed);
            let first = line(fixed, each, 0.001, &mut random);
            let second = line(fixed * cheaper, each * dearer, 0.001, &mut random);
            let truth = fixed * (1.0 - cheaper) / (each * (dearer - 1.0));
            let crossovers = crossings(&line_ratios(&first, &second));
            // Within a hundredth of equality a point may be certain of neither side.
            let is_below_at = |position: u64| {
                let ratio = (fixed * cheaper + each * dearer * position as f64) / (fixed + each * position as f64);
                (ratio.ln().abs() > 0.02).then_some(ratio < 1.0)
            };
            let sides: Vec<bool> = SIZES.into_iter().filter_map(is_below_at).collect();
            let count = |side: bool| sides.iter().filter(|is_below| **is_below == side).count();
            // A point that may be certain of neither side may be of either.
            let open = SIZES.len() - sides.len();
            let fewest = count(true).min(count(false));
            if fewest + open < MIN_POINTS_PER_SIDE {
                prop_assert!(crossovers.is_empty(), "{crossovers:?}");
            } else if fewest >= MIN_POINTS_PER_SIDE {
                prop_assert_eq!(crossovers.len(), 1);
                let Crossover { after, until, .. } = crossovers[0];
                prop_assert!(after as f64 <= truth * 1.05 && truth * 0.95 <= until as f64, "{truth} {crossovers:?}");
                prop_assert!(after as f64 <= crossovers[0].near && crossovers[0].near <= until as f64 * 1.000001);
                prop_assert!(!crossovers[0].reversed);
            }
            // Seen from the other line it is the same crossing to the other side.
            let mirrored = crossings(&line_ratios(&second, &first));
            prop_assert_eq!(mirrored.len(), crossovers.len());
            for (crossover, mirror) in crossovers.iter().zip(&mirrored) {
                prop_assert_eq!((crossover.after, crossover.until), (mirror.after, mirror.until));
                prop_assert_eq!(crossover.reversed, !mirror.reversed);
                prop_assert!((crossover.near / mirror.near - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn parallel_and_identical_lines_do_not_cross(
            fixed in 1.0f64..1000.0, each in 0.001f64..1.0, factor in 1.1f64..10.0, seed: u64,
        ) {
            let mut random = Random::new(seed);
            let first = line(fixed, each, 0.005, &mut random);
            prop_assert!(crossings(&line_ratios(&first, &first)).is_empty());
            let second = line(fixed * factor, each * factor, 0.005, &mut random);
            let standings = line_ratios(&first, &second);
            prop_assert!(standings.iter().all(|standing| standing.side() == Ordering::Greater));
            prop_assert!(crossings(&standings).is_empty());
        }
    }
}
