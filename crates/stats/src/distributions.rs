//! Distribution functions and quantiles of the normal and of Student's t distribution.

use std::f64::consts::{PI, SQRT_2};

use libm::{erfc, lgamma};

/// Below this a continued fraction has converged in double precision.
const CONVERGENCE_TOLERANCE: f64 = 1e-16;
/// No continued fraction here needs more terms in its range.
const MAX_FRACTION_TERMS: usize = 10_000;
/// Replaces a vanishing denominator in Lentz's method.
const MIN_LENTZ_DENOMINATOR: f64 = 1e-300;

/// ln(gamma(a + 1/2) / gamma(a)) without the cancellation that the difference of two large logarithms suffers: from the
/// asymptotic series (Tricomi and Erdelyi 1951) where it is exact to double precision.
fn ln_gamma_half_step(a: f64) -> f64 {
    if a < 100.0 {
        return lgamma(a + 0.5) - lgamma(a);
    }
    let b = 1.0 / a;
    let series = 1.0 + b * (-1.0 / 8.0 + b * (1.0 / 128.0 + b * (5.0 / 1024.0 - b * 21.0 / 32768.0)));
    0.5 * a.ln() + series.ln()
}

/// Probability that a standard normal variable is at most `z`.
pub fn normal_cdf(z: f64) -> f64 {
    erfc(-z / SQRT_2) / 2.0
}

/// The value that a standard normal variable stays below with this probability.
///
/// A rough value (error below 4.5e-4), refined by three steps of Halley's method on [`normal_cdf`]. Infinite at 0 and 1, not a number outside.
pub fn normal_quantile(probability: f64) -> f64 {
    match probability {
        0.0 => return f64::NEG_INFINITY,
        1.0 => return f64::INFINITY,
        p if !(0.0..=1.0).contains(&p) => return f64::NAN,
        _ => {}
    }
    if probability > 0.5 {
        return -normal_quantile(1.0 - probability);
    }
    let mut z = rough_normal_quantile(probability);
    for _ in 0..3 {
        let error = (normal_cdf(z) - probability) * (2.0 * PI).sqrt() * (z * z / 2.0).exp();
        z -= error / (1.0 + z * error / 2.0);
    }
    z
}

/// Hastings' approximation of the normal quantile for probabilities up to one half (Abramowitz and Stegun 26.2.23).
fn rough_normal_quantile(p: f64) -> f64 {
    let t = (-2.0 * p.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    numerator / denominator - t
}

/// Regularised incomplete beta function I_x(a, 1/2), given ln x and 1 - x apart so that neither end loses digits.
fn beta_half(a: f64, ln_x: f64, one_minus_x: f64) -> f64 {
    let x = ln_x.exp();
    let ln_front = ln_gamma_half_step(a) - 0.5 * PI.ln() + a * ln_x + 0.5 * one_minus_x.ln();
    if x < (a + 1.0) / (a + 2.5) {
        ln_front.exp() * beta_fraction(a, 0.5, x) / a
    } else {
        1.0 - ln_front.exp() * beta_fraction(0.5, a, one_minus_x) / 0.5
    }
}

/// Continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8) by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let guard = |value: f64| if value.abs() < MIN_LENTZ_DENOMINATOR { MIN_LENTZ_DENOMINATOR } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for m in 1..MAX_FRACTION_TERMS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        result *= d * c;
        if (d * c - 1.0).abs() < CONVERGENCE_TOLERANCE {
            break;
        }
    }
    result
}

/// Probability that Student's t with `degrees` (positive, need not be whole) of freedom exceeds `t`.
pub fn t_upper_tail(t: f64, degrees: f64) -> f64 {
    if t < 0.0 {
        return 1.0 - t_upper_tail(-t, degrees);
    }
    if t == 0.0 {
        return 0.5;
    }
    let square = t * t;
    0.5 * beta_half(degrees / 2.0, -(square / degrees).ln_1p(), square / (degrees + square))
}

/// The value that Student's t with `degrees` of freedom stays below with this probability.
///
/// Degrees need not be whole; they must be positive. Found by Newton steps on the logarithm of the tail, kept between
/// bounds by bisection; exact to about 1e-12 relative. Not a number for other degrees or probabilities outside 0..=1.
pub fn t_quantile(probability: f64, degrees: f64) -> f64 {
    if degrees.is_nan() || degrees <= 0.0 || !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    if degrees > 1e12 {
        return normal_quantile(probability);
    }
    if probability < 0.5 {
        return -t_quantile_upper(probability, degrees);
    }
    t_quantile_upper(1.0 - probability, degrees)
}

/// The t that is exceeded with the probability `tail` (at most one half).
fn t_quantile_upper(tail: f64, degrees: f64) -> f64 {
    if tail == 0.5 {
        return 0.0;
    }
    if tail == 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (1e-20_f64.ln(), f64::MAX.sqrt().ln());
    let mut log_t = normal_quantile(1.0 - tail).max(1e-12).ln();
    for _ in 0..200 {
        let t = log_t.exp();
        let probability = t_upper_tail(t, degrees);
        if probability > tail {
            low = log_t;
        } else {
            high = log_t;
        }
        // Derivative of ln tail by ln t; both are nearly straight lines there, for light and for heavy tails.
        let newton = log_t + (probability / tail).ln() * probability / (t * t_density(t, degrees));
        let next = if newton > low && newton < high { newton } else { f64::midpoint(low, high) };
        if (next - log_t).abs() < 1e-14 * log_t.abs().max(1.0) {
            return next.exp();
        }
        log_t = next;
    }
    log_t.exp()
}

