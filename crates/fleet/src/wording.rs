//! What is said of a host that is out: one line of plain English.

use kelvin_core::units::metric_at;
use kelvin_core::{Better, Unit, worse_by};

use crate::report::{OddFact, OutlierFigure};

/// Single figures that a line names; more are summarised.
const MAX_NAMED_FIGURES: usize = 2;
/// Facts that a line names.
const MAX_NAMED_FACTS: usize = 2;
/// Characters of a fact's value in a line.
const MAX_VALUE_CHARS: usize = 40;

/// What is out of one area of a host.
#[derive(Clone, Debug)]
pub(crate) struct AreaFindings<'a> {
    /// The area: `mem`.
    pub area: &'a str,
    /// The metric, if all of it is of one.
    pub metric: Option<&'a str>,
    /// Its figures that are out or shifted with their metric or area.
    pub shifted: usize,
    /// All its figures that the host has.
    pub total: usize,
    /// The median share by which the shifted ones are worse; below zero where they are better.
    pub worse_by: f64,
    /// Whether all of them are times or rates.
    pub is_speed: bool,
    /// Those that are out by themselves.
    pub figures: Vec<&'a OutlierFigure>,
}

/// `n17: 12 of 40 memory figures 8 % slower than its 63 peers, and nothing else: a memory channel?`.
pub(crate) fn outlier_line(label: &str, peers: usize, areas: &[AreaFindings<'_>], facts: &[OddFact]) -> String {
    let mut parts: Vec<String> = areas.iter().flat_map(|area| area_texts(area, peers)).collect();
    let named = facts.iter().take(MAX_NAMED_FACTS).map(odd_fact_text);
    if parts.is_empty() {
        parts = named.collect();
        parts.extend(more_facts(facts));
        return format!("{label}: {}", parts.join("; "));
    }
    let count = parts.len();
    let text = parts.join("; ");
    match (areas, facts) {
        ([area], []) if count == 1 => {
            let hint = hint(area).map(|hint| format!(": {hint}?")).unwrap_or_default();
            format!("{label}: {text}, and nothing else{hint}")
        }
        (_, []) => {
            let is_all_slower = areas.len() > 1 && areas.iter().all(|area| area.worse_by > 0.0);
            let has_processor = areas.iter().any(|area| area.area == "cpu");
            let hint = if is_all_slower && has_processor { ": frequency or cooling?" } else { "" };
            format!("{label}: {text}{hint}")
        }
        _ => {
            let facts: Vec<String> = named.chain(more_facts(facts)).collect();
            format!("{label}: {text}; goes with {}", facts.join("; "))
        }
    }
}

fn more_facts(facts: &[OddFact]) -> Option<String> {
    let rest = facts.len().saturating_sub(MAX_NAMED_FACTS);
    (rest > 0).then(|| format!("{rest} more facts of its own"))
}

fn area_texts(area: &AreaFindings<'_>, peers: usize) -> Vec<String> {
    if area.figures.len() == area.shifted && area.shifted <= MAX_NAMED_FIGURES {
        return area.figures.iter().map(|figure| figure_text(figure, peers)).collect();
    }
    let name = area.metric.unwrap_or_else(|| area_word(area.area));
    let degree = match (area.worse_by > 0.0, area.is_speed) {
        (true, true) => "slower",
        (false, true) => "faster",
        (true, false) => "worse",
        (false, false) => "better",
    };
    let (shifted, total, share) = (area.shifted, area.total, share_text(area.worse_by));
    vec![format!("{shifted} of {total} {name} figures {share} {degree} than its {peers} peers")]
}

/// `mem.bandwidth (access=read) 22 % below its 63 peers`.
pub(crate) fn figure_text(figure: &OutlierFigure, peers: usize) -> String {
    let side = if figure.ratio > 1.0 { "above" } else { "below" };
    let share = share_text(figure.ratio - 1.0);
    format!("{} {share} {side} its {peers} peers", metric_at(&figure.metric, &figure.case))
}

/// `frequency governor powersave, its 63 peers have performance`.
pub(crate) fn odd_fact_text(fact: &OddFact) -> String {
    let OddFact { label, value, peers, peers_with, known_by, .. } = fact;
    let [value, peers] = [value, peers].map(|text| excerpt(text));
    let count =
        if peers_with == known_by { format!("its {known_by}") } else { format!("{peers_with} of its {known_by}") };
    format!("{} {value}, {count} peers have {peers}", lower_first(label))
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A label within a sentence: its first letter is small unless the second is not.
fn lower_first(label: &str) -> String {
    let mut letters = label.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(label.chars().skip(1)).collect()
        }
        _ => label.to_owned(),
    }
}

