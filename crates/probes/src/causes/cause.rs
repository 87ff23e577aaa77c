//! What a cause is: data, and the interventions that show it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kelvin_core::catalogue::net::{MESSAGE, STACK_UDP};
use kelvin_core::catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_core::{AxisWord, Case, FigureDifference, Machine, Metric, MetricCase, SkipReason};
use kelvin_harness::markdown::{items, paragraph, sections};
use kelvin_harness::{Probe, Setup};

/// Something that can make a figure larger than it would be without it.
#[derive(Debug)]
pub struct Cause {
    /// A word for data: `idle_wake`.
    pub id: &'static str,
    /// What it is, as part of a sentence: `waking an idle CPU`.
    pub summary: &'static str,
    /// Its description, a file in Markdown which [`Cause::text`] reads.
    pub markdown: &'static str,
    /// The metrics that it can touch.
    pub affected: AffectedMetrics,
    /// The ways in which it is shown, the most direct one first. Where there are several, as much counts as all of them show.
    pub mechanisms: &'static [Mechanism],
    /// A figure that it cannot touch.
    pub negative_control: fn(&CauseContext<'_>) -> MetricCase,
    /// Its size by a formula over lower metrics, where one is known.
    pub size: fn(&CauseContext<'_>) -> Option<FigureDifference>,
}

impl Cause {
    /// A cause that cannot touch a null call, and of which no formula gives the size. Its metrics and mechanisms are to be given:
    /// `Cause { affected, mechanisms, ..Cause::new("id", "what it is", include_str!("id.md")) }`.
    pub(crate) const fn new(id: &'static str, summary: &'static str, markdown: &'static str) -> Self {
        let affected = AffectedMetrics::Listed(&[]);
        Self { id, summary, markdown, affected, mechanisms: &[], negative_control: null_call, size: |_| None }
    }

    /// Its description.
    ///
    /// # Panics
    /// For a section of another title than texts of causes have, of which a test over all causes would fail.
    pub fn text(&self) -> CauseText {
        let mut text = CauseText::default();
        for (title, body) in sections(self.markdown) {
            match title {
                "" => text.how = paragraph(body),
                "Cost" => text.cost = paragraph(body),
                "What helps" => text.remedy = paragraph(body),
                "Pitfalls" => text.pitfalls = items(body),
                _ => panic!("a cause has no section {title:?}"),
            }
        }
        text
    }

    /// Whether it can touch a figure.
    pub fn can_affect(&self, context: &CauseContext<'_>) -> bool {
        match self.affected {
            AffectedMetrics::Listed(listed_cases) => {
                let has_word = |cases: &AffectedCases| cases.word.is_none_or(|word| word.is_in_case(context.case));
                let has_metric =
                    |cases: &AffectedCases| cases.metrics.iter().any(|metric| metric.id == context.metric.id);
                listed_cases.iter().any(|cases| has_metric(cases) && has_word(cases))
            }
            AffectedMetrics::AllWhere(predicate) => predicate(context),
        }
    }
}

/// The description of a cause, each paragraph and each item in one line.
#[derive(Clone, Debug, Default)]
pub struct CauseText {
    /// What it does, and how it is shown.
    pub how: String,
    /// What its controls cost, and what they change meanwhile.
    pub cost: String,
    /// What helps against it, as part of a sentence.
    pub remedy: String,
    /// What is wrong to conclude from it.
    pub pitfalls: Vec<String>,
}

/// Which metrics a cause can touch.
#[derive(Clone, Copy, Debug)]
pub enum AffectedMetrics {
    /// These.
    Listed(&'static [AffectedCases]),
    /// All, on a machine where this is so: elsewhere there is nothing to be tried.
    AllWhere(fn(&CauseContext<'_>) -> bool),
}

impl AffectedMetrics {
    /// The metrics, if not all.
    pub fn listed(self) -> Option<&'static [AffectedCases]> {
        match self {
            Self::Listed(listed_cases) => Some(listed_cases),
            Self::AllWhere(_) => None,
        }
    }
}

/// Metrics that a cause can touch, at all their cases or at those with one word.
#[derive(Clone, Copy, Debug)]
pub struct AffectedCases {
    /// The metrics.
    pub metrics: &'static [&'static Metric],
    /// The axis word at which alone it can.
    pub word: Option<AxisWord>,
}

/// Metrics at all their cases.
pub(crate) const fn at_all_cases(metrics: &'static [&'static Metric]) -> AffectedCases {
    AffectedCases { metrics, word: None }
}

/// Metrics at an axis word.
pub(crate) const fn at_word(metrics: &'static [&'static Metric], word: AxisWord) -> AffectedCases {
    AffectedCases { metrics, word: Some(word) }
}

/// A null system call, which waits for nothing and touches no memory: a figure that most causes cannot touch.
fn null_call(_: &CauseContext<'_>) -> MetricCase {
    MetricCase { metric: SYSCALL_NULL.id, case: Case::new().with_word(NullCall::Getppid) }
}

/// A small datagram through both protocol stacks of one process, which no stream's settings touch.
pub(crate) fn small_datagram(_: &CauseContext<'_>) -> MetricCase {
    MetricCase { metric: STACK_UDP.id, case: Case::new().with_number(MESSAGE, 64) }
}

/// One way in which a cause is shown.
#[derive(Debug)]
pub struct Mechanism {
    /// What it shows, in words: `gone with both CPUs kept awake`.
    pub how: &'static str,
    /// By what.
    pub source: AmountSource,
    /// Why it may do nothing in a virtual machine, where a substitute takes its place.
    pub idle_in_guest: Option<&'static str>,
    /// Whether it only takes the place of one that does nothing.
    pub is_substitute: bool,
}

impl Mechanism {
    /// One that does the same everywhere, and takes no other's place.
    pub(crate) const fn new(how: &'static str, source: AmountSource) -> Self {
        Self { how, source, idle_in_guest: None, is_substitute: false }
    }

