//! The colours of heat maps of how much worse something is than others predict, with their legend.

use crate::escape::{Markup, html};
use crate::units;

/// Shares from which the colours begin; the first colour is of what is smaller.
const STEPS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// The colour of a share.
pub(crate) fn step_of(share: f64) -> usize {
    STEPS.iter().filter(|bound| share >= **bound).count()
}

/// The range of each colour.
pub(crate) fn step_labels() -> Vec<String> {
    let below = format!("below {}", units::share(STEPS[0]));
    let between = STEPS.windows(2).map(|pair| format!("{} to {}", units::share(pair[0]), units::share(pair[1])));
    let above = format!("{} and more", units::share(STEPS[STEPS.len() - 1]));
    std::iter::once(below).chain(between).chain([above]).collect()
}

/// The colours with their ranges, behind what they are of.
pub(crate) fn legend(title: &str) -> Markup {
    let item = |(step, label): (usize, String)| {
        let class = format!("h{step}");
        html!(
            "<span class=\"step\"><svg class=\"drawing\" width=\"14\" height=\"14\"><rect class=\"{}\" width=\"14\" height=\"14\"/></svg> {}</span>",
            class,
            label
        )
    };
    let items: Markup = step_labels().into_iter().enumerate().map(item).collect();
    html!("<p class=\"steps\">{} {}</p>", title, items)
}