/// Density of Student's t.
fn t_density(t: f64, degrees: f64) -> f64 {
    let scale = ln_gamma_half_step(degrees / 2.0) - 0.5 * (degrees * PI).ln();
    (scale - (degrees + 1.0) / 2.0 * (t * t / degrees).ln_1p()).exp()
}

/// Chance of at least `count` of `n` independent events that each have a chance of `share`.
pub(crate) fn binomial_upper_tail(n: usize, count: usize, share: f64) -> f64 {
    if count == 0 || share >= 1.0 {
        return 1.0;
    }
    if share <= 0.0 {
        return 0.0;
    }
    let (mut term, mut tail) = (n as f64 * (-share).ln_1p(), 0.0);
    for events in 0..=n {
        if events >= count {
            tail += term.exp();
        }
        term += ((n - events) as f64 / (events + 1) as f64).ln() + share.ln() - (-share).ln_1p();
    }
    tail.min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_close(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= 1e-8 * expected.abs().max(1.0)
    }

    #[test]
    fn normal_quantiles_of_published_tables() {
        // R: qnorm(c(.5, .75, .9, .95, .975, .99, .995, .9995, 1e-10)).
        let table = [
            (0.5, 0.0),
            (0.75, 0.674_489_750_196_081_7),
            (0.9, 1.281_551_565_544_600_4),
            (0.95, 1.644_853_626_951_472_2),
            (0.975, 1.959_963_984_540_054),
            (0.99, 2.326_347_874_040_841),
            (0.995, 2.575_829_303_548_900_4),
            (0.9995, 3.290_526_731_491_926),
            (1e-10, -6.361_340_902_404_056),
        ];
        for (probability, quantile) in table {
            assert!(
                is_close(normal_quantile(probability), quantile),
                "{probability}: {}",
                normal_quantile(probability)
            );
        }
        assert!(is_close(normal_cdf(1.0), 0.841_344_746_068_542_9));
        assert!(is_close(normal_cdf(-3.0) * 1e3, 1.349_898_031_630_094_6));
    }

    #[test]
    fn t_quantiles_have_their_closed_forms() {
        // One degree: tan(pi (p - 1/2)); two degrees: (2p - 1) sqrt(2 / (4 p (1 - p))).
        for p in [0.6, 0.9, 0.95, 0.975, 0.995, 0.9995] {
            let one_degree = (PI * (p - 0.5)).tan();
            let two_degrees = (2.0 * p - 1.0) * (2.0 / (4.0 * p * (1.0 - p))).sqrt();
            assert!((t_quantile(p, 1.0) / one_degree - 1.0).abs() < 1e-8, "{p}: {} {one_degree}", t_quantile(p, 1.0));
            assert!((t_quantile(p, 2.0) / two_degrees - 1.0).abs() < 1e-8, "{p}: {} {two_degrees}", t_quantile(p, 2.0));
        }
    }

    #[test]
    fn t_quantiles_of_published_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, to its three decimals.
        let upper_975 = [
            (3.0, 3.182),
            (4.0, 2.776),
            (5.0, 2.571),
            (6.0, 2.447),
            (9.0, 2.262),
            (10.0, 2.228),
            (19.0, 2.093),
            (30.0, 2.042),
            (100.0, 1.984),
        ];
        for (degrees, quantile) in upper_975 {
            assert!((t_quantile(0.975, degrees) - quantile).abs() < 5.1e-4, "{degrees}");
        }
        for (degrees, quantile) in [(3.0, 5.841), (5.0, 4.032), (10.0, 3.169), (60.0, 2.660)] {
            assert!((t_quantile(0.995, degrees) - quantile).abs() < 5.1e-4, "{degrees}");
        }
        assert!(is_close(t_quantile(0.975, 5.0), 2.570_581_835_636_314));
        assert!(is_close(t_quantile(0.975, 10.0), 2.228_138_851_964_939));
        assert!((t_quantile(0.975, 1e7) - 1.959_964_221_264_2).abs() < 1e-8);
        assert!(is_close(t_quantile(0.025, 5.0), -2.570_581_835_636_314));
    }

    #[test]
    fn arguments_without_an_answer() {
        assert!(t_quantile(0.975, 0.0).is_nan());
        assert!(t_quantile(1.5, 3.0).is_nan());
        assert!(normal_quantile(-0.1).is_nan());
        assert_eq!(t_quantile(1.0, 3.0), f64::INFINITY);
        assert_eq!(t_quantile(0.5, 3.0), 0.0);
    }

    proptest! {
        #[test]
        fn t_quantile_inverts_the_tail(probability in 0.5001..0.9999f64, degrees in 0.5..5000.0f64) {
            let tail = t_upper_tail(t_quantile(probability, degrees), degrees);
            prop_assert!((tail - (1.0 - probability)).abs() < 1e-10);
        }

        #[test]
        fn t_narrows_with_degrees_and_exceeds_normal(p in 0.6..0.999f64, degrees in 0.7..300.0f64) {
            let quantile = t_quantile(p, degrees);
            prop_assert!(quantile > normal_quantile(p));
            prop_assert!(quantile > t_quantile(p, degrees * 1.5));
        }
    }

    #[test]
    fn binomial_upper_tail_matches_known_values() {
        // 5 coins: P(X >= 4) = 6/32. R: pbinom(2, 10, 0.2, lower.tail = FALSE) = 0.3222005.
        assert!((binomial_upper_tail(5, 4, 0.5) - 6.0 / 32.0).abs() < 1e-12);
        assert!((binomial_upper_tail(10, 3, 0.2) - 0.322_200_5).abs() < 1e-7);
        assert_eq!([binomial_upper_tail(3, 0, 0.0), binomial_upper_tail(3, 1, 0.0)], [1.0, 0.0]);
        assert_eq!(binomial_upper_tail(3, 3, 1.0), 1.0);
    }
}
