//! What changes from one sweep of a run to another that differs in one property: the pattern, the cache, the think time.

use super::labels::property_text;
use super::limit::knee_span;
use super::next_limit::disk_read_ratio;
use super::*;

/// How far two saturation throughputs may be apart to count as the same, as a share: the knee is known to within as much.
const SAME_THROUGHPUT_SHARE: f64 = 0.05;
/// Bytes from the disk for each byte served from which files come from it.
const MIN_DISK_BYTES: f64 = 0.1;

/// The conclusions from each pair of sweeps, the usual one of the pair first, and the answer on it.
pub(super) fn pair_conclusions(sweeps: &[Sweep]) -> Vec<(Vec<LoadConclusion>, StudyAnswer)> {
    let pairs = sweeps.iter().flat_map(|base| sweeps.iter().map(move |other| (base, other)));
    pairs.filter_map(|(base, other)| SweepPair::from_sweeps(base, other)).map(|pair| pair.conclusions()).collect()
}

/// Two sweeps at saturation that differ in one property.
struct SweepPair<'s> {
    /// The axis of the property.
    axis: Name,
    base: SaturatedSweep<'s>,
    other: SaturatedSweep<'s>,
}

impl<'s> SweepPair<'s> {
    /// `None` unless they differ in one property, the first is the usual one of the two, and both saturate.
    fn from_sweeps(base: &'s Sweep, other: &'s Sweep) -> Option<Self> {
        let axes = [RequestPattern::AXIS, CacheState::AXIS, THINK_TIME];
        let axis = axes.into_iter().find(|&axis| {
            base.fixed != other.fixed && without_axes(&base.fixed, &[axis]) == without_axes(&other.fixed, &[axis])
        })?;
        let is_in_order = match (RequestPattern::of(&base.fixed), CacheState::of(&base.fixed)) {
            (pattern, _) if axis == RequestPattern::AXIS => pattern == Some(RequestPattern::Random),
            (_, cache) if axis == CacheState::AXIS => cache == Some(CacheState::Uncached),
            _ => base.think_seconds() < other.think_seconds(),
        };
        is_in_order.then_some(())?;
        Some(Self { axis: axis.name, base: saturated_sweep(base)?, other: saturated_sweep(other)? })
    }

    /// What the base and the other have of the property.
    fn names(&self) -> [String; 2] {
        [&self.base, &self.other].map(|side| property_text(self.axis, &side.sweep.fixed))
    }

    fn conclusions(&self) -> (Vec<LoadConclusion>, StudyAnswer) {
        // Think time changes how many requests there are at a time, the others where they are served from.
        let detail = if self.axis == THINK_TIME.name { Some(self.knee()) } else { self.disk() };
        let throughput = self.throughput();
        let relation = match throughput.0.stated.holds {
            Some(true) => "is the same",
            Some(false) => "differs",
            None => "is not certainly the same",
        };
        let [base_name, other_name] = self.names();
        let text =
            capitalise(&format!("{other_name} instead of {base_name}: the throughput at saturation {relation}."));
        let (conclusions, reasons) = std::iter::once(throughput).chain(detail).unzip();
        (conclusions, StudyAnswer { text, reasons })
    }

    /// Whether both carry as much: `the throughput at saturation is the same within 5.0 % with 1 s of think time as with no think time: 5.8
    /// and 5.7 requests/s`.
    fn throughput(&self) -> (LoadConclusion, String) {
        let values = [self.base.saturation.throughput, self.other.saturation.throughput];
        // The errors of both add as squares, of logarithms.
        let [base, other] = values;
        let ratio = other.value / base.value;
        let combine = |first: f64, second: f64| (first.ln().powi(2) + second.ln().powi(2)).sqrt();
        let lower_error = combine(other.value / other.low, base.high / base.value);
        let upper_error = combine(other.high / other.value, base.value / base.low);
        let deviation =
            Estimate::new(ratio - 1.0, (ratio * (-lower_error).exp() - 1.0, ratio * upper_error.exp() - 1.0));
        let ([base_name, other_name], [before, after]) = (self.names(), values.map(|estimate| number(estimate.value)));
        let (tolerance, change) = (SAME_THROUGHPUT_SHARE, span_text(&deviation, signed_percent));
        let text = format!(
            "the throughput at saturation is the same within {} with {other_name} as with {base_name}: {after} and {before} requests/s, {change}",
            percent(tolerance)
        );
        let line = format!("{after} instead of {before} requests/s: {change}.");
        let figure = LoadFigure::Throughput { deviation, tolerance };
        (self.conclusion(figure, values, deviation.is_within(tolerance), text), line)
    }

    /// Whether the other needs more users: their intervals are apart.
    fn knee(&self) -> (LoadConclusion, String) {
        let [base, other] = [self.base.saturation.knee, self.other.saturation.knee];
        let holds = match (other.low > base.high, other.high <= base.low) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let users = [base, other].map(|knee| Estimate::new(knee.users as f64, (knee.low as f64, knee.high as f64)));
        let [before, after] = users.map(|knee| format!("{}{}", knee.value, knee_span(knee.low, knee.high)));
        let [base_name, other_name] = self.names();
        let text = format!("with {other_name} the knee is later than with {base_name}: at {after} and {before} users");
        let is_later = if holds == Some(true) { "later" } else { "not certainly later" };
        let line = format!("The knee is {is_later}: at {after} instead of {before} users.");
        (self.conclusion(LoadFigure::Knee, users, holds, text), line)
    }

    /// Whether the disk reads less for each byte served, where files came from it.
    fn disk(&self) -> Option<(LoadConclusion, String)> {
        let values = [disk_read_ratio(&self.base)?, disk_read_ratio(&self.other)?];
        let [base, other] = values;
        let is_apart = (other.high < base.low).then_some(true).or((other.low > base.high).then_some(false));
        let ([base_name, other_name], [before, after]) = (self.names(), values.map(|estimate| number(estimate.value)));
        let text = format!(
            "with {other_name} the disk reads less than with {base_name}: {after} and {before} bytes for each byte served"
        );
        let line = format!("The disk reads {after} instead of {before} bytes for each byte served.");
        (base.low > MIN_DISK_BYTES).then(|| (self.conclusion(LoadFigure::DiskBytes, values, is_apart, text), line))
    }

    fn conclusion(
        &self,
        figure: LoadFigure,
        values: [Estimate; 2],
        holds: Option<bool>,
        text: String,
    ) -> LoadConclusion {
        let cases: [Case; 2] = [&self.base, &self.other].map(|side| side.sweep.fixed.clone());
        let visits = self.base.steps().count() + self.other.steps().count();
        let claim = LoadComparison { axis: self.axis, cases, figure, values };
        LoadConclusion::new(LoadClaim::Comparison(Box::new(claim)), holds, saturated_test(visits), text)
    }
}
