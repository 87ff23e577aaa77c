//! What changes from one sweep of a run to another that differs in one property: the pattern, the cache, the think time.

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::{FROM_DISK, Pattern, RATE, THINK};
use kelvin_model::{Case, Conclusion, Estimate, LoadClaim, LoadComparison, LoadFigure, Name, Test};

use super::sweep::Sweep;
use super::used::{Saturated, estimate, not_negative};
use super::{of, reached};
use crate::studies::crossing::without;

/// How far two saturation throughputs may be apart to count as the same, as a share: the knee is told to as much.
const SAME: f64 = 0.05;
/// Bytes from the disk for each byte served from which files come from it.
const FROM_THE_DISK: f64 = 0.1;

/// The conclusions from pairs of sweeps, the usual one of each pair first.
pub(super) fn across(sweeps: &[Sweep]) -> Vec<Conclusion> {
    let pairs = sweeps.iter().flat_map(|base| sweeps.iter().map(move |other| (base, other)));
    pairs.filter_map(|(base, other)| Pair::of(base, other)).flat_map(|pair| pair.conclusions()).collect()
}

/// Two sweeps at saturation that differ in one property.
struct Pair<'s> {
    /// The axis of the property.
    by: Name,
    base: Saturated<'s>,
    other: Saturated<'s>,
}

impl<'s> Pair<'s> {
    /// `None` unless they differ in one property, the first is the usual one of the two, and both saturate.
    fn of(base: &'s Sweep, other: &'s Sweep) -> Option<Self> {
        let axes = [Pattern::AXIS, CacheState::AXIS, THINK];
        let by = axes
            .into_iter()
            .find(|&axis| base.held != other.held && without(&base.held, &[axis]) == without(&other.held, &[axis]))?;
        let is_in_order = match (Pattern::of(&base.held), CacheState::of(&base.held)) {
            (pattern, _) if by == Pattern::AXIS => pattern == Some(Pattern::Random),
            (_, cache) if by == CacheState::AXIS => cache == Some(CacheState::Uncached),
            _ => base.think() < other.think(),
        };
        is_in_order.then_some(())?;
        Some(Self { by: by.name, base: reached(base)?, other: reached(other)? })
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        // Think time changes how many requests there are at a time, the others where they are served from.
        let other = if self.by == THINK.name { Some(self.knee()) } else { self.disk() };
        std::iter::once(self.throughput()).chain(other).collect()
    }

    /// Whether both carry as much.
    fn throughput(&self) -> Conclusion {
        let values = [self.base.at.throughput, self.other.at.throughput];
        let ratio = ratio(values);
        let off = Estimate { value: ratio.value - 1.0, low: ratio.low - 1.0, high: ratio.high - 1.0, ..ratio };
        let holds = match off {
            Estimate { low, high, .. } if low >= -SAME && high <= SAME => Some(true),
            Estimate { low, high, .. } if low > SAME || high < -SAME => Some(false),
            _ => None,
        };
        self.conclusion(LoadFigure::Throughput { off, tolerance: SAME }, values, holds)
    }

    /// Whether the other needs more users: their intervals are apart.
    fn knee(&self) -> Conclusion {
        let [base, other] = [self.base.at.knee, self.other.at.knee];
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
        let values = [read(&self.base)?, read(&self.other)?];
        let [base, other] = values;
        let is_apart = (other.high < base.low).then_some(true).or((other.low > base.high).then_some(false));
        (base.low > FROM_THE_DISK).then(|| self.conclusion(LoadFigure::FromDisk, values, is_apart))
    }

    fn conclusion(&self, figure: LoadFigure, values: [Estimate; 2], holds: Option<bool>) -> Conclusion {
        let cases: [Case; 2] = [&self.base, &self.other].map(|one| one.sweep.held.clone());
        let visits = [&self.base, &self.other].map(|one| one.visits().count());
        let claim = LoadComparison { by: self.by, cases, figure, values };
        of(LoadClaim::Across(Box::new(claim)), holds, Test::Saturated { visits: visits.iter().sum() })
    }
}

/// Bytes that the disk read for each byte that was served.
fn read(of: &Saturated<'_>) -> Option<Estimate> {
    // Of a visit that was served nothing there is no such ratio.
    let ratio =
        |visit: &super::sweep::Visit| Some(visit.get(&FROM_DISK)? / visit.get(&RATE).filter(|&served| served > 0.0)?);
    estimate(&of.visits().filter_map(ratio).collect::<Vec<f64>>()).map(not_negative)
}

/// The second over the first, of independent errors, which add as squares of logarithms.
fn ratio([base, other]: [Estimate; 2]) -> Estimate {
    let value = other.value / base.value;
    let side = |over: f64, under: f64| (over.ln().powi(2) + under.ln().powi(2)).sqrt();
    let down = side(other.value / other.low, base.high / base.value);
    let up = side(other.high / other.value, base.value / base.low);
    Estimate { value, low: value * (-down).exp(), high: value * up.exp(), is_range: false }
}
