//! What a comparison must not show: one bound for all figures, or a policy with bounds, owners and known issues.

use std::collections::BTreeMap;

use kelvin_core::units::case_pairs;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use toml::value::Datetime;

use super::text::{figure_name, not_compared_name};
use crate::prelude::*;

/// Largest share that can be allowed: a figure that is a thousand times worse.
const MAX_ALLOWED_SHARE: f64 = 1000.0;

/// What must not be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// By how much any figure may be worse; nothing worse without it.
    #[serde(default)]
    worse: AllowedWorsening,
    /// The change that must have been found, if there had been one, in any figure.
    seen: Option<GateShare>,
    /// What holds for some figures instead.
    #[serde(default)]
    figures: Vec<GateRule>,
    /// What is known to be worse.
    #[serde(default)]
    known: Vec<GateIssue>,
}

/// What holds for some figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct GateRule {
    /// A metric, or a leading part of one, as everywhere.
    name: String,
    /// Values of axes, as tables write them; spaces do not count.
    #[serde(default)]
    case: BTreeMap<String, AxisText>,
    worse: Option<AllowedWorsening>,
    seen: Option<GateShare>,
    owner: Option<String>,
}

/// A known issue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct GateIssue {
    name: String,
    #[serde(default)]
    case: BTreeMap<String, AxisText>,
    because: String,
    until: Option<Datetime>,
    worse: Option<GateShare>,
    owner: Option<String>,
}

/// The value of an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum AxisText {
    Text(String),
    Whole(i64),
}

/// The share by which a figure may be worse, and not as much: 0 for by nothing that is found, infinite for by anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AllowedWorsening(f64);

/// A share of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GateShare(f64);

impl Gate {
    /// Fails for any figure that is worse by this share; 0 for any that is worse at all.
    pub fn from_share(share: f64) -> Self {
        Self { worse: AllowedWorsening(share.max(0.0)), ..Self::default() }
    }

    /// Reads a policy, in TOML.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn from_policy(text: &str) -> Result<Self, String> {
        let gate: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            let message = error.message().trim_end().replace('\n', ", ");
            line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
        })?;
        match gate.known.iter().filter_map(|issue| issue.until).find(|until| until.date.is_none()) {
            Some(until) => Err(format!("until = {until}: expected a day, such as 2026-12-31")),
            None => Ok(gate),
        }
    }

    /// The names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let issue_names = self.known.iter().map(|issue| &*issue.name);
        self.figures.iter().map(|rule| &*rule.name).chain(issue_names)
    }

    /// Judges a comparison, on this day (2026-12-31).
    pub fn judge(&self, comparison: &Comparison, today: &str) -> GateResult {
        let mut result = GateResult::default();
        let mut was_seen = vec![false; self.known.len()];
        for figure in &comparison.figures {
            let subject = GatedFigure::from_figure(figure);
            let rule = self.rule_for(&subject);
            // A change as large as is allowed could not have been found.
            let bound = rule.allowed.0.max(comparison.threshold);
            let is_undetectable = bound.is_finite() && figure.detectable_change.is_none_or(|change| change > bound);
            result.undetectable += usize::from(is_undetectable);
            let Some(reason) = rule.miss_reason(figure) else { continue };
            // An issue excuses a failure until its day, and up to its share. One that excuses comes before others.
            let issues = self.known.iter().enumerate().filter(|(_, entry)| subject.is_one_of(&entry.name, &entry.case));
            let candidates = issues.map(|(index, issue)| (index, issue, issue.is_excusing(reason, today)));
            let best_match = candidates.min_by_key(|&(.., is_excusing)| !is_excusing);
            let issue = |issue: &GateIssue| KnownIssue {
                reason: issue.because.clone(),
                until: issue.until.map(date_text),
                worse: issue.worse.map(|share| share.0),
            };
            let finding = GateFinding {
                metric: figure.metric.id,
                figure: figure_name(figure),
                reason,
                issue: best_match.map(|(_, entry, _)| issue(entry)),
                owner: best_match.and_then(|(_, issue, _)| issue.owner.clone()).or(rule.owner),
            };
            best_match.iter().for_each(|&(index, ..)| was_seen[index] = true);
            let is_excused = best_match.is_some_and(|(.., is_excusing)| is_excusing);
            let findings = if is_excused { &mut result.known } else { &mut result.failures };
            findings.push(finding);
        }
        let missing_finding = |entry: &NotCompared| {
            let (metric, figure) = (entry.metric, not_compared_name(entry));
            let AppliedRule { required_share, owner, .. } =
                self.rule_for(&GatedFigure::from_words(metric, &entry.case));
            required_share.map(|_| GateFinding { metric, figure, reason: GateReason::NotCompared, issue: None, owner })
        };
        result.failures.extend(comparison.not_compared.iter().filter_map(missing_finding));
        let issues = self.known.iter().zip(was_seen).filter(|(_, was_seen)| !was_seen);
        result.resolved = issues.map(|(issue, _)| issue.because.clone()).collect();
        result
    }

    /// What holds for a figure: of rules for it the most special, of equals the last.
    fn rule_for(&self, subject: &GatedFigure) -> AppliedRule {
        let is_matching = |rule: &&GateRule| subject.is_one_of(&rule.name, &rule.case);
        let specificity = |rule: &&GateRule| (rule.name.len(), rule.case.len());
        let rule = self.figures.iter().filter(is_matching).max_by_key(specificity);
        AppliedRule {
            allowed: rule.and_then(|rule| rule.worse).unwrap_or(self.worse),
            required_share: rule.and_then(|rule| rule.seen).or(self.seen).map(|share| share.0),
            owner: rule.and_then(|rule| rule.owner.clone()),
        }
    }
}

