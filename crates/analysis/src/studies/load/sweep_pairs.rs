//! What changes from one sweep of a run to another that differs in one property: the pattern, the cache, the think time.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{DISK_BYTE_RATE, RATE, RequestPattern, THINK_TIME};
use kelvin_core::{Case, Conclusion, Estimate, LoadClaim, LoadComparison, LoadFigure, Name, TestEvidence};

use super::saturated_sweep::{SaturatedSweep, clamp_to_zero, mean_estimate};
use super::sweep::Sweep;
use super::{new_conclusion, saturated_sweep};
use crate::studies::crossing::without_axes;

/// How far two saturation throughputs may be apart to count as the same, as a share: the knee is told to as much.
const SAME_THROUGHPUT_SHARE: f64 = 0.05;
/// Bytes from the disk for each byte served from which files come from it.
const MIN_DISK_BYTES: f64 = 0.1;

/// The conclusions from pairs of sweeps, the usual one of each pair first.
pub(super) fn pair_conclusions(sweeps: &[Sweep]) -> Vec<Conclusion> {
    let pairs = sweeps.iter().flat_map(|base| sweeps.iter().map(move |other| (base, other)));
    pairs.filter_map(|(base, other)| SweepPair::from_sweeps(base, other)).flat_map(|pair| pair.conclusions()).collect()
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
        let by = axes.into_iter().find(|&axis| {
            base.held != other.held && without_axes(&base.held, &[axis]) == without_axes(&other.held, &[axis])
        })?;
        let is_in_order = match (RequestPattern::of(&base.held), CacheState::of(&base.held)) {
            (pattern, _) if by == RequestPattern::AXIS => pattern == Some(RequestPattern::Random),
            (_, cache) if by == CacheState::AXIS => cache == Some(CacheState::Uncached),
            _ => base.think_seconds() < other.think_seconds(),
        };
        is_in_order.then_some(())?;
        Some(Self { axis: by.name, base: saturated_sweep(base)?, other: saturated_sweep(other)? })
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        // Think time changes how many requests there are at a time, the others where they are served from.
        let other = if self.axis == THINK_TIME.name { Some(self.knee()) } else { self.disk() };
        std::iter::once(self.throughput()).chain(other).collect()
    }

    /// Whether both carry as much.
    fn throughput(&self) -> Conclusion {
        let values = [self.base.saturation.throughput, self.other.saturation.throughput];
        let ratio = estimate_ratio(values);
        let off = Estimate { value: ratio.value - 1.0, low: ratio.low - 1.0, high: ratio.high - 1.0, ..ratio };
        let holds = match off {
            Estimate { low, high, .. } if low >= -SAME_THROUGHPUT_SHARE && high <= SAME_THROUGHPUT_SHARE => Some(true),
            Estimate { low, high, .. } if low > SAME_THROUGHPUT_SHARE || high < -SAME_THROUGHPUT_SHARE => Some(false),
            _ => None,
        };
        self.conclusion(LoadFigure::Throughput { off, tolerance: SAME_THROUGHPUT_SHARE }, values, holds)
    }

    /// Whether the other needs more users: their intervals are apart.
    fn knee(&self) -> Conclusion {
        let [base, other] = [self.base.saturation.knee, self.other.saturation.knee];
        let holds = match (other.low > base.high, other.high <= base.low) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let users = [base, other].map(|knee| Estimate {
            value: knee.users as f64,
            low: knee.low as f64,
            high: knee.high as f64,
            is_range: false,
        });
        self.conclusion(LoadFigure::Knee, users, holds)
    }

    /// Whether the disk reads less for each byte served, where files came from it.
    fn disk(&self) -> Option<Conclusion> {
        let values = [disk_read_ratio(&self.base)?, disk_read_ratio(&self.other)?];
        let [base, other] = values;
        let is_apart = (other.high < base.low).then_some(true).or((other.low > base.high).then_some(false));
        (base.low > MIN_DISK_BYTES).then(|| self.conclusion(LoadFigure::FromDisk, values, is_apart))
    }

    fn conclusion(&self, figure: LoadFigure, values: [Estimate; 2], holds: Option<bool>) -> Conclusion {
        let cases: [Case; 2] = [&self.base, &self.other].map(|one| one.sweep.held.clone());
        let visits = [&self.base, &self.other].map(|one| one.steps().count());
        let claim = LoadComparison { by: self.axis, cases, figure, values };
        new_conclusion(
            LoadClaim::Across(Box::new(claim)),
            holds,
            TestEvidence::Saturated { visits: visits.iter().sum() },
        )
    }
}

/// Bytes that the disk read for each byte that was served.
fn disk_read_ratio(of: &SaturatedSweep<'_>) -> Option<Estimate> {
    // Of a visit that was served nothing there is no such ratio.
    let ratio = |visit: &super::sweep::LoadStep| {
        Some(visit.get(&DISK_BYTE_RATE)? / visit.get(&RATE).filter(|&served| served > 0.0)?)
    };
    mean_estimate(&of.steps().filter_map(ratio).collect::<Vec<f64>>()).map(clamp_to_zero)
}

/// The second over the first, of independent errors, which add as squares of logarithms.
fn estimate_ratio([base, other]: [Estimate; 2]) -> Estimate {
    let value = other.value / base.value;
    let side = |over: f64, under: f64| (over.ln().powi(2) + under.ln().powi(2)).sqrt();
    let down = side(other.value / other.low, base.high / base.value);
    let up = side(other.high / other.value, base.value / base.low);
    Estimate { value, low: value * (-down).exp(), high: value * up.exp(), is_range: false }
}
