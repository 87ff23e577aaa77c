//! A cost for each piece and one for each unit of work, told apart.

/// `pieces` of work of `units` together took `time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Pieces: files, messages.
    pub pieces: f64,
    /// Units of work in all of them: bytes.
    pub units: f64,
    /// Time, more than zero.
    pub time: f64,
}

/// time = a pieces + b units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoCosts {
    /// Time of a piece.
    pub of_a_piece: f64,
    /// Time of a unit.
    pub of_a_unit: f64,
    /// The largest distance of a load from the sum, as a share of its time.
    pub residual: f64,
}

impl TwoCosts {
    /// The time of so much work.
    pub fn at(&self, pieces: f64, units: f64) -> f64 {
        self.of_a_piece * pieces + self.of_a_unit * units
    }
}

/// Weighted least squares with weights of 1/time squared: errors count as shares of the time, else the largest load alone would
/// decide. `None` with fewer than three loads (two are met exactly), or where pieces and units are in proportion.
pub fn two_costs(loads: &[Load]) -> Option<TwoCosts> {
    if loads.len() < 3 || loads.iter().any(|load| !(load.time > 0.0 && load.time.is_finite())) {
        return None;
    }
    let sum = |of: fn(&Load) -> f64| loads.iter().map(of).sum::<f64>();
    let (pp, pu) = (sum(|l| (l.pieces / l.time).powi(2)), sum(|l| l.pieces * l.units / l.time.powi(2)));
    let uu = sum(|l| (l.units / l.time).powi(2));
    let (p, u) = (sum(|l| l.pieces / l.time), sum(|l| l.units / l.time));
    let determinant = pp * uu - pu * pu;
    // In proportion up to rounding.
    if determinant <= 1e-12 * pp * uu {
        return None;
    }
    let mut fit = TwoCosts {
        of_a_piece: (p * uu - u * pu) / determinant,
        of_a_unit: (u * pp - p * pu) / determinant,
        residual: 0.0,
    };
    let off = |load: &Load| (fit.at(load.pieces, load.units) / load.time - 1.0).abs();
    fit.residual = loads.iter().map(off).fold(0.0, f64::max);
    Some(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten small files, one, and two large ones.
    const WORK: [(f64, f64); 3] = [(10.0, 24_114.0), (1.0, 12_022_885.0), (2.0, 364_344_508.0)];

    fn loads(time: impl Fn(f64, f64) -> f64) -> Vec<Load> {
        WORK.iter().map(|&(pieces, units)| Load { pieces, units, time: time(pieces, units) }).collect()
    }

    #[test]
    fn two_costs_are_found_exactly_where_there_are_two() {
        let fit = two_costs(&loads(|pieces, units| 60_000.0 * pieces + 0.5 * units)).unwrap();
        assert!((fit.of_a_piece - 60_000.0).abs() < 1e-3 && (fit.of_a_unit - 0.5).abs() < 1e-9 && fit.residual < 1e-9);
    }

    #[test]
    fn a_third_cost_is_left_over() {
        let fit = two_costs(&loads(|pieces, units| 60_000.0 * pieces + 0.5 * units + 2e6)).unwrap();
        assert!(fit.residual > 0.05, "{fit:?}");
        // Normal equations: the weighted residuals are orthogonal to both columns.
        let loads = loads(|pieces, units| 60_000.0 * pieces + 0.5 * units + 2e6);
        let left = |of: fn(&Load) -> f64| {
            loads.iter().map(|l| of(l) * (l.time - fit.at(l.pieces, l.units)) / l.time.powi(2)).sum::<f64>()
        };
        assert!(left(|l| l.pieces).abs() < 1e-12 && left(|l| l.units).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_told_apart_is_not() {
        assert_eq!(two_costs(&loads(|_, units| units)[..2]), None);
        let in_proportion = [1.0, 2.0, 5.0].map(|n| Load { pieces: n, units: 3.0 * n, time: n });
        assert_eq!(two_costs(&in_proportion), None);
        assert_eq!(two_costs(&loads(|_, _| 0.0)), None);
    }
}
