//! What a cause is: data, and the interventions that show it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kelvin_harness::{Probe, Setup};
use kelvin_model::{Case, Difference, Machine, Metric, MetricAt, Point, Reason};

/// Something that can make a figure larger than it would be without it.
#[derive(Debug)]
pub struct Cause {
    /// A word for data: `idle_wake`.
    pub id: &'static str,
    /// What it is, as part of a sentence: `waking an idle CPU`.
    pub what: &'static str,
    /// What it does, and how it is shown.
    pub how: &'static str,
    /// What its controls cost, and what they change meanwhile.
    pub cost: &'static str,
    /// What is wrong to conclude from it.
    pub pitfalls: &'static [&'static str],
    /// What helps against it.
    pub helps: &'static str,
    /// The metrics that it can touch.
    pub touches: Touches,
    /// The ways in which it is shown, the most direct one first. Where there are several, as much counts as all of them show.
    pub mechanisms: &'static [Mechanism],
    /// A figure that it cannot touch.
    pub bystander: fn(&Scene<'_>) -> MetricAt,
    /// Its size by a formula over lower metrics, where one is known.
    pub size: fn(&Scene<'_>) -> Option<Difference>,
}

impl Cause {
    /// Whether it can touch a figure.
    pub fn can_touch(&self, scene: &Scene<'_>) -> bool {
        match self.touches {
            Touches::These(touches) => touches.iter().any(|touch| touch.is_of(scene.metric, scene.case)),
            Touches::AllWhere(is_here) => is_here(scene),
        }
    }
}

/// Which metrics a cause can touch.
#[derive(Clone, Copy, Debug)]
pub enum Touches {
    /// These.
    These(&'static [Touch]),
    /// All, on a machine where this is so: elsewhere there is nothing to be tried.
    AllWhere(fn(&Scene<'_>) -> bool),
}

impl Touches {
    /// The metrics, if not all.
    pub fn these(self) -> Option<&'static [Touch]> {
        match self {
            Self::These(touches) => Some(touches),
            Self::AllWhere(_) => None,
        }
    }
}

/// A metric that a cause can touch.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The metric.
    pub metric: &'static Metric,
    /// The axis word at which alone it can.
    pub only: Option<Point>,
}

impl Touch {
    /// Whether a metric at a case is this one.
    fn is_of(&self, metric: &Metric, case: &Case) -> bool {
        self.metric.id == metric.id && self.only.is_none_or(|there| there.is_of(case))
    }

    /// A metric at all its cases.
    pub const fn always(metric: &'static Metric) -> Self {
        Self { metric, only: None }
    }

    /// A metric at an axis word.
    pub const fn at(metric: &'static Metric, only: Point) -> Self {
        Self { metric, only: Some(only) }
    }
}

/// One way in which a cause is shown.
#[derive(Debug)]
pub struct Mechanism {
    /// What it shows, in words: `gone with both CPUs kept awake`.
    pub how: &'static str,
    /// By what.
    pub means: Means,
    /// Why it may do nothing in a virtual machine, where a substitute takes its place.
    pub idle_in_guest: Option<&'static str>,
    /// Whether it only takes the place of one that does nothing.
    pub is_substitute: bool,
}

impl Mechanism {
    /// One that does the same everywhere, and takes no other's place.
    pub(crate) const fn new(how: &'static str, means: Means) -> Self {
        Self { how, means, idle_in_guest: None, is_substitute: false }
    }
}

/// By what a cause is shown.
#[derive(Debug)]
pub enum Means {
    /// The figure without it.
    Without(Control),
    /// The figure with little and with much of it.
    Sweep([Control; 2]),
    /// The figure with the first less that with the second, which takes more away.
    Beyond([Control; 2]),
    /// The difference of two other figures.
    Difference(fn(&Scene<'_>) -> Option<Difference>),
}

impl Means {
    /// Its controls.
    pub(crate) fn controls(&self) -> &[Control] {
        match self {
            Self::Without(control) => std::slice::from_ref(control),
            Self::Sweep(controls) | Self::Beyond(controls) => controls,
            Self::Difference(_) => &[],
        }
    }

    /// The control under which what the cause cannot touch must not move.
    pub(crate) fn intervention(&self) -> Option<Control> {
        match self {
            Self::Without(control) | Self::Beyond([_, control]) => Some(*control),
            Self::Sweep(_) | Self::Difference(_) => None,
        }
    }
}

/// An intervention that is made before a round and undone after it.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    /// A word for data.
    pub id: &'static str,
    /// Makes it.
    ///
    /// # Errors
    /// Why it cannot be made here.
    pub apply: fn(&Scene<'_>, &mut Conditions) -> Result<(), Reason>,
}

/// The figure that is asked about, and where.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The setup as found.
    pub setup: &'a Setup,
    /// The probe.
    pub probe: &'static Probe,
    /// The metric.
    pub metric: &'static Metric,
    /// The case.
    pub case: &'a Case,
}

impl Scene<'_> {
    /// The CPU quota of this process's control groups, in CPUs, if they have one.
    pub fn cpu_quota(&self) -> Option<f64> {
        self.machine.limits.cpu_quota.get().copied().flatten()
    }

    /// The CPUs that the probe may use, without those of work on all CPUs.
    pub fn cpus(&self) -> Vec<u32> {
        let placement = &self.setup.placement;
        std::iter::once(placement.cpu).chain(placement.partner).collect()
    }
}

/// Under what a round is made. Dropped, it undoes what was done for it.
pub struct Conditions {
    /// The case.
    pub case: Case,
    /// The setup.
    pub setup: Setup,
    held: Vec<Box<dyn Any>>,
    kept: Kept,
}

/// What controls make once and keep until the experiment is over, by their causes' ids.
#[derive(Clone, Default)]
pub(crate) struct Kept(Rc<RefCell<HashMap<&'static str, Rc<dyn Any>>>>);

impl Conditions {
    /// As found.
    pub(crate) fn as_found(case: &Case, setup: &Setup, kept: &Kept) -> Self {
        Self { case: case.clone(), setup: setup.clone(), held: Vec::new(), kept: kept.clone() }
    }

    /// Keeps something that undoes itself by drop until the round is over.
    pub fn hold(&mut self, held: impl Any) {
        self.held.push(Box::new(held));
    }

    /// Makes something that undoes itself by drop, and keeps it until the experiment is over.
    ///
    /// # Errors
    /// Those of making it.
    pub fn keep<T: Any>(&self, id: &'static str, make: impl FnOnce() -> Result<T, Reason>) -> Result<Rc<T>, Reason> {
        let known = self.kept.0.borrow().get(id).and_then(|known| Rc::clone(known).downcast::<T>().ok());
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Rc::new(make()?);
        self.kept.0.borrow_mut().insert(id, Rc::clone(&made) as Rc<dyn Any>);
        Ok(made)
    }
}
