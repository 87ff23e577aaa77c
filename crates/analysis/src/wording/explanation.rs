//! What makes a figure what it is, in words.

use kelvin_core::units::{Scale, case, metric_at, percent, quantity, scale_for, seconds, span, value_text};
use kelvin_core::{
    AmountUnit, CauseResult, CauseVerdict, Estimate, ExplainedPart, Explanation, FormulaSize, PartKind, Prediction,
    SkipReason, Unit,
};

/// An explanation in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationText {
    /// What the figure is.
    pub sentences: Vec<String>,
    /// Unit of the amounts: `µs`, `µs/MB`.
    pub unit: String,
    /// The rows of the sum.
    pub rows: Vec<ExplanationRow>,
    /// The sum itself.
    pub whole: String,
    /// What else is to be said, each with its label.
    pub notes: Vec<(&'static str, String)>,
}

/// A row of the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationRow {
    /// What the part is.
    pub what: String,
    /// Its amount.
    pub amount: String,
    /// Its share.
    pub share: String,
    /// What shows it.
    pub shown_by: String,
    /// Whether it is a part of the row above, and no part of the sum by itself.
    pub is_within: bool,
}

/// What is found of several figures; nothing of none.
pub fn explanations_summary(explanations: &[Explanation]) -> Option<String> {
    let is_part = |part: &ExplainedPart| matches!(part.kind, PartKind::Cause(_));
    let count = |is_shown: bool, is_explained: bool| {
        let is_it = |one: &&Explanation| (one.parts.iter().any(is_part), one.is_explained) == (is_shown, is_explained);
        explanations.iter().filter(is_it).count()
    };
    let counts = [
        (count(true, true), "explained"),
        (count(true, false), "explained in part"),
        (count(false, false), "not explained"),
        (count(false, true), "not distinguishable from a prediction"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let said: Vec<String> = said.collect();
    let figures = if explanations.len() == 1 { "figure" } else { "figures" };
    (!said.is_empty()).then(|| format!("{} {figures}: {}.", explanations.len(), said.join(", ")))
}

/// An explanation in words.
pub fn word_explanation(explanation: &Explanation) -> ExplanationText {
    let scale = AmountFormat::for_explanation(explanation);
    let mut rows: Vec<ExplanationRow> =
        explanation.parts.iter().flat_map(|part| part_rows(part, explanation, &scale)).collect();
    let is_overlap = explanation.not_explained.amount.is_above(0.0) == Some(false);
    rows.push(ExplanationRow {
        what: if is_overlap { "counted twice" } else { "not explained" }.into(),
        amount: scale.text(explanation.not_explained.amount.value),
        share: whole_percent(explanation.not_explained.share.value),
        shown_by: remainder_text(explanation, &scale),
        is_within: false,
    });
    ExplanationText {
        sentences: sentences(explanation),
        unit: scale.unit(explanation.amounts),
        rows,
        whole: scale.text(explanation.whole.value),
        notes: notes(explanation, &scale),
    }
}

/// What is said beside the remainder.
fn remainder_text(explanation: &Explanation, scale: &AmountFormat) -> String {
    let amount = &explanation.not_explained.amount;
    match &explanation.predicted {
        _ if amount.low < amount.high => format!("({})", scale.interval(amount)),
        Some(range) if (range.low..=range.high).contains(&explanation.figure.value) => {
            "it is within its predicted range".into()
        }
        Some(_) => "its interval overlaps its predicted range".into(),
        None => "nothing says what it should be".into(),
    }
}

/// How the amounts of one explanation are written: all in one unit, with as many decimals as the whole has.
struct AmountFormat {
    scale: Scale,
    decimals: usize,
}

impl AmountFormat {
    fn for_explanation(explanation: &Explanation) -> Self {
        let unit = match explanation.amounts {
            AmountUnit::MetricUnit => explanation.metric.unit,
            AmountUnit::Operation | AmountUnit::Megabyte => Unit::Nanoseconds,
        };
        let scale = scale_for(explanation.whole.value, unit);
        let decimals = match (explanation.whole.value / scale.factor).abs() {
            size if size >= 99.95 => 0,
            size if size >= 9.995 => 1,
            _ => 2,
        };
        Self { scale, decimals }
    }

    fn unit(&self, amounts: AmountUnit) -> String {
        let symbol = self.scale.symbol;
        if amounts == AmountUnit::Megabyte { format!("{symbol}/MB") } else { symbol.to_owned() }
    }

    fn text(&self, amount: f64) -> String {
        let text = format!("{:.*}", self.decimals, amount / self.scale.factor);
        // No minus before nothing.
        if text.trim_start_matches('-').bytes().all(|digit| b"0.".contains(&digit)) {
            text.trim_start_matches('-').to_owned()
        } else {
            text
        }
    }

    fn interval(&self, amount: &Estimate) -> String {
        format!("{} to {}", self.text(amount.low), self.text(amount.high))
    }

    fn with_unit(&self, amount: &Estimate) -> String {
        format!("{} {}", self.interval(amount), self.scale.symbol)
    }
}

fn whole_percent(share: f64) -> String {
    let text = format!("{:.0} %", share * 100.0);
    if text == "-0 %" { "0 %".into() } else { text }
}

/// The row of a part, and that of the host's part in it.
fn part_rows(part: &ExplainedPart, explanation: &Explanation, scale: &AmountFormat) -> Vec<ExplanationRow> {
    let is_of = |cause: &&CauseResult| part.kind == PartKind::Cause(cause.id);
    let of_host =
        explanation.causes.iter().find(is_of).and_then(|cause| cause.host_share).map(|share| ExplanationRow {
            what: "of that the host".into(),
            amount: scale.text(share.amount.value),
            share: whole_percent(share.share.value),
            shown_by: format!("{}: it grows with the time that the CPU was idle", share_interval(&share.share)),
            is_within: true,
        });
    std::iter::once(part_row(part, explanation, scale)).chain(of_host).collect()
}

fn part_row(part: &ExplainedPart, explanation: &Explanation, scale: &AmountFormat) -> ExplanationRow {
    let cause = |id| explanation.causes.iter().find(|cause| cause.id == id);
    let is_whole = explanation.parts.len() == 1;
    let (what, shown_by) = match &part.kind {
        PartKind::Cause(id) => cause(*id).map_or_else(
            || (id.to_string(), String::new()),
            |cause| {
                (cause.summary.to_string(), format!("{}: {}", share_interval(&part.share.share), mechanism_text(cause)))
            },
        ),
        PartKind::Rest if is_whole => ("no part of it is shown".into(), String::new()),
        PartKind::Rest => ("without these".into(), format!("measured so ({})", scale.interval(&part.share.amount))),
        PartKind::Expected if is_whole => ("as predicted".into(), "its inputs, as found".into()),
        PartKind::Expected => ("as predicted without these".into(), "its inputs, measured so".into()),
    };
    ExplanationRow {
        what,
        amount: scale.text(part.share.amount.value),
        share: whole_percent(part.share.share.value),
        shown_by,
        is_within: false,
    }
}

/// `51 to 64 %`.
pub(crate) fn share_interval(share: &Estimate) -> String {
    match [share.low, share.high].map(whole_percent) {
        [low, high] if low == high => low,
        [low, high] => format!("{} to {high}", low.trim_end_matches(" %")),
    }
}

/// The mechanisms that count, in words.
fn mechanism_text(cause: &CauseResult) -> String {
    let counting = cause.evidence.iter().filter(|one| one.missing_reason.is_none());
    counting.map(|one| one.description.as_str()).collect::<Vec<_>>().join("; ")
}

fn sentences(explanation: &Explanation) -> Vec<String> {
    let Explanation { metric, figure, .. } = explanation;
    let at = case(metric, &explanation.case);
    let what = if at.is_empty() { metric.id.to_string() } else { format!("{} {at}", metric.id) };
    let mut figure = format!("{}{}", value_text(figure.value, metric.unit), interval_text(figure, metric.unit));
    match (&explanation.predicted, &explanation.no_prediction_reason) {
        (Some(predicted), _) => figure.push_str(&format!(", predicted {}", predicted_range(predicted, metric.unit))),
        (None, Some(why)) => figure.push_str(&format!("; no prediction: {why}")),
        (None, None) => {}
    }
    if let Some(predicted) = &explanation.predicted_without {
        figure.push_str(&format!("; without what is shown below {}", predicted_range(predicted, metric.unit)));
    }
    vec![what, format!("{}.", metric.summary), String::new(), format!("{figure}.")]
}

/// The interval of a figure, with a unit only where it is another one.
fn interval_text(figure: &Estimate, unit: Unit) -> String {
    let [value, low, high] = [figure.value, figure.low, figure.high].map(|value| quantity(value, None, unit));
    match () {
        () if figure.low >= figure.high => String::new(),
        () if [&low, &high].iter().all(|end| end.unit == value.unit) => format!(" ({} to {})", low.value, high.value),
        () => format!(" ({})", span(figure.low, figure.high, unit)),
    }
}

fn predicted_range(predicted: &Prediction, unit: Unit) -> String {
    span(predicted.low, predicted.high, unit)
}

fn notes(explanation: &Explanation, scale: &AmountFormat) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    for (label, says) in CAUSE_LABELS {
        let found: Vec<String> = explanation
            .causes
            .iter()
            .filter_map(|cause| Some(format!("{}{}", cause.summary, says(cause, scale)?)))
            .collect();
        if !found.is_empty() {
            notes.push((*label, found.join("; ")));
        }
    }
    if explanation.causes.is_empty() {
        notes.push((
            "tried",
            "nothing: kelvin knows no cause that can touch this figure and that it can take away".into(),
        ));
    }
    match explanation.not_explained.amount.is_above(0.0) {
        Some(true) => notes.push(("not explained", tried_causes(explanation))),
        Some(false) => {
            notes.push(("overlap", "the parts are more than the whole: some causes act on the same time".into()))
        }
        None => {}
    }
    let formula =
        |cause: &CauseResult| Some(format!("{}: {}", cause.summary, formula_text(cause.by_formula.as_ref()?)));
    let formulas: Vec<String> = explanation.causes.iter().filter_map(formula).collect();
    if !formulas.is_empty() {
        notes.push(("by formula", formulas.join("; ")));
    }
    if let Some(predicted) = &explanation.predicted_without {
        notes.push(("predicted", predicted.derivation.clone()));
    }
    let bystanders = negative_controls(explanation);
    if !bystanders.is_empty() {
        notes.push(("bystanders", bystanders.join("; ")));
    }
    let helps = explanation.causes.iter().filter(|cause| cause.verdict == CauseVerdict::Shown);
    let helps: Vec<&str> = helps.map(|cause| cause.remedy.as_str()).collect();
    if !helps.is_empty() {
        notes.push(("What helps", format!("{}.", helps.join("; "))));
    }
    notes.push((
        "measured",
        format!("{} passes in {}, medians of rounds as found", explanation.passes, seconds(explanation.seconds)),
    ));
    notes
}

/// What is said of causes with one kind of verdict, after what they are.
type CauseTextFn = fn(&CauseResult, &AmountFormat) -> Option<String>;

const CAUSE_LABELS: &[(&str, CauseTextFn)] = &[
    ("ruled out", |cause, scale| {
        let is_so = matches!(cause.verdict, CauseVerdict::RuledOut);
        is_so.then(|| cause.share.map_or_else(String::new, |share| format!(" ({})", scale.with_unit(&share.amount))))
    }),
    ("the opposite", |cause, scale| {
        let more = cause.share.filter(|_| cause.verdict == CauseVerdict::Opposite)?;
        let more =
            Estimate { value: -more.amount.value, low: -more.amount.high, high: -more.amount.low, is_range: false };
        Some(format!(": without it, it takes {} more", scale.with_unit(&more)))
    }),
    ("not decided", |cause, scale| match cause.verdict {
        CauseVerdict::Undecided => {
            Some(format!(" ({}): more passes, by --budget, may decide", mechanism_list(cause, scale)))
        }
        CauseVerdict::MechanismsDisagree => {
            Some(format!(": its mechanisms disagree ({})", mechanism_list(cause, scale)))
        }
        CauseVerdict::OneMechanism => {
            Some(format!(": one mechanism alone shows it ({})", mechanism_list(cause, scale)))
        }
        _ => None,
    }),
    ("void", |cause, _| {
        let is_so = cause.verdict == CauseVerdict::Invalid;
        is_so.then(|| ": its controls move what they cannot touch, and say nothing".to_owned())
    }),
    ("not tried", |cause, _| match &cause.verdict {
        CauseVerdict::NotTried(SkipReason(why)) => Some(format!(": {why}")),
        _ => None,
    }),
];

/// What each mechanism shows.
fn mechanism_list(cause: &CauseResult, scale: &AmountFormat) -> String {
    let one = |evidence: &kelvin_core::MechanismEvidence| match (&evidence.amount, &evidence.missing_reason) {
        (Some(amount), None) => format!("{}: {}", evidence.description, scale.with_unit(amount)),
        (Some(amount), Some(why)) => format!("{}: {}, {why}", evidence.description, scale.with_unit(amount)),
        (None, why) => format!("{}: not tried: {}", evidence.description, why.as_deref().unwrap_or("no rounds")),
    };
    cause.evidence.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What was tried, where a gap remains.
fn tried_causes(explanation: &Explanation) -> String {
    let was_tried = |cause: &&CauseResult| !matches!(cause.verdict, CauseVerdict::NotTried(_));
    let names: Vec<&str> = explanation.causes.iter().filter(was_tried).map(|cause| cause.summary.as_str()).collect();
    let share = percent(explanation.not_explained.share.value.abs());
    if names.is_empty() {
        format!("{share} of it; nothing could be tried")
    } else {
        format!("{share} of it; tried: {}", names.join(", "))
    }
}

fn formula_text(FormulaSize { formula, nanoseconds }: &FormulaSize) -> String {
    let times = if formula.factor == 1.0 { String::new() } else { format!("{} x ", formula.factor) };
    format!(
        "{times}({} - {}) = {}",
        formula.minuend,
        formula.subtrahend,
        value_text(nanoseconds.value, Unit::Nanoseconds)
    )
}

/// What the controls did to what their causes cannot touch, each control once.
fn negative_controls(explanation: &Explanation) -> Vec<String> {
    let mut told: Vec<(String, String)> = Vec::new();
    for evidence in explanation.causes.iter().flat_map(|cause| &cause.evidence) {
        let Some(one) = &evidence.negative_control else { continue };
        let metric = kelvin_core::catalogue::find(one.at.metric);
        let name = metric.map_or_else(|| one.at.to_string(), |metric| metric_at(metric, &one.at.case));
        let ratio = format!("{:.2} times {}", one.ratio.value, evidence.description);
        let text = if one.moved { format!("{ratio}, so it does not count") } else { ratio };
        match told.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) if known.contains(&text) => {}
            Some((_, known)) => known.push_str(&format!(", {text}")),
            None => told.push((name, format!("{}, {text}", value_text(one.value, one.unit)))),
        }
    }
    told.into_iter().map(|(name, text)| format!("{name}: {text}")).collect()
}
