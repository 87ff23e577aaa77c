//! The times of both sides on one scale, as the first screen of a run has them.

use super::{ComparisonRequest, ComparisonSubject};
use crate::analyse::analyse;
use crate::overview::{LadderRung, MIN_RUNGS, ladder_rungs};
use crate::prelude::*;

impl ComparisonRequest<'_> {
    /// The ladders of both sides, of several runs that of the last; nothing where a side is no picture of its machine.
    pub fn ladder(&self, comparison: &Comparison) -> Vec<ComparedRung> {
        let Some([base, other]) = rungs(self.base.subject).zip(rungs(self.other.subject)).map(<[_; 2]>::from) else {
            return Vec::new();
        };
        // Both are in the order of the one table of steps; what one of them lacks stands behind what comes before it in the other.
        let mut pairs: Vec<[Option<LadderRung>; 2]> =
            base.into_iter().map(|base_rung| [Some(base_rung), None]).collect();
        let mut next = 0;
        for other_rung in other {
            let is_same_step = |pair: &[Option<LadderRung>; 2]| {
                pair[0].as_ref().is_some_and(|base| base.sentence_name == other_rung.sentence_name)
            };
            match pairs.iter().position(is_same_step) {
                Some(position) => {
                    pairs[position][1] = Some(other_rung);
                    next = position + 1;
                }
                None => {
                    pairs.insert(next, [None, Some(other_rung)]);
                    next += 1;
                }
            }
        }
        let rungs: Vec<ComparedRung> = pairs.iter().filter_map(|pair| rung(pair, comparison)).collect();
        let complete_count = rungs.iter().filter(|rung| rung.seconds.iter().all(Option::is_some)).count();
        if complete_count < MIN_RUNGS { Vec::new() } else { rungs }
    }
}

/// The rungs of a side; none at all, and no reason against a ladder, of one that kelvin did not measure.
fn rungs(side: ComparisonSubject<'_>) -> Option<Vec<LadderRung>> {
    let Some(run): Option<&Run> = side.runs().last() else { return Some(Vec::new()) };
    let analysis = analyse(run);
    analysis.overview.is_some().then(|| ladder_rungs(run, &analysis))
}

fn rung(pair: &[Option<LadderRung>; 2], comparison: &Comparison) -> Option<ComparedRung> {
    let sides = pair.each_ref().map(Option::as_ref);
    let side_rung = sides.into_iter().flatten().next()?;
    // Where a side has no rung, a published machine may have a value at the place of the other.
    let mut places = sides.into_iter().flatten().map(|side| side.rung.figure.source.as_ref());
    let place = places.next().flatten().filter(|first| places.all(|place| place == Some(first)));
    let figure = place.and_then(|place| {
        let is_at_place = |figure: &ComparedFigure| figure.metric.id == place.metric && figure.case == place.case;
        comparison.figures.iter().position(is_at_place)
    });
    let seconds = match (figure, side_rung.origin) {
        (Some(figure), Some((_, conversion))) => {
            let ComparedFigure { base, other, .. } = comparison.figures[figure];
            [base, other].map(|value| Some(conversion.convert(value)))
        }
        _ => sides.map(|side| Some(side?.rung.figure.measured?.value)),
    };
    let rung = &side_rung.rung;
    let is_known = seconds.iter().any(Option::is_some);
    is_known.then(|| ComparedRung { label: rung.label.clone(), continues: rung.continues, seconds, figure })
}
