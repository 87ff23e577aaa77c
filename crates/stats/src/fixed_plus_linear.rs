//! A cost for each piece and one for each unit of work, separated.

/// `pieces` of work of `units` together took `time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkSample {
    /// Pieces: files, messages.
    pub pieces: f64,
    /// Units of work in all of them: bytes.
    pub units: f64,
    /// Time, more than zero.
    pub time: f64,
}

/// time = a pieces + b units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedPlusLinear {
    /// Time of a piece.
    pub per_piece: f64,
    /// Time of a unit.
    pub per_unit: f64,
    /// The largest distance of a load from the sum, as a share of its time.
    pub residual: f64,
}

impl FixedPlusLinear {
    /// The time of so much work.
    pub fn time_for(&self, pieces: f64, units: f64) -> f64 {
        self.per_piece * pieces + self.per_unit * units
    }
}

/// Weighted least squares with weights of 1/time squared: errors count as shares of the time, else the largest load alone would
/// decide. `None` with fewer than three loads (two are met exactly), or where pieces and units are in proportion.
pub fn fit_fixed_plus_linear(loads: &[WorkSample]) -> Option<FixedPlusLinear> {
    if loads.len() < 3 || loads.iter().any(|load| !(load.time > 0.0 && load.time.is_finite())) {
        return None;
    }
    let sum = |term: fn(&WorkSample) -> f64| loads.iter().map(term).sum::<f64>();
    let (pp, pu) = (sum(|l| (l.pieces / l.time).powi(2)), sum(|l| l.pieces * l.units / l.time.powi(2)));
    let uu = sum(|l| (l.units / l.time).powi(2));
    let (p, u) = (sum(|l| l.pieces / l.time), sum(|l| l.units / l.time));
    let determinant = pp * uu - pu * pu;
    // In proportion up to rounding.
    if determinant <= 1e-12 * pp * uu {
        return None;
    }
    let mut fit = FixedPlusLinear {
        per_piece: (p * uu - u * pu) / determinant,
        per_unit: (u * pp - p * pu) / determinant,
        residual: 0.0,
    };
    let relative_error = |load: &WorkSample| (fit.time_for(load.pieces, load.units) / load.time - 1.0).abs();
    fit.residual = loads.iter().map(relative_error).fold(0.0, f64::max);
    Some(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten small files, one, and two large ones.
    const WORK: [(f64, f64); 3] = [(10.0, 24_114.0), (1.0, 12_022_885.0), (2.0, 364_344_508.0)];

    fn work_samples(time: impl Fn(f64, f64) -> f64) -> Vec<WorkSample> {
        WORK.iter().map(|&(pieces, units)| WorkSample { pieces, units, time: time(pieces, units) }).collect()
    }

    #[test]
    fn both_costs_recovered_exactly() {
        let fit = fit_fixed_plus_linear(&work_samples(|pieces, units| 60_000.0 * pieces + 0.5 * units)).unwrap();
        assert!((fit.per_piece - 60_000.0).abs() < 1e-3 && (fit.per_unit - 0.5).abs() < 1e-9 && fit.residual < 1e-9);
    }

    #[test]
    fn third_cost_is_left_in_residual() {
        let fit = fit_fixed_plus_linear(&work_samples(|pieces, units| 60_000.0 * pieces + 0.5 * units + 2e6)).unwrap();
        assert!(fit.residual > 0.05, "{fit:?}");
        // Normal equations: the weighted residuals are orthogonal to both columns.
        let loads = work_samples(|pieces, units| 60_000.0 * pieces + 0.5 * units + 2e6);
        let weighted_residual = |column: fn(&WorkSample) -> f64| {
            loads.iter().map(|l| column(l) * (l.time - fit.time_for(l.pieces, l.units)) / l.time.powi(2)).sum::<f64>()
        };
        assert!(weighted_residual(|l| l.pieces).abs() < 1e-12 && weighted_residual(|l| l.units).abs() < 1e-9);
    }

    #[test]
    fn indistinguishable_costs_give_none() {
        assert_eq!(fit_fixed_plus_linear(&work_samples(|_, units| units)[..2]), None);
        let proportional_samples = [1.0, 2.0, 5.0].map(|n| WorkSample { pieces: n, units: 3.0 * n, time: n });
        assert_eq!(fit_fixed_plus_linear(&proportional_samples), None);
        assert_eq!(fit_fixed_plus_linear(&work_samples(|_, _| 0.0)), None);
    }
}