/// What holds for one figure.
struct AppliedRule {
    allowed: AllowedWorsening,
    required_share: Option<f64>,
    owner: Option<String>,
}

impl AppliedRule {
    fn miss_reason(&self, figure: &ComparedFigure) -> Option<GateReason> {
        let (change, AllowedWorsening(allowed)) = (figure.worse_by(), self.allowed);
        if figure.verdict == ChangeVerdict::Worse && change >= allowed {
            return Some(GateReason::Worse { change, allowed });
        }
        let detectable = figure.detectable_change;
        let required =
            self.required_share.filter(|&required| detectable.is_none_or(|detectable| detectable > required))?;
        Some(GateReason::Undetectable { detectable, required })
    }
}

impl GateIssue {
    fn is_excusing(&self, reason: GateReason, today: &str) -> bool {
        let is_over = self.until.is_some_and(|until| date_text(until).as_str() < today);
        let is_within = match (reason, self.worse) {
            (GateReason::Worse { change, .. }, Some(GateShare(max_share))) => change < max_share,
            (GateReason::Worse { .. } | GateReason::Undetectable { .. }, _) => true,
            (GateReason::NotCompared, _) => false,
        };
        is_within && !is_over
    }
}

fn date_text(until: Datetime) -> String {
    until.date.map(|date| date.to_string()).unwrap_or_default()
}

/// What rules are about: a metric, and its case in words.
struct GatedFigure {
    metric: Name,
    case: Vec<(String, String)>,
}

impl GatedFigure {
    fn from_figure(figure: &ComparedFigure) -> Self {
        let pairs = case_pairs(&figure.metric, &figure.case).into_iter();
        Self {
            metric: figure.metric.id,
            case: pairs.map(|(axis, value)| (axis.to_owned(), without_spaces(&value))).collect(),
        }
    }

    /// By the words for a case: `pages=base bytes=16 MiB`.
    fn from_words(metric: Name, case: &str) -> Self {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for word in case.split(' ') {
            match (word.split_once('='), pairs.last_mut()) {
                (Some((axis, value)), _) => pairs.push((axis.to_owned(), value.to_owned())),
                (None, Some((_, value))) => value.push_str(word),
                (None, None) => {}
            }
        }
        Self { metric, case: pairs }
    }

    /// Whether it is among the figures of a name at a case.
    fn is_one_of(&self, name: &str, case: &BTreeMap<String, AxisText>) -> bool {
        let text = |value: &AxisText| match value {
            AxisText::Text(text) => without_spaces(text),
            AxisText::Whole(number) => number.to_string(),
        };
        is_dotted_prefix(name, &self.metric)
            && case.iter().all(|(axis, value)| {
                self.case.iter().any(|(own_axis, own_value)| own_axis == axis && *own_value == text(value))
            })
    }
}

