//! A run against published machines of its class: what is normal, whatever else the run has measured.

use super::*;

/// A run against published machines of its class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassComparison {
    /// The class: `Zen 4, server, guest`; `None` where the machine has none.
    pub class: Option<String>,
    /// Why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_reason: Option<String>,
    /// Areas whose figures are known of machines of the class.
    pub areas: Vec<AreaComparison>,
}

/// All figures of an area against the class, by one factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AreaComparison {
    /// The area: `mem`.
    pub area: Name,
    /// The class, for figures of the kernel with its mitigations.
    pub class: String,
    /// What it is compared with: `Zen 4 guests`.
    pub compared_with: String,
    /// How many times as slow as the class it is, a median of all figures; below 1 it is faster.
    pub factor: f64,
    /// Lower end of the factors of 95 % of machines that are as usual.
    pub low: f64,
    /// Upper end of them.
    pub high: f64,
    /// Figures that it rests on.
    pub figures: usize,
    /// Ids of the members of the class that have one of them.
    pub members: Vec<Name>,
    /// Whether few machines of the class are known: then it is no more than good to know.
    pub has_few_members: bool,
    /// The factor against what is usual.
    pub verdict: ClassVerdict,
}

/// Where a figure of nine in ten machines of the class lies, in the metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureClassRange {
    /// Lower end.
    pub low: f64,
    /// Middle.
    pub center: f64,
    /// Upper end.
    pub high: f64,
    /// Members of the class whose figure is known.
    pub members: usize,
    /// Machines of the same kind, of other classes, that it also rests on.
    pub related: usize,
    /// Whether few machines of the class are known.
    pub has_few_members: bool,
    /// The figure against that; `None` where neither direction is better, or there is no figure.
    pub verdict: Option<ClassVerdict>,
}

/// A figure or an area against its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClassVerdict {
    /// Slower than the class.
    Slower,
    /// As usual.
    Usual,
    /// Faster than the class.
    Faster,
}
