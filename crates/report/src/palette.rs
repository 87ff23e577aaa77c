//! Every colour of the report, light and dark: the page's style sheet, its charts and the files of `--assets` name them.

use std::fmt::Write as _;

/// Colours of series: distinct also for colour-blind readers, each at least 3:1 against the ground (WCAG 1.4.11). Series
/// differ in marker or dash too.
pub(crate) const SERIES_COLORS: usize = 8;

/// Colours of a heat map: as many as a reader can distinguish and find in the legend.
pub(crate) const HEAT_COLORS: usize = 7;

/// Name, light and dark; text colours meet WCAG AA on their grounds in both.
///
/// The steps of heat maps (`h`) are one hue over the range of lightness, so that the order is visible without the
/// legend, by colour-blind readers and on grey paper too (after ColorBrewer's Blues); `ht` is the text on each.
const COLORS: &str = include_str!("../assets/palette.txt");

/// The colours, each with its name.
fn colors() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let color =
        |line: &'static str| line.split_once(' ').and_then(|(name, values)| Some((name, values.split_once(' ')?)));
    COLORS.lines().filter_map(color).map(|(name, (light, dark))| (name, light, dark))
}

/// The colours as properties of the page: light, dark where the reader's system is or the reader wants it, light on paper.
pub(crate) fn css_properties() -> String {
    let (mut light, mut dark) = (String::from("color-scheme:light;"), String::from("color-scheme:dark;"));
    for (name, in_light, in_dark) in colors() {
        let _ = write!(light, "--{name}:{in_light};");
        let _ = write!(dark, "--{name}:{in_dark};");
    }
    format!(
        ":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=\"light\"]){{{dark}}}}}\
         @media screen{{:root[data-theme=\"dark\"]{{{dark}}}}}"
    )
}

/// A style with light colours instead of their names, for files: few programs except browsers know the names.
pub(crate) fn with_light_colors(style: &str) -> String {
    colors().fold(style.to_owned(), |style, (name, light, _)| style.replace(&format!("var(--{name})"), light))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str) -> [&'static str; 2] {
        let (_, light, dark) = colors().find(|(color_name, ..)| *color_name == name).unwrap();
        [light, dark]
    }

    /// Relative luminance of `#rrggbb` or `#rgb` (WCAG 2.2).
    fn luminance(color: &str) -> f64 {
        let digits = (color.len() - 1) / 3;
        let part = |index: usize| {
            let digits = &color[1 + index * digits..][..digits];
            f64::from(u8::from_str_radix(&digits.repeat(2 / digits.len()), 16).unwrap()) / 255.0
        };
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(part(0)) + 0.7152 * linear(part(1)) + 0.0722 * linear(part(2))
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn values_are_legible_on_every_color() {
        for theme in 0..2 {
            let step =
                |name: &str| (0..HEAT_COLORS).map(|step| color(&format!("{name}{step}"))[theme]).collect::<Vec<_>>();
            for (ground, ink) in step("h").iter().zip(step("ht")) {
                assert!(contrast(ground, ink) >= 4.5, "{ink} on {ground}: {:.2}", contrast(ground, ink));
            }
            let order: Vec<f64> = step("h").into_iter().map(luminance).collect();
            assert!(order.is_sorted() || order.iter().rev().is_sorted(), "lightness shows the order");
        }
    }

    #[test]
    fn texts_and_series_have_contrast() {
        for theme in 0..2 {
            let ratio = |name: &str, ground: &str| contrast(color(name)[theme], color(ground)[theme]);
            for ground in ["ground", "panel", "faint"] {
                assert!(["ink", "soft", "link"].iter().all(|text| ratio(text, ground) >= 4.5), "{ground}");
            }
            assert!(["good", "odd", "bad"].iter().all(|text| ratio(text, &format!("{text}-ground")) >= 4.5));
            assert!((0..SERIES_COLORS).all(|series| ratio(&format!("s{series}"), "panel") >= 3.0));
        }
    }

    #[test]
    fn file_styles_use_palette_only() {
        assert_eq!(with_light_colors("a{fill:var(--panel)}b{stroke:var(--s0)}"), "a{fill:#fff}b{stroke:#0072b2}");
    }
}
