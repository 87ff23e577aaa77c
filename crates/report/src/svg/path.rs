//! Path data in few characters: tenths of a unit, finer than a screen, with each point relative to the last.

use crate::escape::{Markup, html};

/// A length in tenths of a unit, the precision of drawings.
fn tenths(length: f64) -> i64 {
    (length * 10.0).round() as i64
}

/// Tenths as the shortest number: `-.5`, `12`, `3.4`.
fn shortest_number(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.abs() / 10, tenths.abs() % 10) {
        (integer, 0) => format!("{sign}{integer}"),
        (0, tenth) => format!("{sign}.{tenth}"),
        (integer, tenth) => format!("{sign}{integer}.{tenth}"),
    }
}

/// A path of a class of the style sheet.
pub(crate) fn element(class: &str, d: impl AsRef<str>) -> Markup {
    html!("<path class=\"{}\" d=\"{}\"/>", class, d.as_ref())
}

/// A length as an attribute or in a path.
pub(crate) fn number(length: f64) -> String {
    shortest_number(tenths(length))
}

/// Where a path begins.
pub(crate) fn move_to(x: f64, y: f64) -> String {
    format!("M{} {}", number(x), number(y))
}

/// A dot: a line of no length, which a round end makes visible.
pub(crate) fn dot_at(x: f64, y: f64) -> String {
    move_to(x, y) + "h0"
}

/// A horizontal line.
pub(crate) fn horizontal(from: f64, to: f64, y: f64) -> String {
    format!("{}H{}", move_to(from, y), number(to))
}

/// A vertical line.
pub(crate) fn vertical(x: f64, from: f64, to: f64) -> String {
    format!("{}V{}", move_to(x, from), number(to))
}

/// A rectangle.
pub(crate) fn rectangle(x: f64, y: f64, width: f64, height: f64) -> String {
    format!("{}h{}v{}H{}z", move_to(x, y), number(width), number(height), number(x))
}

/// An interval as a line with ends of this height.
pub(crate) fn whisker([low, high]: [f64; 2], middle: f64, height: f64) -> String {
    let (top, end) = (middle - height / 2.0, number(height));
    format!("{}v{end}{}v{end}{}", move_to(low, top), move_to(high, top), horizontal(low, high, middle))
}

/// A line through points; rounding does not add up along it.
pub(crate) fn polyline(mut points: impl Iterator<Item = (f64, f64)>) -> String {
    let Some((x, y)) = points.next() else { return String::new() };
    let mut path = move_to(x, y);
    let (mut x, mut y) = (tenths(x), tenths(y));
    for (index, (to_x, to_y)) in points.map(|(x, y)| (tenths(x), tenths(y))).enumerate() {
        if index == 0 {
            path.push('l');
        }
        for (nth, distance) in [to_x - x, to_y - y].into_iter().enumerate() {
            // A sign separates two numbers as a space does.
            if distance >= 0 && index + nth > 0 {
                path.push(' ');
            }
            path.push_str(&shortest_number(distance));
        }
        (x, y) = (to_x, to_y);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_minimal_digits() {
        let texts = [0.0, -0.04, 0.05, -0.5, 3.0, 12.34, -120.0].map(number);
        assert_eq!(texts, ["0", "0", ".1", "-.5", "3", "12.3", "-120"]);
    }

    #[test]
    fn line_is_relative_moves() {
        assert_eq!(polyline([(1.0, 2.0), (1.5, 1.0), (11.5, 1.0), (3.0, 9.25)].into_iter()), "M1 2l.5-1 10 0-8.5 8.3");
        assert_eq!(polyline([(1.0, 2.0)].into_iter()), "M1 2");
        assert_eq!(polyline(std::iter::empty()), "");
    }

    /// A thousand steps of a third of a tenth end where they should.
    #[test]
    fn rounding_errors_do_not_accumulate() {
        let path = polyline((0..=1000).map(|step| (f64::from(step) * 0.033, 0.0)));
        let distances = path.strip_prefix("M0 0l").unwrap();
        let sum: f64 = distances.split(' ').step_by(2).map(|distance| distance.parse::<f64>().unwrap()).sum();
        assert!((sum - 33.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn rectangle_is_closed() {
        assert_eq!(rectangle(51.5, 10.0, 39.04, 20.0), "M51.5 10h39v20H51.5z");
    }
}
