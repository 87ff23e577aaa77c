//! All conclusions of a report together: each test is corrected for all others, so that few of what is concluded is false.

use super::{remote, tasks};
use crate::prelude::*;

/// Most rounds that are worth naming: a thorough run of an hour makes as many.
const MAX_NAMED_ROUNDS: u64 = 100;

/// Corrects the tests of difference for one another, and those of equivalence. Leaves open what is no longer significant, and
/// states the result of each test among all.
pub(crate) fn correct_p_values(mut conclusions: Vec<&mut StatedConclusion>) {
    correct_tests_of_kind(&mut conclusions, |outcome| Some(&mut outcome.difference));
    correct_tests_of_kind(&mut conclusions, |outcome| {
        outcome.equivalence.as_mut().map(|equivalence| &mut equivalence.p_value)
    });
    conclusions.into_iter().for_each(decide);
}

/// Corrects the tests of one kind.
fn correct_tests_of_kind(
    conclusions: &mut [&mut StatedConclusion],
    test_of: fn(&mut TestOutcome) -> Option<&mut PValue>,
) {
    let outcomes = conclusions.iter_mut().filter_map(|conclusion| conclusion.conclusion.outcome.as_mut());
    let mut tests: Vec<&mut PValue> = outcomes.filter_map(test_of).collect();
    let p_values: Vec<f64> = tests.iter().map(|test| test.raw).collect();
    for (test, joint) in tests.iter_mut().zip(adjusted_p_values(&p_values)) {
        test.adjusted = joint;
    }
}

fn decide(stated: &mut StatedConclusion) {
    let conclusion = &mut stated.conclusion;
    if let Some(outcome) = &mut conclusion.outcome {
        if let Some(equivalence) = &mut outcome.equivalence {
            equivalence.holds = equivalence.p_value.is_significant(FALSE_DISCOVERY_RATE);
        }
        if !outcome.difference.is_significant(FALSE_DISCOVERY_RATE) {
            conclusion.holds = None;
        }
    }
    // The sentences that depend on whether the claim holds.
    match &conclusion.claim {
        Claim::MoreTasksThanCpus { other, slowdown, .. } => {
            stated.text = tasks::more_tasks_sentence(&other.case, slowdown, conclusion.holds);
        }
        Claim::Share { question: ShareQuestion::RemoteAccess, figure, share, .. } => {
            stated.text = remote::share_sentence(&figure.case, share, conclusion.holds);
        }
        _ => {}
    }
    if let Some(outcome) = test_outcome(stated) {
        stated.test = format!("{}; {outcome}", stated.test);
    }
}

/// How likely a conclusion is by accident, or what would decide where these rounds do not.
fn test_outcome(conclusion: &StatedConclusion) -> Option<String> {
    let chance_text = |chance: PValue| format!("{} among all conclusions", p_value(chance.adjusted));
    let Some(outcome) = conclusion.outcome else {
        let too_few = format!("nothing is tested with fewer than {MIN_INTERVAL_ROUNDS} rounds");
        return has_too_few_rounds(&conclusion.evidence).then_some(too_few);
    };
    if conclusion.holds.is_some() {
        return Some(chance_text(outcome.difference));
    }
    if let Some(equivalence) = outcome.equivalence.filter(|_| conclusion.same_within().is_some()) {
        return Some(format!("the same within {}, {}", percent(equivalence.margin), chance_text(equivalence.p_value)));
    }
    match outcome.rounds_to_decide? {
        rounds if rounds <= MAX_NAMED_ROUNDS => Some(format!("about {rounds} rounds would decide")),
        _ => Some(format!("more than {MAX_NAMED_ROUNDS} rounds would be needed to decide")),
    }
}

/// Whether a test of medians has too few rounds.
fn has_too_few_rounds(test: &TestEvidence) -> bool {
    match test {
        TestEvidence::RatioOfMedians { rounds: [other, base], .. } => *other.min(base) < MIN_INTERVAL_ROUNDS,
        TestEvidence::JointRatios { ratios, .. } => ratios.iter().any(|(_, ratio)| ratio.is_range),
        TestEvidence::Median { rounds, .. }
        | TestEvidence::CaseByCase { rounds, .. }
        | TestEvidence::Ratios { rounds, .. }
        | TestEvidence::AtEachPoint { rounds, .. }
        | TestEvidence::Contrasts { rounds, .. }
        | TestEvidence::Search { rounds, .. } => *rounds < MIN_INTERVAL_ROUNDS,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Claim, Conclusion, Equivalence, Name, TestEvidence};

    use super::*;

    fn conclusion(chance: f64, equivalence_chance: Option<f64>) -> Conclusion {
        let equivalence = equivalence_chance.map(|chance| Equivalence {
            margin: 0.05,
            p_value: PValue::new(chance),
            holds: chance <= 0.05,
        });
        Conclusion {
            claim: Claim::Pages { metric: Name::new("mem.page.file"), case: Case::new(), all: true },
            holds: (chance <= 0.05).then_some(true),
            evidence: TestEvidence::TooFewPoints,
            outcome: Some(TestOutcome { difference: PValue::new(chance), equivalence, rounds_to_decide: Some(9) }),
        }
    }

    fn stated(conclusion: Conclusion) -> StatedConclusion {
        StatedConclusion { text: String::new(), test: String::new(), conclusion }
    }

    fn correct(conclusions: Vec<Conclusion>) -> Vec<Conclusion> {
        let mut entries: Vec<StatedConclusion> = conclusions.into_iter().map(stated).collect();
        correct_p_values(entries.iter_mut().collect());
        entries.into_iter().map(|entry| entry.conclusion).collect()
    }

    #[test]
    fn one_small_p_value_among_many_is_undecided() {
        let open_conclusions = || std::iter::repeat_with(|| conclusion(0.5, None));
        let mostly_open = correct(std::iter::once(conclusion(0.04, None)).chain(open_conclusions().take(9)).collect());
        assert!(mostly_open.iter().all(|entry| entry.holds.is_none()), "{mostly_open:?}");
        assert!((mostly_open[0].outcome.unwrap().difference.adjusted - 0.4).abs() < 1e-12);
        let significant = correct(std::iter::repeat_with(|| conclusion(0.04, None)).take(10).collect());
        assert!(significant.iter().all(|entry| entry.holds == Some(true)));
        assert_eq!(correct(vec![conclusion(0.04, None)])[0].holds, Some(true), "alone");
    }

    #[test]
    fn equivalence_holds_unless_difference_is_known() {
        let results =
            correct(vec![conclusion(0.6, Some(0.001)), conclusion(0.001, Some(0.001)), conclusion(0.6, Some(0.5))]);
        assert_eq!(results.iter().map(Conclusion::same_within).collect::<Vec<_>>(), [Some(0.05), None, None]);
        assert_eq!(results.iter().map(|entry| entry.holds).collect::<Vec<_>>(), [None, Some(true), None]);
    }

    #[test]
    fn untested_conclusion_is_unchanged() {
        let untested = Conclusion { outcome: None, ..conclusion(0.01, None) };
        let results = correct(vec![untested.clone(), conclusion(0.5, None)]);
        assert_eq!(results[0], untested);
    }
}