fn without_spaces(value: &str) -> String {
    value.replace(' ', "")
}

impl<'de> Deserialize<'de> for GateShare {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const RIGHT: &str = "a percentage above 0, such as \"5%\"";
        let text = String::deserialize(from)?;
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let share = percent.map(|percent| percent / 100.0).filter(|share| *share > 0.0 && *share <= MAX_ALLOWED_SHARE);
        share.map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &RIGHT))
    }
}

impl<'de> Deserialize<'de> for AllowedWorsening {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = AllowedWorsening;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a percentage such as \"5%\", true for what may be worse by anything, or false for what may not be worse")
            }

            fn visit_bool<E: serde::de::Error>(self, is_allowed: bool) -> Result<AllowedWorsening, E> {
                Ok(AllowedWorsening(if is_allowed { f64::INFINITY } else { 0.0 }))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AllowedWorsening, E> {
                let share = GateShare::deserialize(serde::de::value::StrDeserializer::<E>::new(text));
                share.map(|share| AllowedWorsening(share.0))
            }
        }
        from.deserialize_any(Words)
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Axis, AxisScale, Case, Estimate, Metric, NotComparedReason, SpreadSource};

    use super::*;
    use crate::compare::{InterleavedSettings, compare_interleaved};

    const BYTES: Axis = Axis::new("bytes", "set", AxisScale::Bytes);
    static LATENCY: Metric = Metric::duration("test.latency.load", "A load").with_axes([BYTES]);
    const TODAY: &str = "2026-11-25";

    /// A figure of 4 KiB that is worse by so much, and would have shown a change of 2 %.
    fn figure(change: f64) -> ComparedFigure {
        let ratio = Estimate { value: 1.0 + change, low: 1.0 + change, high: 1.0 + change, is_range: false };
        ComparedFigure {
            metric: LATENCY,
            case: Case::new().with_number(BYTES.name, 4096),
            base: 1.0,
            other: 1.0 + change,
            rounds: [8, 8],
            sides: Default::default(),
            ratio,
            ratio_basis: None,
            spread_source: SpreadSource::Runs(9),
            verdict: if change > 0.01 { ChangeVerdict::Worse } else { ChangeVerdict::Same },
            difference: None,
            equivalence: None,
            detectable_change: Some(0.02),
            times_to_decide: None,
            cause: None,
        }
    }

    fn comparison(figures: Vec<ComparedFigure>) -> Comparison {
        let names = ["a".into(), "b".into()];
        let settings =
            InterleavedSettings { names, differences: Vec::new(), threshold: 0.01, seconds: 0.0, cases: &[] };
        Comparison { figures, ..compare_interleaved(&settings) }
    }

    fn judge_policy(policy: &str, change: f64) -> GateResult {
        Gate::from_policy(policy).unwrap().judge(&comparison(vec![figure(change)]), TODAY)
    }

    #[test]
    fn most_specific_rule_decides() {
        let rule =
            |name: &str, worse: &str, extra: &str| format!("[[figures]]\nname = '{name}'\nworse = {worse}\n{extra}\n");
        let failure_count = |policy: &str, change: f64| judge_policy(policy, change).failures.len();
        assert_eq!([failure_count("", 0.005), failure_count("", 0.02)], [0, 1]);
        assert_eq!([failure_count("worse = '5%'", 0.04), failure_count("worse = '5%'", 0.05)], [0, 1]);
        assert_eq!([failure_count("worse = true", 9.0), failure_count("worse = false", 0.02)], [0, 1]);
        let area = rule("test", "'50%'", "");
        assert_eq!([failure_count(&area, 0.4), failure_count(&area, 0.6)], [0, 1]);
        assert_eq!(failure_count(&(rule("test.latency", "'20%'", "") + &area), 0.4), 1, "the longer name");
        assert_eq!(
            failure_count(
                &(rule("test.latency", "'20%'", "case.bytes = '4KiB'") + &rule("test.latency", "'90%'", "")),
                0.4
            ),
            1
        );
        assert_eq!(failure_count(&rule("test.latency", "'90%'", "case.bytes = '8 KiB'"), 0.4), 1, "another case");
        assert_eq!(failure_count(&rule("test.lat", "'90%'", ""), 0.4), 1, "no part of the id");
        let result = judge_policy(&rule("test", "'3%'", "owner = 'memory'"), 0.1);
        assert_eq!(result.failures[0].owner.as_deref(), Some("memory"));
        assert_eq!(result.failures[0].figure, "test.latency.load bytes=4 KiB");
        assert!(
            matches!(result.failures[0].reason, GateReason::Worse { change, allowed: 0.03 } if (change - 0.1).abs() < 1e-9)
        );
        assert_eq!(Gate::from_share(0.05), Gate::from_policy("worse = '5%'").unwrap());
        assert_eq!(Gate::from_share(0.0), Gate::from_policy("").unwrap());
    }

    #[test]
    fn undetectable_required_change_is_missed() {
        let count = |policy: &str| {
            let result = judge_policy(policy, 0.0);
            (result.failures.len(), result.undetectable)
        };
        assert_eq!([count(""), count("worse = '5%'"), count("worse = true")], [(0, 1), (0, 0), (0, 0)]);
        assert_eq!([count("worse = '5%'\nseen = '2%'"), count("worse = '5%'\nseen = '1%'")], [(0, 0), (1, 0)]);
        let gate =
            Gate::from_policy("seen = '10%'\n[[figures]]\nname = 'test'\ncase.bytes = '8KiB'\nowner = 'x'").unwrap();
        let reason = NotComparedReason::NoRatio;
        let not_compared = NotCompared { metric: LATENCY.id, case: "bytes=8 KiB".into(), reason };
        let result = gate.judge(&Comparison { not_compared: vec![not_compared], ..comparison(Vec::new()) }, TODAY);
        assert_eq!(
            (result.failures[0].reason, result.failures[0].owner.as_deref()),
            (GateReason::NotCompared, Some("x"))
        );
    }

    #[test]
    fn known_issue_excuses_until_day_and_share() {
        let issue_policy = |extra: &str| format!("[[known]]\nname = 'test'\nbecause = '#1'\n{extra}\n");
        let outcome = |policy: &str, change: f64| {
            let result = judge_policy(policy, change);
            (result.failures.len(), result.known.len(), result.resolved.len())
        };
        assert_eq!([outcome(&issue_policy(""), 0.3), outcome(&issue_policy(""), 0.0)], [(0, 1, 0), (0, 0, 1)]);
        assert_eq!(
            [outcome(&issue_policy("worse = '20%'"), 0.1), outcome(&issue_policy("worse = '20%'"), 0.3)],
            [(0, 1, 0), (1, 0, 0)]
        );
        for (until, is_over) in [("2026-11-24", true), ("2026-11-25", false), ("2027-01-01", false)] {
            assert_eq!(outcome(&issue_policy(&format!("until = {until}")), 0.3).0 == 1, is_over, "{until}");
        }
        let policies = issue_policy("until = 2020-01-01") + &issue_policy("worse = '50%'");
        assert_eq!(outcome(&policies, 0.3), (0, 1, 1), "one that excuses comes before one that does not");
        let expired = judge_policy(&issue_policy("until = 2020-01-01"), 0.3);
        assert_eq!(expired.failures[0].issue.as_ref().unwrap().until.as_deref(), Some("2020-01-01"));
    }

    #[test]
    fn policy_error_names_line() {
        for (policy, words) in [
            ("worse = 5", "line 1: invalid type: integer `5`"),
            ("worse = '5'", "a percentage"),
            ("worse = '0%'", "a percentage"),
            ("\nworse = 'nan%'", "line 2"),
            ("worst = '5%'", "unknown field `worst`"),
            ("[[figures]]\nworse = '5%'", "missing field `name`"),
            ("[[figures]]\nname = 'a'\nbecause = 'b'", "unknown field `because`"),
            ("[[known]]\nname = 'a'", "missing field `because`"),
            ("[[known]]\nname = 'a'\nbecause = 'b'\nuntil = 10:00:00", "a day, such as"),
            ("[[figures]", "line 1"),
        ] {
            let error = Gate::from_policy(policy).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{policy}: {error}");
        }
    }
}
