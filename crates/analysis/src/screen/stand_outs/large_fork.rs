//! What forking a large process costs in base pages beside huge ones.

use kelvin_catalogue::mem::PageSize;
use kelvin_catalogue::os::{PROCESS_FORK_RSS, RESIDENT};

use super::{Answer, Says, Seen, Spot, Weight, compared};
use crate::result::MetricResult;

/// Times the cost with huge pages from which on it stands out.
const LEAST: f64 = 2.0;

/// The largest process that was measured both ways.
pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let known = |pages: PageSize| -> Vec<&MetricResult> {
        let all = Spot::new(&PROCESS_FORK_RSS).at(pages.point()).all(&seen.analysis.results);
        all.filter(|result| result.outcome.summary().is_some()).collect()
    };
    let (base, huge) = (known(PageSize::Base), known(PageSize::Huge));
    let resident = |result: &&MetricResult| RESIDENT.of(&result.case);
    let both = base.iter().filter_map(|one| Some((*one, *huge.iter().find(|other| resident(other) == resident(one))?)));
    let (one, other) = both.max_by_key(|(one, _)| resident(one))?;
    let compared = compared(&seen.rounds_of(other)?, &seen.rounds_of(one)?)?;
    let resident = RESIDENT.of(&one.case)?;
    let says = Says::LargeFork { resident, fork: compared.other, times: compared.ratio.value };
    compared.is_above(LEAST).then(|| compared.answer(Weight::Avoidable, says))
}