/// A share without a sign: `8 %`, `1.4 %`.
pub(crate) fn share_text(share: f64) -> String {
    let hundredths = 100.0 * share.abs();
    if hundredths < 4.95 { format!("{hundredths:.1} %") } else { format!("{hundredths:.0} %") }
}

/// An area as an adjective.
fn area_word(area: &str) -> &str {
    match area {
        "cpu" => "processor",
        "os" => "kernel",
        "mem" => "memory",
        "net" => "network",
        area => area,
    }
}

/// What to look at first, where only this is worse: a question.
fn hint(area: &AreaFindings<'_>) -> Option<&'static str> {
    if area.worse_by <= 0.0 {
        return None;
    }
    match area.area {
        "mem" if area.figures.iter().any(|figure| figure.metric.unit == Unit::BytesPerSecond) => {
            Some("a memory channel")
        }
        "mem" => Some("memory modules or their timings"),
        "cpu" => Some("frequency or cooling"),
        "os" => Some("a kernel setting"),
        "file" => Some("a disk"),
        "net" => Some("a link or its port"),
        _ => None,
    }
}

/// By which share a figure is worse, of a ratio to the peers. Where neither direction is better, how far it is above them.
pub(crate) fn worse_share(ratio: f64, better: Better) -> f64 {
    worse_by(ratio, better)
}

/// Whether a unit is that of a time or a rate.
pub(crate) fn is_speed(unit: Unit) -> bool {
    matches!(unit, Unit::Nanoseconds | Unit::Cycles | Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond)
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Metric, PValue};

    use super::*;

    static RATE: Metric =
        Metric::rate("mem.bandwidth.read", "Bytes read in a second").unit(Unit::BytesPerSecond, Better::Higher);

    fn figure(ratio: f64) -> OutlierFigure {
        OutlierFigure {
            metric: RATE,
            case: Case::new(),
            value: ratio,
            range: [ratio, ratio],
            peers: 1.0,
            ratio,
            distance: -12.0,
            p_value: PValue::new(1e-9),
            counted_chance: 1e-9,
        }
    }

    fn area<'a>(figures: Vec<&'a OutlierFigure>, shifted: usize, worse_by: f64) -> AreaFindings<'a> {
        AreaFindings { area: "mem", metric: None, shifted, total: 40, worse_by, is_speed: true, figures }
    }

    #[test]
    fn lines_of_hosts() {
        let slow = figure(0.78);
        let odd = OddFact {
            group: "CPU".into(),
            label: "Frequency governor".into(),
            value: "powersave".into(),
            peers: "performance".into(),
            peers_with: 63,
            known_by: 63,
        };
        assert_eq!(
            outlier_line("n17", 63, &[area(vec![&slow], 1, 0.22)], &[]),
            "n17: mem.bandwidth.read 22 % below its 63 peers, and nothing else: a memory channel?"
        );
        assert_eq!(
            outlier_line("n17", 63, &[area(vec![], 12, 0.08)], &[]),
            "n17: 12 of 40 memory figures 8 % slower than its 63 peers, and nothing else: memory modules or their timings?"
        );
        assert_eq!(
            outlier_line("n17", 63, &[area(vec![], 12, -0.034)], std::slice::from_ref(&odd)),
            "n17: 12 of 40 memory figures 3.4 % faster than its 63 peers; goes with frequency governor powersave, its 63 peers have performance"
        );
        assert_eq!(
            outlier_line("n17", 63, &[], std::slice::from_ref(&odd)),
            "n17: frequency governor powersave, its 63 peers have performance"
        );
        assert_eq!(outlier_line("n", 3, &[], &vec![odd; 3]).matches("1 more facts").count(), 1);
        assert_eq!(lower_first("CPU quota"), "CPU quota");
    }
}
