//! Path data in few characters: tenths of a unit, finer than a screen, with each point relative to the last.

/// A length in tenths of a unit, the precision of drawings.
fn tenths(length: f64) -> i64 {
    (length * 10.0).round() as i64
}

/// Tenths as the shortest number: `-.5`, `12`, `3.4`.
fn shortest(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.abs() / 10, tenths.abs() % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, tenth) => format!("{sign}.{tenth}"),
        (whole, tenth) => format!("{sign}{whole}.{tenth}"),
    }
}

/// A length as an attribute or in a path.
pub(crate) fn number(length: f64) -> String {
    shortest(tenths(length))
}

/// Where a path begins.
pub(crate) fn begin(x: f64, y: f64) -> String {
    format!("M{} {}", number(x), number(y))
}

/// A dot: a line of no length, which a round end makes visible.
pub(crate) fn dot(x: f64, y: f64) -> String {
    begin(x, y) + "h0"
}

/// A rectangle.
pub(crate) fn rectangle(x: f64, y: f64, width: f64, height: f64) -> String {
    let (x, y, width, height) = (tenths(x), tenths(y), shortest(tenths(width)), shortest(tenths(height)));
    format!("M{} {}h{width}v{height}H{}z", shortest(x), shortest(y), shortest(x))
}

/// A line through points; rounding does not add up along it.
pub(crate) fn line(mut points: impl Iterator<Item = (f64, f64)>) -> String {
    let Some((x, y)) = points.next() else { return String::new() };
    let mut path = begin(x, y);
    let (mut x, mut y) = (tenths(x), tenths(y));
    for (index, (to_x, to_y)) in points.map(|(x, y)| (tenths(x), tenths(y))).enumerate() {
        if index == 0 {
            path.push('l');
        }
        for (nth, way) in [to_x - x, to_y - y].into_iter().enumerate() {
            // A sign separates two numbers as a space does.
            if way >= 0 && index + nth > 0 {
                path.push(' ');
            }
            path.push_str(&shortest(way));
        }
        (x, y) = (to_x, to_y);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_digit_too_many() {
        let all = [0.0, -0.04, 0.05, -0.5, 3.0, 12.34, -120.0].map(number);
        assert_eq!(all, ["0", "0", ".1", "-.5", "3", "12.3", "-120"]);
    }

    #[test]
    fn a_line_is_its_way() {
        assert_eq!(line([(1.0, 2.0), (1.5, 1.0), (11.5, 1.0), (3.0, 9.25)].into_iter()), "M1 2l.5-1 10 0-8.5 8.3");
        assert_eq!(line([(1.0, 2.0)].into_iter()), "M1 2");
        assert_eq!(line(std::iter::empty()), "");
    }

    /// A thousand steps of a third of a tenth end where they should.
    #[test]
    fn rounding_does_not_add_up() {
        let path = line((0..=1000).map(|step| (f64::from(step) * 0.033, 0.0)));
        let ways = path.strip_prefix("M0 0l").unwrap();
        let sum: f64 = ways.split(' ').step_by(2).map(|way| way.parse::<f64>().unwrap()).sum();
        assert!((sum - 33.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn a_rectangle_comes_back_to_its_corner() {
        assert_eq!(rectangle(51.5, 10.0, 39.04, 20.0), "M51.5 10h39v20H51.5z");
    }
}