    /// The figure under one intervention, `how` in words.
    pub(crate) const fn without(
        id: &'static str,
        how: &'static str,
        apply: fn(&CauseContext<'_>, &mut RoundConditions) -> Result<(), SkipReason>,
    ) -> Self {
        Self::new(how, AmountSource::Without(Intervention { id, apply }))
    }
}

/// By what a cause is shown.
#[derive(Debug)]
pub enum AmountSource {
    /// The figure without it.
    Without(Intervention),
    /// The figure with little and with much of it.
    Sweep([Intervention; 2]),
    /// The figure with the first less that with the second, which takes more away.
    Excess([Intervention; 2]),
    /// The difference of two other figures.
    Difference(fn(&CauseContext<'_>) -> Option<FigureDifference>),
}

impl AmountSource {
    /// Its controls.
    pub(crate) fn interventions(&self) -> &[Intervention] {
        match self {
            Self::Without(control) => std::slice::from_ref(control),
            Self::Sweep(controls) | Self::Excess(controls) => controls,
            Self::Difference(_) => &[],
        }
    }

    /// The control under which what the cause cannot touch must not move.
    pub(crate) fn main_intervention(&self) -> Option<Intervention> {
        match self {
            Self::Without(control) | Self::Excess([_, control]) => Some(*control),
            Self::Sweep(_) | Self::Difference(_) => None,
        }
    }
}

/// An intervention that is made before a round and undone after it.
#[derive(Clone, Copy, Debug)]
pub struct Intervention {
    /// A word for data.
    pub id: &'static str,
    /// Makes it.
    ///
    /// # Errors
    /// Why it cannot be made here.
    pub apply: fn(&CauseContext<'_>, &mut RoundConditions) -> Result<(), SkipReason>,
}

/// The figure to be explained, and its case.
#[derive(Clone, Copy, Debug)]
pub struct CauseContext<'a> {
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

impl CauseContext<'_> {
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
pub struct RoundConditions {
    /// The case.
    pub case: Case,
    /// The setup.
    pub setup: Setup,
    held_for_round: Vec<Box<dyn Any>>,
    experiment: ExperimentState,
}

/// What controls make once and keep until the experiment is over, by their causes' ids.
#[derive(Clone, Default)]
pub(crate) struct ExperimentState(Rc<RefCell<HashMap<&'static str, Rc<dyn Any>>>>);

impl RoundConditions {
    /// As found.
    pub(crate) fn as_found(case: &Case, setup: &Setup, state: &ExperimentState) -> Self {
        Self { case: case.clone(), setup: setup.clone(), held_for_round: Vec::new(), experiment: state.clone() }
    }

    /// Sets a word of the case; a bystander that has no such axis stays as it is.
    pub(crate) fn replace_word(&mut self, word: impl Into<AxisWord>) {
        let word = word.into();
        if self.case.get(&word.axis()).is_some() {
            self.case = std::mem::take(&mut self.case).with_word(word);
        }
    }

    /// Keeps something that undoes itself by drop until the round is over.
    pub fn keep_for_round(&mut self, guard: impl Any) {
        self.held_for_round.push(Box::new(guard));
    }

    /// Makes something that undoes itself by drop, and keeps it until the experiment is over.
    ///
    /// # Errors
    /// Those of making it.
    pub fn keep_for_experiment<T: Any>(
        &self,
        id: &'static str,
        create: impl FnOnce() -> Result<T, SkipReason>,
    ) -> Result<Rc<T>, SkipReason> {
        let resource = self.experiment.0.borrow().get(id).and_then(|object| Rc::clone(object).downcast::<T>().ok());
        if let Some(resource) = resource {
            return Ok(resource);
        }
        let new_resource = Rc::new(create()?);
        self.experiment.0.borrow_mut().insert(id, Rc::clone(&new_resource) as Rc<dyn Any>);
        Ok(new_resource)
    }
}
